// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace hetero::detail {

/// The largest count in [0, limit] for which `fits` holds, given that it holds for 0 and, once false, stays false.
template <class Predicate> [[nodiscard]] std::size_t largest_count(std::size_t limit, Predicate fits) {
  std::size_t low = 0;
  while (low < limit) {
    const std::size_t middle = low + (limit - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      limit = middle - 1;
    }
  }
  return low;
}

}  // namespace hetero::detail
