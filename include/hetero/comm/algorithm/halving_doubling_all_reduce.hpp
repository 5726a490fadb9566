// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hetero/comm/algorithm/reduce.hpp>
#include <hetero/comm/algorithm/ring.hpp>
#include <hetero/comm/operation.hpp>

namespace hetero::detail {

/// In-place all_reduce by recursive halving and doubling: with n a power of two 2 log2 n rounds in which every rank
/// sends 2(n-1)/n of the bytes. Other n fold the ranks beyond the power of two m onto the first ones, which costs the
/// whole vector each way and two rounds more. Each element has one owner, so all ranks hold equal bits. For types of at
/// least four bytes, or two ranks. Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in
/// MPICH, 2005.
/// @throws error invalid_argument when an integer sum overflows; see operation::finish
template <exchange Exchange, class T>
void halving_doubling_all_reduce(Exchange& ex, std::span<T> values, reduce_op op) {
  const std::uint32_t n = ex.world_size();
  if (n == 1) return;
  const std::uint32_t rank = ex.rank();
  const std::uint32_t inner = std::bit_floor(n);
  const auto all = std::as_writable_bytes(values);
  if (rank >= inner) {
    transfer send;
    transfer receive;
    ex.count_round();
    ex.start_send(send, all.data(), all.size(), rank - inner);
    ex.finish(send);
    ex.count_round();
    ex.start_recv(receive, all.data(), all.size(), rank - inner);
    ex.finish(receive);
    return;
  }
  const bool speaks = rank + inner < n;
  if (speaks) {
    transfer receive;
    ex.count_round();
    ex.start_recv(receive, all.data(), all.size(), rank + inner, combiner_of<T>(op));
    ex.finish(receive);
  }

  const auto bytes_of_part = [&](segment s) { return std::as_writable_bytes(values.subspan(s.begin, s.count())); };
  const auto cross = [&](std::uint32_t peer, segment out, segment in, combiner combine) {
    ex.count_round();
    const auto to = bytes_of_part(out);
    const auto from = bytes_of_part(in);
    transfer receive;
    transfer send;
    ex.start_recv(receive, from.data(), from.size(), peer, combine);
    ex.start_send(send, to.data(), to.size(), peer);
    ex.finish(receive);
    ex.finish(send);
  };

  std::vector<segment> given;  // by round: the half that went to the partner
  segment own{0, values.size()};
  for (std::uint32_t distance = inner / 2; distance != 0; distance /= 2) {
    const segment lower = segment_of(own.count(), 2, 0);
    const std::size_t middle = own.begin + lower.end;
    const bool low = (rank & distance) == 0;
    given.push_back(low ? segment{middle, own.end} : segment{own.begin, middle});
    own = low ? segment{own.begin, middle} : segment{middle, own.end};
    cross(rank ^ distance, given.back(), own, combiner_of<T>(op));
  }
  for (std::uint32_t distance = 1; distance < inner; distance *= 2) {
    const segment theirs = given.back();
    given.pop_back();
    cross(rank ^ distance, own, theirs, combiner{});
    own = {std::min(own.begin, theirs.begin), std::max(own.end, theirs.end)};
  }
  if (speaks) {
    transfer send;
    ex.count_round();
    ex.start_send(send, all.data(), all.size(), rank + inner);
    ex.finish(send);
  }
}

}  // namespace hetero::detail
