// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include <hetero/comm/algorithm/ring.hpp>

namespace hetero::detail {

/// Ring all_gather in n-1 rounds: rank r's part is bytes [offsets[r], offsets[r+1]) of `data`, in place on entry; on
/// return every part is. `offsets` has n+1 entries, equal on all ranks.
template <exchange Exchange>
void ring_all_gather(Exchange& ex, std::byte* data, std::span<const std::size_t> offsets,
                     std::size_t most_bytes = piece_bytes) {
  const std::size_t n = ex.world_size();
  if (n == 1) return;
  std::size_t longest = 0;
  for (std::size_t r = 0; r < n; ++r) longest = std::max(longest, offsets[r + 1] - offsets[r]);
  const std::size_t pieces = pieces_for(longest, most_bytes);
  ring_pipeline(
      ex, n - 1, pieces,
      [&](std::size_t r, std::size_t piece) {
        const segment s = piece_of({offsets[r], offsets[r + 1]}, pieces, piece);
        return std::pair{data + s.begin, s.count()};
      },
      [](std::size_t) { return combiner{}; });
}

}  // namespace hetero::detail
