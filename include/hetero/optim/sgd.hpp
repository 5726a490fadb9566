// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/optim/concepts.hpp>
#include <hetero/optim/require_state.hpp>

namespace hetero {

/// Stochastic gradient descent, with momentum and Nesterov's form on request:
/// v = momentum v + g; p = p (1 - rate weight_decay) - rate (nesterov ? g + momentum v : v).
struct sgd {
  using policy_kind = optimizer_policy;
  double learning_rate = 0.01;
  double momentum = 0;
  double weight_decay = 0;  ///< decoupled from the gradient
  bool nesterov = false;    ///< needs momentum

  /// One element of state with momentum, none without.
  [[nodiscard]] std::vector<std::string> state_names() const {
    return momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum"};
  }

  /// The op that updates one range; nothing runs here.
  /// @throws error invalid_argument for options outside their range
  /// @throws error invalid_shape when the state does not match `state_names()` or the range
  [[nodiscard]] device_op update(const update_request& request) const {
    require(momentum >= 0 && momentum < 1 && weight_decay >= 0, errc::invalid_argument, [&] {
      return "sgd has momentum " + std::to_string(momentum) + " and weight decay " + std::to_string(weight_decay) +
             "; momentum in [0, 1) and a decay from 0 up are needed";
    });
    require(!nesterov || momentum > 0, errc::invalid_argument,
            "Nesterov's form looks ahead along the momentum, which is 0; give a momentum such as 0.9");
    detail::require_state(request, momentum == 0 ? 0 : 1, "sgd");
    return op::sgd_update{.param = request.param,
                          .grad = request.grad,
                          .momentum = momentum == 0 ? tensor_view{} : request.state[0],
                          .grad_scale = request.grad_scale,
                          .learning_rate = request.learning_rate,
                          .momentum_factor = momentum,
                          .weight_decay = request.decays ? weight_decay : 0,
                          .nesterov = nesterov};
  }
  friend constexpr bool operator==(const sgd&, const sgd&) = default;
};

static_assert(optimizer<sgd>);

}  // namespace hetero
