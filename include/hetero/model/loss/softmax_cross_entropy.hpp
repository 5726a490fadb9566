// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <hetero/model/layer_traits.hpp>

namespace hetero {

/// -log softmax(prediction)[target], summed over all rows whose target is not ignored; the weight is the weighted
/// number of those rows. Works on [samples, classes] with targets [samples], and on [samples, context, vocabulary] with
/// targets [samples, context].
struct softmax_cross_entropy {
  std::int32_t ignored_target = -1;  ///< rows with this target count neither in the sum nor in the weight

  /// Adds {sum, weight} to `result` (f64 [2] on the device) and, unless `grad_prediction` is empty, writes the gradient
  /// of the sum there; it may be `prediction`. `targets` are i32; `weights` f32 [samples] or empty. Stream-ordered.
  /// @throws error invalid_shape when the targets do not name one class per row, invalid_argument for a target that is
  /// no class
  void evaluate(execution& context, tensor_view prediction, tensor_view targets, tensor_view weights,
                tensor_view result, tensor_view grad_prediction) const {
    require(prediction.dims() >= 2 && targets.extents().count() * prediction.extents().last() == prediction.count(),
            errc::invalid_shape, [&] {
              return "cross-entropy over " + to_string(prediction.extents()) + " needs one target per row, got " +
                     to_string(targets.extents());
            });
    context.launch(op::cross_entropy{.result = result,
                                     .grad_logits = grad_prediction ? detail::as_rows(grad_prediction) : tensor_view{},
                                     .logits = detail::as_rows(prediction),
                                     .targets = detail::as_vector(targets),
                                     .weights = weights,
                                     .ignored_target = ignored_target});
  }

  friend constexpr bool operator==(const softmax_cross_entropy&, const softmax_cross_entropy&) = default;
};

static_assert(loss_function<softmax_cross_entropy>, "softmax_cross_entropy models loss_function");

}  // namespace hetero
