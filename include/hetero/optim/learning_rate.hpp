// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <numbers>
#include <string>
#include <variant>

#include <hetero/core/error.hpp>
#include <hetero/plan/policy.hpp>

/// @file
/// Learning-rate schedules: pure functions of the step, so a resumed run needs no state of theirs.
namespace hetero {

/// A schedule: the factor on the base rate at a step; steps count from 1.
template <class S>
concept learning_rate_rule = std::same_as<typename S::policy_kind, learning_rate_policy> &&
    requires(const S& s, std::uint64_t step) {
  { s.at(step) } -> std::same_as<double>;
};

namespace detail {

/// Rises to 1 at step `warm_up_steps`, in equal steps that start above 0.
[[nodiscard]] constexpr double warm_up_factor(std::uint64_t step, std::uint64_t warm_up_steps) noexcept {
  return static_cast<double>(step) / static_cast<double>(warm_up_steps);
}

/// The way from the end of the warm-up to `total_steps`, in [0, 1].
/// @throws error invalid_argument when the total is not beyond the warm-up
[[nodiscard]] constexpr double decay_progress(std::uint64_t step, std::uint64_t warm_up_steps,
                                              std::uint64_t total_steps) {
  require(total_steps > warm_up_steps, errc::invalid_argument, [&] {
    return "a schedule of " + std::to_string(total_steps) + " steps cannot warm up for " +
           std::to_string(warm_up_steps) + "; total_steps must be larger";
  });
  if (step >= total_steps) return 1;
  return static_cast<double>(step - warm_up_steps) / static_cast<double>(total_steps - warm_up_steps);
}

}  // namespace detail

/// The base rate, after an optional warm-up.
struct constant_rate {
  using policy_kind = learning_rate_policy;
  std::uint64_t warm_up_steps = 0;

  [[nodiscard]] constexpr double at(std::uint64_t step) const {
    return step < warm_up_steps ? detail::warm_up_factor(step, warm_up_steps) : 1.0;
  }
  friend constexpr bool operator==(const constant_rate&, const constant_rate&) = default;
};

/// Half a cosine from the base rate at the end of the warm-up to `final_factor` of it at `total_steps`, and so for ever
/// (arXiv 1608.03983 without restarts).
struct cosine_rate {
  using policy_kind = learning_rate_policy;
  std::uint64_t warm_up_steps = 0;
  std::uint64_t total_steps = 1;
  double final_factor = 0.1;

  /// @throws error invalid_argument when the total is not beyond the warm-up
  [[nodiscard]] double at(std::uint64_t step) const {
    const double progress =
        detail::decay_progress(step < warm_up_steps ? warm_up_steps : step, warm_up_steps, total_steps);
    if (step < warm_up_steps) return detail::warm_up_factor(step, warm_up_steps);
    return final_factor + (1 - final_factor) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
  }
  friend constexpr bool operator==(const cosine_rate&, const cosine_rate&) = default;
};

/// A straight line from the base rate at the end of the warm-up to `final_factor` of it at `total_steps`, and so for
/// ever.
struct linear_rate {
  using policy_kind = learning_rate_policy;
  std::uint64_t warm_up_steps = 0;
  std::uint64_t total_steps = 1;
  double final_factor = 0;

  /// @throws error invalid_argument when the total is not beyond the warm-up
  [[nodiscard]] constexpr double at(std::uint64_t step) const {
    const double progress =
        detail::decay_progress(step < warm_up_steps ? warm_up_steps : step, warm_up_steps, total_steps);
    if (step < warm_up_steps) return detail::warm_up_factor(step, warm_up_steps);
    return 1 - (1 - final_factor) * progress;
  }
  friend constexpr bool operator==(const linear_rate&, const linear_rate&) = default;
};

/// Any of the schedules above, for a program that chooses at run time.
struct learning_rate_schedule {
  using policy_kind = learning_rate_policy;
  std::variant<constant_rate, cosine_rate, linear_rate> rule{};

  /// @throws error as the schedule inside
  [[nodiscard]] double at(std::uint64_t step) const {
    return std::visit([&](const auto& chosen) { return chosen.at(step); }, rule);
  }
  friend constexpr bool operator==(const learning_rate_schedule&, const learning_rate_schedule&) = default;
};

static_assert(learning_rate_rule<constant_rate> && learning_rate_rule<cosine_rate> && learning_rate_rule<linear_rate> &&
              learning_rate_rule<learning_rate_schedule>);

}  // namespace hetero
