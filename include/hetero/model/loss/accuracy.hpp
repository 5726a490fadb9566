// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <hetero/model/layer_traits.hpp>

namespace hetero {

/// How many predictions are right: a sum with its weight, as every metric (its mean exists only over all ranks).
struct accuracy {
  std::int32_t ignored_target = -1;

  /// Adds {weighted rows whose largest entry is the target, weighted rows counted} to `result` (f64 [2] on the device).
  /// Shapes are those of softmax_cross_entropy. Stream-ordered.
  /// @throws error invalid_shape when the targets do not name one class per row
  void evaluate(execution& context, tensor_view prediction, tensor_view targets, tensor_view weights,
                tensor_view result) const {
    require(prediction.dims() >= 2 && targets.extents().count() * prediction.extents().last() == prediction.count(),
            errc::invalid_shape, [&] {
              return "accuracy over " + to_string(prediction.extents()) + " needs one target per row, got " +
                     to_string(targets.extents());
            });
    context.launch(op::count_correct{.correct = result,
                                     .logits = detail::as_rows(prediction),
                                     .targets = detail::as_vector(targets),
                                     .weights = weights,
                                     .ignored_target = ignored_target});
  }

  friend constexpr bool operator==(const accuracy&, const accuracy&) = default;
};

}  // namespace hetero
