// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <hetero/schedule/concepts.hpp>
#include <hetero/schedule/stage_order.hpp>

namespace hetero {

/// All forwards, then all backwards, the last micro-batch first (GPipe, arXiv 1811.06965). Simple, and keeps the
/// activations of every micro-batch of the step.
struct gpipe_scheduler {
  using policy_kind = scheduler_policy;
  std::uint32_t micro_batches = 1;  ///< per replica and step; the trainer hands it to the partitioner

  /// The program of `rank` for one step; the micro-batch counts are those of the plan. Pure.
  /// @throws error plan_does_not_fit when the rank does not exist or is idle but has samples
  /// @throws error unsupported when the rank holds two stages of one replica
  [[nodiscard]] program actions(const plan& p, rank_id rank) const {
    return detail::staged_program(p, rank, "gpipe_scheduler", [](std::uint32_t, std::uint32_t, std::uint32_t count) {
      std::vector<detail::stage_work> order;
      for (std::uint32_t m = 0; m < count; ++m) order.push_back({false, m});
      for (std::uint32_t m = count; m-- > 0;) order.push_back({true, m});
      return order;
    });
  }
  friend constexpr bool operator==(const gpipe_scheduler&, const gpipe_scheduler&) = default;
};

static_assert(scheduler<gpipe_scheduler>);

}  // namespace hetero
