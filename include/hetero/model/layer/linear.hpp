// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <hetero/model/concepts.hpp>

namespace hetero {

/// output = input * weight^T + bias over the last dimension. Weight is [outputs, inputs], bias [outputs].
struct linear {
  std::string name;
  std::size_t inputs = 0;
  std::size_t outputs = 0;
  bool bias = true;
  initializer init = initializer::normal(0.02);

  static constexpr bool splits_backward = true;
  static constexpr bool reads_output = false;

  [[nodiscard]] std::size_t parameter_count() const noexcept { return bias ? 2 : 1; }
  [[nodiscard]] std::vector<parameter_spec> parameters() const {
    std::vector<parameter_spec> specs{{.name = name + ".weight", .extents = {outputs, inputs}, .init = init}};
    if (bias) specs.push_back({.name = name + ".bias", .extents = {outputs}, .init = initializer::zeros(), .decays = false});
    return specs;
  }

  /// @throws error invalid_shape when the last dimension is not `inputs`
  [[nodiscard]] shape output_shape(shape input) const {
    require(input.dims() >= 2 && input.last() == inputs, errc::invalid_shape, [&] {
      return "linear '" + name + "' takes rows of " + std::to_string(inputs) + " values, got " + to_string(input);
    });
    input[input.dims() - 1] = outputs;
    return input;
  }

  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request&) const { return {}; }

  [[nodiscard]] double forward_flops(const shape& input) const {
    return 2.0 * static_cast<double>(input.count()) * static_cast<double>(outputs);
  }

  void forward(execution& context, layer_parameters params, tensor_view input, tensor_view output,
               const saved_state&) const {
    context.launch(op::matmul{.out = rows(output, outputs),
                              .a = rows(input, inputs),
                              .b = params[0],
                              .bias = bias ? params[1] : tensor_view{},
                              .transpose_b = true});
  }

  void backward_input(execution& context, layer_parameters params, tensor_view grad_output, tensor_view grad_input,
                      const saved_state&, layer_gradients) const {
    if (!grad_input) return;
    context.launch(op::matmul{.out = rows(grad_input, inputs), .a = rows(grad_output, outputs), .b = params[0]});
  }

  void backward_weight(execution& context, layer_parameters, tensor_view grad_output, const saved_state& saved,
                       layer_gradients grads) const {
    if (grads[0].view) {
      context.launch(op::matmul{.out = grads[0].view,
                                .a = rows(grad_output, outputs),
                                .b = rows(saved.input, inputs),
                                .transpose_a = true,
                                .accumulate = grads[0].accumulate});
    }
    if (bias && grads[1].view) {
      context.launch(op::column_sum{
          .out = grads[1].view, .in = rows(grad_output, outputs), .accumulate = grads[1].accumulate});
    }
  }

 private:
  static tensor_view rows(const tensor_view& v, std::size_t width) { return v.reshape({v.count() / width, width}); }
};

static_assert(layer<linear>, "linear models the layer concept");

}  // namespace hetero
