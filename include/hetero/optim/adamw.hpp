// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/optim/concepts.hpp>
#include <hetero/optim/require_state.hpp>

namespace hetero {

/// Adam with decoupled weight decay (arXiv 1711.05101) and bias correction. The defaults are the customary ones.
struct adamw {
  using policy_kind = optimizer_policy;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  ///< of parameters that decay: matrices usually, gains and biases not

  [[nodiscard]] std::vector<std::string> state_names() const { return {"moment1", "moment2"}; }

  /// The op that updates one range; nothing runs here.
  /// @throws error invalid_argument for options outside their range
  /// @throws error invalid_shape when the state does not match `state_names()` or the range
  [[nodiscard]] device_op update(const update_request& request) const {
    require(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1 && epsilon > 0 && weight_decay >= 0,
            errc::invalid_argument, [&] {
              return "adamw has beta1 " + std::to_string(beta1) + ", beta2 " + std::to_string(beta2) + ", epsilon " +
                     std::to_string(epsilon) + ", weight decay " + std::to_string(weight_decay) +
                     "; betas in [0, 1), a positive epsilon and a decay from 0 up are needed";
            });
    detail::require_state(request, 2, "adamw");
    return op::adamw_update{.param = request.param,
                            .grad = request.grad,
                            .moment1 = request.state[0],
                            .moment2 = request.state[1],
                            .grad_scale = request.grad_scale,
                            .learning_rate = request.learning_rate,
                            .beta1 = beta1,
                            .beta2 = beta2,
                            .epsilon = epsilon,
                            .weight_decay = request.decays ? weight_decay : 0,
                            .step = request.step};
  }
  friend constexpr bool operator==(const adamw&, const adamw&) = default;
};

static_assert(optimizer<adamw>);

}  // namespace hetero
