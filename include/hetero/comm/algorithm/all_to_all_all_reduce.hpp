// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hetero/comm/algorithm/all_gather.hpp>
#include <hetero/comm/algorithm/pairwise_reduce_scatter.hpp>
#include <hetero/comm/algorithm/ring.hpp>

namespace hetero::detail {

/// In-place all_reduce in 2(n-1) rounds: every rank sends each segment straight to its owner, who adds all of them, in
/// 32 bits where the type is narrower, and rounds once; a ring gathers the results. As many bytes as ring_all_reduce.
/// Ma, Mao, Taylor: Theano-MPI, 2016 (the exchange they call ASA).
/// @throws error invalid_argument when an integer sum does not fit the type; see operation::finish
template <exchange Exchange, class T>
void all_to_all_all_reduce(Exchange& ex, std::span<T> values, reduce_op op, std::size_t most_bytes = piece_bytes) {
  const std::uint32_t n = ex.world_size();
  if (n == 1) return;
  std::vector<std::size_t> offsets(n + 1);
  for (std::uint32_t r = 0; r < n; ++r) offsets[r + 1] = segment_of(values.size(), n, r).end;
  const std::span<T> own = values.subspan(offsets[ex.rank()], offsets[ex.rank() + 1] - offsets[ex.rank()]);
  pairwise_reduce_scatter(ex, std::span<const T>{values}, own, std::span<const std::size_t>{offsets}, op);
  for (std::size_t& offset : offsets) offset *= sizeof(T);
  ring_all_gather(ex, std::as_writable_bytes(values).data(), offsets, most_bytes);
}

}  // namespace hetero::detail
