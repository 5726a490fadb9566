// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace hetero {

/// How an `all_reduce` joins the elements of two ranks. There is no average: sums carry their weights (law 1).
/// `max` and `min` keep a NaN from any rank.
enum class reduce_op : std::uint8_t { sum, max, min };

/// "sum", "max", "min".
[[nodiscard]] constexpr const char* to_string(reduce_op op) noexcept {
  constexpr const char* names[] = {"sum", "max", "min"};
  return names[static_cast<std::size_t>(op)];
}

}  // namespace hetero
