// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hetero/core/tensor_view.hpp>

/// @file
/// Normalisation over the last dimension. `in`, `out` and gradients are [rows, width]; gain and bias are [width].
namespace hetero::op {

/// out = (in - mean) / sqrt(variance + epsilon) * gain + bias (arXiv 1607.06450).
struct layer_norm_forward {
  tensor_view out;
  tensor_view mean;  ///< [rows], written
  tensor_view rstd;  ///< [rows], written: 1 / sqrt(variance + epsilon)
  tensor_view in;
  tensor_view gain;
  tensor_view bias{};  ///< may be empty
  double epsilon = 1e-5;
};

/// Gradient with respect to `in`; grad_in must not be grad_out.
struct layer_norm_backward_input {
  tensor_view grad_in;
  tensor_view grad_out;
  tensor_view in;
  tensor_view mean;
  tensor_view rstd;
  tensor_view gain;
};

/// Gradients with respect to gain and bias, written or, with `accumulate`, added.
struct layer_norm_backward_weight {
  tensor_view grad_gain;
  tensor_view grad_bias;  ///< may be empty
  tensor_view grad_out;
  tensor_view in;
  tensor_view mean;
  tensor_view rstd;
  bool accumulate = false;
};

/// out = in / sqrt(mean of squares + epsilon) * gain (arXiv 1910.07467).
struct rms_norm_forward {
  tensor_view out;
  tensor_view rstd;  ///< [rows], written
  tensor_view in;
  tensor_view gain;
  double epsilon = 1e-6;
};

struct rms_norm_backward_input {
  tensor_view grad_in;
  tensor_view grad_out;
  tensor_view in;
  tensor_view rstd;
  tensor_view gain;
};

struct rms_norm_backward_weight {
  tensor_view grad_gain;
  tensor_view grad_out;
  tensor_view in;
  tensor_view rstd;
  bool accumulate = false;
};

}  // namespace hetero::op
