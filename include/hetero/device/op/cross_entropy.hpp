// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <hetero/core/tensor_view.hpp>

namespace hetero::op {

/// Softmax cross-entropy summed over the rows whose target is not ignored.
///
/// logits [rows, classes]; targets i32 [rows]; weights f32 [samples] or empty (all 1), where row i belongs to sample
/// i / (rows / samples). result f64 [2] receives += {sum of weighted losses, sum of counted weights}. When `grad_logits`
/// is not empty it receives the gradient of the *sum* (ignored rows give zeros); it may be `logits` itself. A target
/// that is neither ignored nor a class is an error.
struct cross_entropy {
  tensor_view result;
  tensor_view grad_logits{};
  tensor_view logits;
  tensor_view targets;
  tensor_view weights{};
  std::int32_t ignored_target = -1;
};

/// correct f64 [2] receives += {weighted rows whose largest logit is the target, sum of counted weights}.
struct count_correct {
  tensor_view correct;
  tensor_view logits;
  tensor_view targets;
  tensor_view weights{};
  std::int32_t ignored_target = -1;
};

}  // namespace hetero::op
