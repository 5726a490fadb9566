// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include <hetero/comm/algorithm/reduce.hpp>
#include <hetero/comm/operation.hpp>

namespace hetero::detail {

/// Adds up part `rank` of every rank's `in` in `sum`, which holds this rank's own part on entry. Part r is elements
/// [offsets[r], offsets[r+1]), equal on all ranks. In round k each rank sends part rank+k straight to its owner: n-1
/// rounds and messages; a rank sends all of `in` but its own part and receives its own part n-1 times. Elements are
/// added in the order rank, rank-1, rank-2, ...
/// @throws error invalid_argument when an integer sum overflows; see operation::finish
template <exchange Exchange, class Wide, class T>
void pairwise_reduce_parts(Exchange& ex, std::span<const T> in, std::span<Wide> sum,
                           std::span<const std::size_t> offsets, reduce_op op) {
  const std::uint32_t n = ex.world_size();
  const std::uint32_t rank = ex.rank();
  std::array<transfer, 4> sends;  // in flight, so that one slow rank does not hold up what goes to the others
  for (std::uint32_t k = 1; k < n; ++k) {
    ex.count_round();
    const std::uint32_t to = (rank + k) % n;
    const std::span<const T> part = in.subspan(offsets[to], offsets[to + 1] - offsets[to]);
    transfer receive;
    ex.start_recv(receive, std::as_writable_bytes(sum).data(), sum.size() * sizeof(T), (rank + n - k) % n,
                  combiner_of<Wide, T>(op));
    transfer& send = sends[k % sends.size()];
    ex.finish(send);
    ex.start_send(send, std::as_bytes(part).data(), part.size_bytes(), to);
    ex.finish(receive);
  }
  for (transfer& t : sends) ex.finish(t);
}

/// `out` becomes part `rank` of the reduction of `in`; `out` is that part of `in` or lies apart from it. Types of four
/// bytes and more are added in `out`; narrower ones in 32 bits, in scratch, and rounded once.
/// @throws error invalid_argument when an integer sum does not fit the type; see operation::finish
template <exchange Exchange, class T>
void pairwise_reduce_scatter(Exchange& ex, std::span<const T> in, std::span<T> out,
                             std::span<const std::size_t> offsets, reduce_op op) {
  using wide = accumulator_of<T>;
  const std::span<const T> own = in.subspan(offsets[ex.rank()], out.size());
  if constexpr (std::is_same_v<wide, T>) {
    if (out.data() != own.data()) std::copy(own.begin(), own.end(), out.begin());
    pairwise_reduce_parts(ex, in, out, offsets, op);
  } else {
    const auto sum = std::make_unique_for_overwrite<wide[]>(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) sum[i] = static_cast<wide>(own[i]);
    pairwise_reduce_parts(ex, in, std::span{sum.get(), out.size()}, offsets, op);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<T>(sum[i]);
      if constexpr (std::is_integral_v<T>) {
        if (static_cast<wide>(out[i]) != sum[i]) throw_overflow(dtype_of<T>);
      }
    }
  }
}

}  // namespace hetero::detail
