// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <hetero/data/concepts.hpp>
#include <hetero/device/any_device.hpp>
#include <hetero/plan/cluster.hpp>

namespace hetero {

/// Times forward and backward passes over real samples at two batch sizes and fits fixed and per-sample seconds. Local; ranks
/// that share a machine should measure at the same time, as they will train. `largest` is the bigger size, at least 1.
template <class Executor, batch_source Source>
[[nodiscard]] compute_model measure_compute(Executor& work, any_device& device, const Source& source,
                                            std::span<const std::uint64_t> ids, std::size_t largest) {
  const std::size_t large = std::clamp<std::size_t>(largest, 1, ids.size());
  const std::size_t half = std::max<std::size_t>(1, large / 2);
  const auto best_of = [&](std::size_t samples) {
    const auto rehearsal = source.load(ids.first(samples));
    double best = std::numeric_limits<double>::infinity();
    constexpr int repeats = 3;  // the first one also warms caches and allocates
    for (int i = 0; i < repeats; ++i) {
      const double before = device.counters().busy_s;
      work.rehearse(rehearsal.view());
      best = std::min(best, device.counters().busy_s - before);
    }
    return best;
  };
  const double large_s = best_of(large);
  compute_model fitted{.per_sample_s = large_s / static_cast<double>(large)};
  if (half == large) return fitted;
  const double slope = (large_s - best_of(half)) / static_cast<double>(large - half);
  const double intercept = large_s - slope * static_cast<double>(large);
  // A line through two noisy points may have a senseless slope or intercept; then the plain ratio is the better model.
  if (slope > 0 && intercept > 0) fitted = {.fixed_s = intercept, .per_sample_s = slope};
  return fitted;
}

}  // namespace hetero
