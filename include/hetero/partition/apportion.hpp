// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <hetero/core/error.hpp>

namespace hetero {

/// Divides `total` into whole numbers in the ratio of `weights` by largest remainder: each part is its exact quota
/// rounded down or up, and they add up to `total`. Equal remainders go to the lower index. Local, pure.
/// @throws error invalid_argument when a weight is negative or not finite, or none is positive
[[nodiscard]] inline std::vector<std::size_t> apportion(std::size_t total, std::span<const double> weights) {
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    require(std::isfinite(weights[i]) && weights[i] >= 0, errc::invalid_argument, [&] {
      return "weight " + std::to_string(i) + " is " + std::to_string(weights[i]) +
             "; a ratio needs finite numbers from 0 up";
    });
    sum += weights[i];
  }
  require(sum > 0 && std::isfinite(sum), errc::invalid_argument, [&] {
    return "the " + std::to_string(weights.size()) + " weights add up to " + std::to_string(sum) +
           "; a ratio needs at least one positive weight and a finite sum";
  });

  std::vector<std::size_t> parts(weights.size());
  std::vector<double> remainders(weights.size());
  std::size_t given = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double ratio = weights[i] / sum;
    parts[i] = std::min(static_cast<std::size_t>(static_cast<double>(total) * ratio), total - given);
    // std::fma by name: a compiler that fuses on its own does so on some machines only, and ranks must agree.
    remainders[i] = weights[i] > 0 ? std::fma(static_cast<double>(total), ratio, -static_cast<double>(parts[i]))
                                   : -std::numeric_limits<double>::infinity();
    given += parts[i];
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  for (std::size_t i = 0; given < total; ++given, ++i) ++parts[order[i % order.size()]];
  return parts;
}

}  // namespace hetero
