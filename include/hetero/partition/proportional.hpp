// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/partition/apportion.hpp>
#include <hetero/partition/concepts.hpp>
#include <hetero/partition/finish_time.hpp>

namespace hetero {

/// Samples in the ratio of speeds, 1 / seconds per sample, by largest remainder. Blind to fixed costs and to the
/// network; `optperf_splitter` is not.
struct proportional_splitter {
  /// @throws error invalid_argument when a rank has no usable measurement
  /// @throws error plan_does_not_fit when no rank can take part
  [[nodiscard]] std::vector<std::size_t> split(std::size_t samples, const cluster& machines) const {
    require_measured(machines);
    std::vector<double> speeds;
    bool anyone = false;
    for (const auto& rank : machines.ranks) {
      speeds.push_back(1 / rank.compute.per_sample_s);
      anyone = anyone || speeds.back() > 0;
    }
    require(anyone, errc::plan_does_not_fit, "no rank of the cluster can compute: all are infinitely slow");
    return apportion(samples, speeds);
  }
  friend constexpr bool operator==(const proportional_splitter&, const proportional_splitter&) = default;
};

static_assert(batch_splitter<proportional_splitter>);

}  // namespace hetero
