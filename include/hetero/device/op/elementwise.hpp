// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <hetero/core/tensor_view.hpp>

/// @file
/// Ops that touch each element on its own. All views of one op have equal counts; they are contiguous unless said otherwise.
namespace hetero::op {

/// out[i] = value
struct fill {
  tensor_view out;
  double value = 0;
};

/// out[i] = element type of out(in[i]); the one op whose views may differ in type.
struct convert {
  tensor_view out;
  tensor_view in;
};

/// into[i] += factor * from[i]
struct accumulate {
  tensor_view into;
  tensor_view from;
  double factor = 1;
};

/// values[i] *= factor
struct scale {
  tensor_view values;
  double factor = 1;
};

/// out[i] = a[i] + b[i]; out may be a or b.
struct add {
  tensor_view out;
  tensor_view a;
  tensor_view b;
};

/// out = x * Phi(x) by the tanh form of Hendrycks and Gimpel (arXiv 1606.08415), as GPT-2 uses it.
struct gelu_forward {
  tensor_view out;
  tensor_view in;
};

/// grad_in = grad_out * d gelu(in); grad_in may be grad_out.
struct gelu_backward {
  tensor_view grad_in;
  tensor_view grad_out;
  tensor_view in;
};

/// out = max(in, 0); out may be in.
struct relu_forward {
  tensor_view out;
  tensor_view in;
};

/// grad_in = out > 0 ? grad_out : 0; grad_in may be grad_out.
struct relu_backward {
  tensor_view grad_in;
  tensor_view grad_out;
  tensor_view out;
};

/// Drops elements with `probability` and scales the rest by 1 / (1 - probability). out may be in; the backward pass is the same op on gradients.
///
/// The mask of an element depends on (seed, layer, step, global sample id, its index within the sample) alone, so any
/// split of the batch and any repeat of the pass gives the same mask.
struct dropout {
  tensor_view out;
  tensor_view in;          ///< [samples, elements per sample]
  tensor_view sample_ids;  ///< i64 [samples], host memory
  double probability = 0;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t layer = 0;
};

}  // namespace hetero::op
