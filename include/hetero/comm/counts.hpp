// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/core/hash.hpp>

/// @file
/// The counts per rank of collectives that end in `_v`: where the parts lie, and how messages carry them for
/// comparison.
namespace hetero::detail {

/// Offset of each rank's part and, at the end, the total; in elements, or in bytes for a `size` other than 1.
/// @throws error invalid_argument when the total leaves std::size_t
[[nodiscard]] inline std::vector<std::size_t> offsets_of(std::span<const std::size_t> counts, std::size_t size = 1) {
  std::vector<std::size_t> offsets(counts.size() + 1);
  for (std::size_t r = 0; r < counts.size(); ++r) {
    const std::size_t room = std::numeric_limits<std::size_t>::max() / 2 - offsets[r];
    require(counts[r] <= room / size, errc::invalid_argument, [&] {
      return "the count of rank " + std::to_string(r) + ", " + std::to_string(counts[r]) +
             ", takes the total beyond what memory holds; a negative number ends up here";
    });
    offsets[r + 1] = offsets[r] + counts[r] * size;
  }
  return offsets;
}

/// Parts of one size.
[[nodiscard]] inline std::vector<std::size_t> equal_offsets(std::size_t ranks, std::size_t part) {
  std::vector<std::size_t> offsets(ranks + 1);
  for (std::size_t r = 0; r <= ranks; ++r) offsets[r] = r * part;
  return offsets;
}

/// A hash of the counts in the upper bits of a fingerprint's `detail`, above `low_bits`; never zero there, which means
/// equal parts. `low` keeps the reduce_op or the root.
[[nodiscard]] inline std::uint32_t counts_detail(std::span<const std::size_t> counts, std::uint32_t low,
                                                 unsigned low_bits) {
  stable_hash hash;
  for (const std::size_t count : counts) hash.add(std::uint64_t{count});
  const std::uint64_t folded = hash.value() ^ (hash.value() >> 32U);
  const std::uint64_t mask = (std::uint64_t{1} << low_bits) - 1;
  std::uint64_t high = folded & 0xffff'ffffU & ~mask;
  if (high == 0) high = mask + 1;
  return static_cast<std::uint32_t>(high | (low & mask));
}

/// "3, 0, 4", or the first sixteen of more.
[[nodiscard]] inline std::string list_of(std::span<const std::size_t> counts) {
  std::string text;
  for (std::size_t r = 0; r < counts.size() && r < 16; ++r) text += (r == 0 ? "" : ", ") + std::to_string(counts[r]);
  return counts.size() > 16 ? text + ", ..." : text;
}

}  // namespace hetero::detail
