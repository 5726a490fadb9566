// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include <hetero/core/config.hpp>
#include <hetero/device/op/update.hpp>

/// @file
/// The arithmetic of one optimizer step for one element. `V` is a float, a double or a pack of lanes of them; `T` is
/// the element type, in which the constants are rounded once.
namespace hetero::functor {

/// One element of op::adamw_update.
template <class T> struct adamw {
  T grad_scale, beta1, beta2, one_minus_beta1, one_minus_beta2, decay, step_size, inverse_correction2, epsilon;

  /// Constants in double first: 1 - beta2 in float would lose three digits.
  explicit adamw(const op::adamw_update& o)
      : grad_scale{static_cast<T>(o.grad_scale)},
        beta1{static_cast<T>(o.beta1)},
        beta2{static_cast<T>(o.beta2)},
        one_minus_beta1{static_cast<T>(1 - o.beta1)},
        one_minus_beta2{static_cast<T>(1 - o.beta2)},
        decay{static_cast<T>(1 - o.learning_rate * o.weight_decay)},
        step_size{static_cast<T>(o.learning_rate / (1 - std::pow(o.beta1, static_cast<double>(o.step))))},
        inverse_correction2{static_cast<T>(1 / (1 - std::pow(o.beta2, static_cast<double>(o.step))))},
        epsilon{static_cast<T>(o.epsilon)} {}

  template <class V> HETERO_HOST_DEVICE void operator()(V& param, const V& grad, V& moment1, V& moment2) const {
    using std::sqrt;
    const V g = grad * V(grad_scale);
    moment1 = moment1 * V(beta1) + g * V(one_minus_beta1);
    moment2 = moment2 * V(beta2) + g * g * V(one_minus_beta2);
    const V denominator = sqrt(moment2 * V(inverse_correction2)) + V(epsilon);
    param = param * V(decay) - moment1 * V(step_size) / denominator;
  }
};

/// One element of op::sgd_update.
template <class T> struct sgd {
  T grad_scale, learning_rate, momentum_factor, decay;
  bool nesterov;

  explicit sgd(const op::sgd_update& o)
      : grad_scale{static_cast<T>(o.grad_scale)},
        learning_rate{static_cast<T>(o.learning_rate)},
        momentum_factor{static_cast<T>(o.momentum_factor)},
        decay{static_cast<T>(1 - o.learning_rate * o.weight_decay)},
        nesterov{o.nesterov} {}

  template <class V> HETERO_HOST_DEVICE void operator()(V& param, const V& grad) const {
    param = param * V(decay) - grad * V(grad_scale) * V(learning_rate);
  }

  template <class V> HETERO_HOST_DEVICE void operator()(V& param, const V& grad, V& momentum) const {
    const V g = grad * V(grad_scale);
    momentum = momentum * V(momentum_factor) + g;
    const V direction = nesterov ? momentum * V(momentum_factor) + g : momentum;
    param = param * V(decay) - direction * V(learning_rate);
  }
};

}  // namespace hetero::functor
