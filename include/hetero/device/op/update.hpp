// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <hetero/core/tensor_view.hpp>

/// @file
/// Optimizer updates over matching element ranges. `grad` holds the gradient of the *sum* of losses; `grad_scale` is the
/// one division by the global weight (times the clipping factor), fused into the update.
namespace hetero::op {

/// Stochastic gradient descent with momentum (Nesterov's form on request) and decoupled weight decay.
struct sgd_update {
  tensor_view param;
  tensor_view grad;
  tensor_view momentum{};  ///< empty when momentum_factor is 0
  double grad_scale = 1;
  double learning_rate = 0;
  double momentum_factor = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

/// AdamW with bias correction (arXiv 1711.05101); `step` counts from 1.
struct adamw_update {
  tensor_view param;
  tensor_view grad;
  tensor_view moment1;
  tensor_view moment2;
  double grad_scale = 1;
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  std::uint64_t step = 1;
};

}  // namespace hetero::op
