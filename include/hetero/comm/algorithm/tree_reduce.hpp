// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <hetero/comm/algorithm/reduce.hpp>
#include <hetero/comm/algorithm/ring.hpp>
#include <hetero/comm/algorithm/root_agreement.hpp>

namespace hetero::detail {

/// Reduction at `root` along a binomial tree in ceil(log2 n) rounds, the mirror of tree_broadcast: n-1 messages per
/// piece, n more that agree on the root, and (n-1) S bytes over all ranks; every rank but the root sends S. Pieces flow
/// up the tree one behind the other, and partial sums stay in `values`. For types that are added in themselves.
/// @throws error invalid_argument when an integer sum overflows; see operation::finish
template <exchange Exchange, class T>
void tree_reduce(Exchange& ex, std::span<T> values, reduce_op op, std::uint32_t root) {
  static_assert(sizeof(T) >= 4, "narrow types would round at every level of the tree");
  const std::uint32_t n = ex.world_size();
  if (n == 1) return;
  const std::uint32_t place = (ex.rank() + n - root) % n;  // the root is at place 0
  const auto rank_at = [&](std::uint32_t p) { return (p + root) % n; };
  // A place's parent lacks its lowest set bit; its children add one lower bit each.
  const auto depth = static_cast<std::uint32_t>(std::bit_width(n - 1));
  const auto own_bits = place == 0 ? depth : static_cast<std::uint32_t>(std::countr_zero(place));
  std::uint32_t children = 0;
  while (children < own_bits && (place | (std::uint32_t{1} << children)) < n) ++children;
  for (std::uint32_t round = 0; round < depth; ++round) ex.count_round();
  root_agreement<Exchange> agreement{ex};

  const std::size_t pieces = pieces_for(values.size_bytes());
  const auto part = [&](std::size_t piece) {
    const segment s = piece_of({0, values.size()}, pieces, piece);
    return std::as_writable_bytes(values.subspan(s.begin, s.count()));
  };
  // Child c adds piece p in step p + 2c: no piece has two writers at once, even with the receives of the next step
  // already posted.
  std::array<std::array<transfer, 32>, 2> receives;
  std::array<transfer, 4> sends;
  const std::size_t lag = children == 0 ? 0 : 2 * (children - 1);
  const auto post = [&](std::size_t step) {
    for (std::size_t c = 0; c < children; ++c) {
      if (step < 2 * c || step - 2 * c >= pieces) continue;
      const std::span<std::byte> into = part(step - 2 * c);
      ex.start_recv(receives[step % 2][c], into.data(), into.size(), rank_at(place | (std::uint32_t{1} << c)),
                    combiner_of<T>(op));
    }
  };
  post(0);
  for (std::size_t step = 0; step < pieces + lag; ++step) {
    post(step + 1);
    for (std::uint32_t c = 0; c < children; ++c) ex.finish(receives[step % 2][c]);
    if (place == 0 || step < lag) continue;
    const std::size_t piece = step - lag;
    transfer& send = sends[piece % sends.size()];
    ex.finish(send);
    ex.start_send(send, part(piece).data(), part(piece).size(), rank_at(place & (place - 1)));
  }
  for (transfer& t : sends) ex.finish(t);
  agreement.finish();
}

}  // namespace hetero::detail
