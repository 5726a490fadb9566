// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hetero/core/tensor_view.hpp>

/// @file
/// Reductions of one tensor to a scalar, and the leaves of reproducible sums (core/fixed_point.hpp).
namespace hetero::op {

/// result f64 [1] += sum of squares, accumulated in double with a fixed order for one thread count.
struct sum_squares {
  tensor_view result;
  tensor_view in;
};

/// result f64 [1] = max(result, max |in|); NaN wins.
struct max_abs {
  tensor_view result;
  tensor_view in;
};

/// into i64 [n] += round(in * 2^exponent)
struct fixed_point_accumulate {
  tensor_view into;
  tensor_view in;
  int exponent = 0;
};

/// out = in i64 [n] * 2^-exponent, rounded once to the type of out.
struct fixed_point_decode {
  tensor_view out;
  tensor_view in;
  int exponent = 0;
};

}  // namespace hetero::op
