// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

/// @file
/// What an all_reduce over islands takes: pure functions of what its links must carry, to choose by and to check
/// against.
namespace hetero {

/// How fast ranks reach each other; bandwidths hold for each direction.
struct island_links {
  double between_bytes_per_second = 0;  ///< of the link of each island to the others
  double inside_bytes_per_second = std::numeric_limits<double>::infinity();  ///< of each rank within its island
  double between_latency_s = 0;
  double inside_latency_s = 0;
};

/// Times that the neighbours of a ring, in the order of `island_of`, lie on different islands, counted for the island
/// that is left or entered most often. A good order has 1, a bad one as many as the smaller half has ranks.
[[nodiscard]] inline std::size_t ring_crossings(std::span<const std::uint32_t> island_of) {
  if (island_of.empty()) return 0;
  std::vector<std::size_t> leaves(*std::max_element(island_of.begin(), island_of.end()) + std::size_t{1});
  for (std::size_t i = 0; i < island_of.size(); ++i) {
    if (island_of[i] != island_of[(i + 1) % island_of.size()]) ++leaves[island_of[i]];  // a ring enters as often
  }
  return *std::max_element(leaves.begin(), leaves.end());
}

/// Bytes that the busiest link between islands carries each way in a flat ring of n ranks: crossings x 2(n-1)/n S.
[[nodiscard]] inline double flat_ring_bytes(double bytes, std::span<const std::uint32_t> island_of) {
  const auto n = static_cast<double>(island_of.size());
  return static_cast<double>(ring_crossings(island_of)) * 2 * (n - 1) / n * bytes;
}

/// Bytes that the link of an island carries each way between k leaders: 2(k-1)/k S.
[[nodiscard]] inline double hierarchical_bytes(double bytes, std::size_t islands) {
  const auto k = static_cast<double>(islands);
  return 2 * (k - 1) / k * bytes;
}

/// Seconds of an all_reduce of `bytes` along a ring whose i-th rank lives on island `island_of[i]`.
[[nodiscard]] inline double flat_ring_seconds(double bytes, std::span<const std::uint32_t> island_of,
                                              const island_links& links) {
  const auto n = static_cast<double>(island_of.size());
  const bool crosses = ring_crossings(island_of) != 0;
  const double inside = 2 * (n - 1) / n * bytes / links.inside_bytes_per_second;
  const double between = crosses ? flat_ring_bytes(bytes, island_of) / links.between_bytes_per_second : 0;
  return std::max(inside, between) + 2 * (n - 1) * (crosses ? links.between_latency_s : links.inside_latency_s);
}

/// Seconds of a hierarchical all_reduce over `islands` islands of at most `island_size` ranks, in pieces of
/// `piece_bytes`: the slower of its two stages, and one piece of the other to fill the pipe.
[[nodiscard]] inline double hierarchical_seconds(double bytes, std::size_t islands, std::size_t island_size,
                                                 const island_links& links,
                                                 double piece_bytes = static_cast<double>(std::size_t{1} << 20U)) {
  const double pieces = std::max(1.0, bytes / piece_bytes);
  const auto hops = static_cast<double>(std::bit_width(std::max<std::size_t>(island_size, 1) - 1));
  // A leader takes the bytes from each of its children of the tree, and gives them back.
  const double inside = 2 * hops * (bytes / links.inside_bytes_per_second + pieces * links.inside_latency_s);
  if (islands < 2) return inside;
  const double between = hierarchical_bytes(bytes, islands) / links.between_bytes_per_second +
                         pieces * 2 * static_cast<double>(islands - 1) * links.between_latency_s;
  return std::max(inside, between) + std::min(inside, between) / pieces;
}

}  // namespace hetero
