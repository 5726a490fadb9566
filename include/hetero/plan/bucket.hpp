// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <hetero/core/dtype.hpp>
#include <hetero/plan/parameter_layout.hpp>

namespace hetero {

/// A contiguous range of the flat gradient that is merged in one operation.
struct bucket {
  std::size_t begin = 0;        ///< elements of the flat order
  std::size_t end = 0;
  std::size_t ready_layer = 0;  ///< complete once the backward pass of this layer is done
  friend bool operator==(const bucket&, const bucket&) = default;
};

/// Cuts the trainable part into buckets of about `bucket_bytes`, in the order a backward pass completes them. A parameter
/// is never cut; one that is larger than a bucket has its own.
[[nodiscard]] inline std::vector<bucket> make_buckets(const parameter_layout& layout, dtype type,
                                                      std::size_t bucket_bytes) {
  std::vector<bucket> buckets;
  std::size_t end = layout.trainable_elements;
  for (std::size_t i = layout.entries.size(); i-- > 0;) {
    const auto& entry = layout.entries[i];
    if (!entry.spec.trainable) continue;
    const bool opens = buckets.empty() || (buckets.back().end - buckets.back().begin) * size_of(type) >= bucket_bytes;
    if (opens) buckets.push_back({entry.offset, end, entry.first_layer});
    buckets.back().begin = entry.offset;
    buckets.back().ready_layer = std::min(buckets.back().ready_layer, entry.first_layer);
    end = entry.offset;
  }
  // A tied parameter can make an early bucket wait for a late layer; later buckets are never ready before it in order.
  for (std::size_t i = 1; i < buckets.size(); ++i) {
    buckets[i].ready_layer = std::min(buckets[i].ready_layer, buckets[i - 1].ready_layer);
  }
  return buckets;
}

}  // namespace hetero
