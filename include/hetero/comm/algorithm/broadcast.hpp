// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <hetero/comm/algorithm/ring.hpp>

namespace hetero::detail {

/// Binomial tree from `root` in ceil(log2 n) rounds; pieces flow down it one behind the other. n-1 messages per piece.
template <exchange Exchange> void tree_broadcast(Exchange& ex, std::span<std::byte> data, std::uint32_t root) {
  const std::uint32_t n = ex.world_size();
  if (n == 1) return;
  const std::uint32_t place = (ex.rank() + n - root) % n;  // the root is at place 0
  const auto rank_at = [&](std::uint32_t p) { return (p + root) % n; };
  // A place's parent lacks its lowest set bit; its children add one lower bit each.
  const auto depth = static_cast<std::uint32_t>(std::bit_width(n - 1));
  const auto own_bits = place == 0 ? depth : static_cast<std::uint32_t>(std::countr_zero(place));
  for (std::uint32_t round = 0; round < depth; ++round) ex.count_round();

  std::array<transfer, 32> sends;
  const std::size_t pieces = pieces_for(data.size());
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const segment s = piece_of({0, data.size()}, pieces, piece);
    if (place != 0) {
      transfer receive;
      ex.start_recv(receive, data.data() + s.begin, s.count(), rank_at(place & (place - 1)));
      ex.finish(receive);
    }
    for (std::uint32_t bit = own_bits; bit-- > 0;) {
      const std::uint32_t child = place | (std::uint32_t{1} << bit);
      if (child >= n) continue;
      ex.finish(sends[bit]);
      ex.start_send(sends[bit], data.data() + s.begin, s.count(), rank_at(child));
    }
  }
  for (transfer& t : sends) ex.finish(t);
}

}  // namespace hetero::detail
