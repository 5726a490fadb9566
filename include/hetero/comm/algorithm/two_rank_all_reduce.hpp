// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <hetero/comm/algorithm/doubling_all_reduce.hpp>
#include <hetero/comm/algorithm/ring_all_reduce.hpp>

namespace hetero::detail {

/// Up to here two ranks exchange whole vectors: one round instead of two is worth more than half the additions.
inline constexpr std::size_t crossed_bytes = std::size_t{16} << 10U;

/// In-place all_reduce of two ranks. Small vectors cross whole in one round; of larger ones each rank sends the half
/// that the other adds up, and its own half back piece by piece while the rest is still coming. Every rank sends the
/// bytes of the vector once. Any type: a single addition rounds once. Both ranks end with equal bits.
/// @throws error invalid_argument when an integer sum overflows; see operation::finish
template <exchange Exchange, class T>
void two_rank_all_reduce(Exchange& ex, std::span<T> values, reduce_op op, std::size_t most_bytes = piece_bytes) {
  if (values.size_bytes() > crossed_bytes) return ring_all_reduce(ex, values, op, most_bytes);
  send_copy<T> copy{values.size()};
  cross_reduce(ex, values, op, 1 - ex.rank(), copy);
}

}  // namespace hetero::detail
