// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hetero/core/tensor_view.hpp>

namespace hetero::op {

/// out[i] = table[ids[i]] + positions[i mod context]; ids i32 [rows], table [vocabulary, width], positions
/// [context, width] or empty, out [rows, width]. An id outside the table is an error, never a read outside it.
struct embedding_forward {
  tensor_view out;
  tensor_view ids;
  tensor_view table;
  tensor_view positions{};
};

/// grad_table[ids[i]] += grad_out[i] and grad_positions[i mod context] += grad_out[i], in row order so that the result
/// does not depend on threads. Without `accumulate` the tables are cleared first.
struct embedding_backward {
  tensor_view grad_table;
  tensor_view grad_positions{};
  tensor_view grad_out;
  tensor_view ids;
  bool accumulate_table = false;
  bool accumulate_positions = false;
};

}  // namespace hetero::op
