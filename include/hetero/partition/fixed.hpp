// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/partition/apportion.hpp>
#include <hetero/partition/concepts.hpp>

namespace hetero {

/// Shares given by hand or recorded in an earlier run, one per rank. They must fit exactly; nothing is adjusted.
struct fixed_splitter {
  std::vector<std::size_t> shares{};

  /// @throws error plan_does_not_fit when the shares are not one per rank or do not add up to `samples`
  [[nodiscard]] std::vector<std::size_t> split(std::size_t samples, const cluster& machines) const {
    require(shares.size() == machines.ranks.size(), errc::plan_does_not_fit, [&] {
      return std::to_string(shares.size()) + " fixed shares were given for " + std::to_string(machines.ranks.size()) +
             " ranks; give one per rank (0 leaves a rank idle)";
    });
    const std::size_t sum = std::accumulate(shares.begin(), shares.end(), std::size_t{0});
    require(sum == samples, errc::plan_does_not_fit, [&] {
      return "the fixed shares add up to " + std::to_string(sum) + ", the global batch is " + std::to_string(samples);
    });
    return shares;
  }
  friend bool operator==(const fixed_splitter&, const fixed_splitter&) = default;
};

/// A ratio given by hand, repeated over the ranks when it is shorter: {5, 3, 1} over four ranks is 5:3:1:5.
struct ratio_splitter {
  std::vector<double> ratio{1.0};

  /// @throws error invalid_argument when the ratio is empty, negative, not finite, or 0 for every rank
  [[nodiscard]] std::vector<std::size_t> split(std::size_t samples, const cluster& machines) const {
    require(!ratio.empty(), errc::invalid_argument, "a ratio of no numbers divides nothing; {1} is an even split");
    std::vector<double> weights;
    for (std::size_t i = 0; i < machines.ranks.size(); ++i) weights.push_back(ratio[i % ratio.size()]);
    return apportion(samples, weights);
  }
  friend bool operator==(const ratio_splitter&, const ratio_splitter&) = default;
};

static_assert(batch_splitter<fixed_splitter> && batch_splitter<ratio_splitter>);

}  // namespace hetero
