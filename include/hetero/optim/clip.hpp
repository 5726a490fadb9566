// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <string>

#include <hetero/core/error.hpp>
#include <hetero/plan/policy.hpp>

namespace hetero {

/// Clipping by the global gradient norm (arXiv 1211.5063). The norm is that of the *mean* gradient over all parameters
/// of the model, each element counted by exactly one owner; the trainer computes it.
struct clip_norm {
  using policy_kind = clipping_policy;
  double max_norm = 0;  ///< 0: no clipping

  /// What the gradient is multiplied by: 1 up to `max_norm`, then what brings its norm to `max_norm`.
  /// @throws error invalid_argument when the norm is not finite, since a clipped NaN is still a NaN, or max_norm is
  /// negative
  [[nodiscard]] double factor(double grad_norm) const {
    require(std::isfinite(max_norm) && max_norm >= 0, errc::invalid_argument, [&] {
      return "the largest gradient norm is " + std::to_string(max_norm) + "; a number from 0 up is needed";
    });
    if (max_norm == 0) return 1;
    require(std::isfinite(grad_norm) && grad_norm >= 0, errc::invalid_argument, [&] {
      return "the gradient norm is " + std::to_string(grad_norm) +
             "; a smaller learning rate, a warm-up or checking the data would help";
    });
    return grad_norm > max_norm ? max_norm / grad_norm : 1;
  }
  friend constexpr bool operator==(const clip_norm&, const clip_norm&) = default;
};

}  // namespace hetero
