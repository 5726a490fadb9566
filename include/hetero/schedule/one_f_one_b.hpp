// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <hetero/schedule/concepts.hpp>
#include <hetero/schedule/stage_order.hpp>

namespace hetero {

/// One forward, one backward (PipeDream-Flush, arXiv 2006.09503): each stage warms up with as many forwards as there
/// are stages behind it, then alternates, then drains. A stage keeps the activations of at most `num_stages - stage`
/// micro-batches. With one stage it is gradient accumulation, one micro-batch at a time.
struct one_f_one_b_scheduler {
  using policy_kind = scheduler_policy;
  std::uint32_t micro_batches = 1;  ///< per replica and step; the trainer hands it to the partitioner

  /// The program of `rank` for one step; the micro-batch counts are those of the plan. Pure.
  /// @throws error plan_does_not_fit when the rank does not exist or is idle but has samples
  /// @throws error unsupported when the rank holds two stages of one replica
  [[nodiscard]] program actions(const plan& p, rank_id rank) const {
    return detail::staged_program(p, rank, "one_f_one_b_scheduler",
                                  [](std::uint32_t stage, std::uint32_t num_stages, std::uint32_t count) {
                                    std::vector<detail::stage_work> order;
                                    const std::uint32_t warm_up = std::min(num_stages - stage - 1, count);
                                    std::uint32_t forwards = 0;
                                    while (forwards < warm_up) order.push_back({false, forwards++});
                                    for (std::uint32_t m = 0; m < count; ++m) {
                                      if (forwards < count) order.push_back({false, forwards++});
                                      order.push_back({true, m});
                                    }
                                    return order;
                                  });
  }
  friend constexpr bool operator==(const one_f_one_b_scheduler&, const one_f_one_b_scheduler&) = default;
};

static_assert(scheduler<one_f_one_b_scheduler>);

}  // namespace hetero
