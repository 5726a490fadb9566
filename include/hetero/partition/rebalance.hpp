// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <hetero/core/error.hpp>
#include <hetero/partition/concepts.hpp>
#include <hetero/partition/finish_time.hpp>
#include <hetero/partition/fit.hpp>

namespace hetero {

/// Decides during a run when new shares are worth a change. Changing them never changes the maths, only the time.
///
/// Every rank must decide from the same estimate (the trainer exchanges them), and then decides the same.
struct rebalancer {
  using policy_kind = rebalancing_policy;
  double minimum_gain = 0.02;  ///< predicted part of the step time a new plan must save
  std::uint32_t window = 16;   ///< steps between slow corrections of a rank's speed
  std::uint32_t confirm = 2;   ///< steps that must agree before a jump of the speed is believed

  /// The estimator of one rank's speed with these options.
  /// @throws error invalid_argument when window or confirm is 0
  [[nodiscard]] compute_model_fitter fitter(const compute_model& prior) const {
    return compute_model_fitter{prior, {.confirm = confirm, .window = window}};
  }

  /// The plan to change to, one epoch on; nothing when it would save less than `minimum_gain`. Pure.
  /// @throws error unsupported for a plan with pipeline stages, whose time this does not predict
  /// @throws error as the partitioner does when no plan fits any more
  template <partitioner P>
  [[nodiscard]] std::optional<plan> propose(const P& policy, const plan& current, const model_profile& model,
                                            const cluster& estimate, const workload& work) const {
    for (const auto& r : current.replicas) {
      require(r.stages.size() == 1, errc::unsupported, [&] {
        return "a plan with " + std::to_string(r.stages.size()) +
               " stages per replica cannot be rebalanced by shares; switch the rebalancer off for it";
      });
    }
    plan next = policy.partition(model, estimate, work);
    const double before = predicted_step_s(current, estimate);
    const double after = predicted_step_s(next, estimate);
    if (!(after < before * (1 - minimum_gain))) return std::nullopt;
    next.epoch = current.epoch + 1;
    return next;
  }

  friend constexpr bool operator==(const rebalancer&, const rebalancer&) = default;
};

}  // namespace hetero
