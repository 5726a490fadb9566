// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <hetero/model/layer_traits.hpp>

namespace hetero {

/// output = (input - mean) / sqrt(variance + epsilon) * gain + bias over the last dimension (arXiv 1607.06450).
struct layer_norm {
  std::string name;
  std::size_t width = 0;
  bool bias = true;
  double epsilon = 1e-5;

  static constexpr bool splits_backward = true;
  static constexpr bool reads_output = false;

  [[nodiscard]] std::size_t parameter_count() const noexcept { return bias ? 2 : 1; }
  [[nodiscard]] std::vector<parameter_spec> parameters() const {
    std::vector<parameter_spec> specs{
        {.name = name + ".gain", .extents = {width}, .init = initializer::ones(), .decays = false}};
    if (bias) {
      specs.push_back({.name = name + ".bias", .extents = {width}, .init = initializer::zeros(), .decays = false});
    }
    return specs;
  }

  /// @throws error invalid_shape when the last dimension is not `width`
  [[nodiscard]] shape output_shape(const shape& input) const {
    require(input.dims() >= 2 && input.last() == width, errc::invalid_shape, [&] {
      return "layer_norm '" + name + "' takes rows of " + std::to_string(width) + " values, got " + to_string(input);
    });
    return input;
  }

  /// Mean and 1 / standard deviation of each row.
  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request& request) const {
    const shape rows = detail::without_last(request.input);
    return {{request.type, rows}, {request.type, rows}};
  }

  [[nodiscard]] double forward_flops(const shape& input) const { return 8.0 * static_cast<double>(input.count()); }

  void forward(execution& context, layer_parameters params, tensor_view input, tensor_view output,
               const saved_state& saved) const {
    context.launch(op::layer_norm_forward{.out = detail::as_rows(output),
                                          .mean = detail::as_vector(saved.kept[0]),
                                          .rstd = detail::as_vector(saved.kept[1]),
                                          .in = detail::as_rows(input),
                                          .gain = params[0],
                                          .bias = bias ? params[1] : tensor_view{},
                                          .epsilon = epsilon});
  }

  void backward_input(execution& context, layer_parameters params, tensor_view grad_output, tensor_view grad_input,
                      const saved_state& saved, layer_gradients) const {
    if (!grad_input) return;
    context.launch(op::layer_norm_backward_input{.grad_in = detail::as_rows(grad_input),
                                                 .grad_out = detail::as_rows(grad_output),
                                                 .in = detail::as_rows(saved.input),
                                                 .mean = detail::as_vector(saved.kept[0]),
                                                 .rstd = detail::as_vector(saved.kept[1]),
                                                 .gain = params[0]});
  }

  void backward_weight(execution& context, layer_parameters, tensor_view grad_output, const saved_state& saved,
                       layer_gradients grads) const {
    const bool wants_bias = bias && grads[1].view;
    if (grads[0].view) {
      // One launch writes both; where their slots differ in `accumulate`, the bias takes a sum of its own below.
      const bool together = wants_bias && grads[0].accumulate == grads[1].accumulate;
      context.launch(op::layer_norm_backward_weight{.grad_gain = grads[0].view,
                                                    .grad_bias = together ? grads[1].view : tensor_view{},
                                                    .grad_out = detail::as_rows(grad_output),
                                                    .in = detail::as_rows(saved.input),
                                                    .mean = detail::as_vector(saved.kept[0]),
                                                    .rstd = detail::as_vector(saved.kept[1]),
                                                    .accumulate = grads[0].accumulate});
      if (together) return;
    }
    if (wants_bias) {
      context.launch(
          op::column_sum{.out = grads[1].view, .in = detail::as_rows(grad_output), .accumulate = grads[1].accumulate});
    }
  }
};

static_assert(layer<layer_norm>, "layer_norm models the layer concept");

}  // namespace hetero
