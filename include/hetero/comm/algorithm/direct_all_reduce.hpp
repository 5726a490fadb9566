// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <hetero/comm/algorithm/all_gather.hpp>
#include <hetero/comm/algorithm/reduce.hpp>
#include <hetero/comm/algorithm/ring.hpp>

namespace hetero::detail {

/// In-place all_reduce for types of one or two bytes: every rank sends each segment to its owner, which adds all of
/// them in 32 bits and rounds once; a ring gathers the results. As many bytes and rounds as ring_all_reduce, which
/// would round (or overflow) at every hop.
/// @throws error invalid_argument when an integer sum does not fit the type; see operation::finish
template <exchange Exchange, class T>
void direct_all_reduce(Exchange& ex, std::span<T> values, reduce_op op) {
  static_assert(sizeof(T) <= 2);
  using wide = accumulator_of<T>;
  const std::uint32_t n = ex.world_size();
  const std::uint32_t rank = ex.rank();
  if (n == 1) return;
  const auto part = [&](std::uint32_t owner) {
    const segment s = segment_of(values.size(), n, owner);
    return values.subspan(s.begin, s.count());
  };
  const std::span<T> mine = part(rank);
  std::vector<wide> sum(mine.size());
  for (std::size_t i = 0; i < mine.size(); ++i) sum[i] = static_cast<wide>(mine[i]);
  const auto scratch = std::make_unique_for_overwrite<T[]>(mine.size());
  for (std::uint32_t k = 1; k < n; ++k) {
    ex.count_round();
    const std::uint32_t to = (rank + k) % n;
    transfer receive;
    transfer send;
    ex.start_recv(receive, reinterpret_cast<std::byte*>(scratch.get()), mine.size_bytes(), (rank + n - k) % n);
    ex.start_send(send, std::as_bytes(part(to)).data(), part(to).size_bytes(), to);
    ex.finish(receive);
    reduce_into(sum.data(), scratch.get(), mine.size(), op);
    ex.finish(send);
  }
  for (std::size_t i = 0; i < mine.size(); ++i) {
    mine[i] = static_cast<T>(sum[i]);
    if constexpr (std::is_integral_v<T>) {
      if (static_cast<wide>(mine[i]) != sum[i]) throw_overflow(dtype_of<T>);
    }
  }
  std::vector<std::size_t> offsets(n + 1);
  for (std::uint32_t r = 0; r < n; ++r) offsets[r + 1] = segment_of(values.size(), n, r).end * sizeof(T);
  ring_all_gather(ex, std::as_writable_bytes(values).data(), offsets);
}

}  // namespace hetero::detail
