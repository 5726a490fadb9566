// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include <hetero/core/error.hpp>

/// @file
/// What unequal links allow: bounds and shares of an all_reduce over full-duplex ports of different rates behind a
/// switch that does not block.
namespace hetero {

/// Seconds below which no all_reduce of `bytes` can end, rank i sending and receiving at most bytes_per_second[i]:
/// max(S / min B, 2(n-1) S / sum B). A rank must send its vector and receive the result; reducing n vectors and
/// spreading the result moves 2(n-1) S in all.
/// @throws error invalid_argument unless every rate is above zero
[[nodiscard]] inline double all_reduce_bound(std::span<const double> bytes_per_second, double bytes) {
  const std::size_t n = bytes_per_second.size();
  for (const double b : bytes_per_second) {
    require(b > 0 && std::isfinite(b), errc::invalid_argument,
            "a bandwidth must be a number above zero; leave a rank out of the group instead");
  }
  if (n < 2) return 0;
  const double slowest = *std::min_element(bytes_per_second.begin(), bytes_per_second.end());
  const double sum = std::accumulate(bytes_per_second.begin(), bytes_per_second.end(), 0.0);
  return std::max(bytes / slowest, 2.0 * static_cast<double>(n - 1) * bytes / sum);
}

/// Seconds of a ring over the same ports: every rank sends 2(n-1)/n of the bytes, the slowest decides.
[[nodiscard]] inline double ring_seconds(std::span<const double> bytes_per_second, double bytes) {
  const auto n = static_cast<double>(bytes_per_second.size());
  if (n < 2) return 0;
  return 2 * (n - 1) / n * bytes / *std::min_element(bytes_per_second.begin(), bytes_per_second.end());
}

/// The part of the vector that each rank should own so that a direct reduce-scatter and all-gather reach the bound:
/// rank i then sends (1 + (n-2) x_i) S. Adds up to 1; a slow rank may own nothing. Equal shares for fewer than three
/// ranks, where every split costs the same.
/// @throws error invalid_argument unless every rate is above zero
[[nodiscard]] inline std::vector<double> all_reduce_shares(std::span<const double> bytes_per_second) {
  const std::size_t n = bytes_per_second.size();
  const double bound = all_reduce_bound(bytes_per_second, 1);
  if (n < 3) return std::vector<double>(n, n == 0 ? 0 : 1.0 / static_cast<double>(n));
  std::vector<double> shares;
  double sum = 0;
  for (const double b : bytes_per_second) {
    shares.push_back(std::max(0.0, (bound * b - 1) / static_cast<double>(n - 2)));
    sum += shares.back();
  }
  for (double& x : shares) x /= sum;  // where the slowest port decides, the others have room to spare
  return shares;
}

}  // namespace hetero
