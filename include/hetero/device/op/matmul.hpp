// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hetero/core/tensor_view.hpp>

namespace hetero::op {

/// out = a * b (+ bias in every row) or, with `accumulate`, out += a * b.
///
/// out [m, n]; a [m, k], or [k, m] when `transpose_a`; b [k, n], or [n, k] when `transpose_b`. Rows may be strided, the
/// last dimension is dense. `bias` is [n] or empty, and must be empty with `accumulate`.
struct matmul {
  tensor_view out;
  tensor_view a;
  tensor_view b;
  tensor_view bias{};
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
};

/// out[j] = sum over rows of in[i, j] or, with `accumulate`, out[j] += that; in [m, n], out [n].
struct column_sum {
  tensor_view out;
  tensor_view in;
  bool accumulate = false;
};

}  // namespace hetero::op
