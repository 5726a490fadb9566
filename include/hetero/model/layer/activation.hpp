// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <hetero/model/layer_traits.hpp>

/// @file
/// Layers without parameters that act on each element.
namespace hetero {

/// output = x * Phi(x) in the tanh form that GPT-2 uses (arXiv 1606.08415).
struct gelu {
  static constexpr bool splits_backward = true;
  static constexpr bool reads_output = false;

  [[nodiscard]] std::size_t parameter_count() const noexcept { return 0; }
  [[nodiscard]] std::vector<parameter_spec> parameters() const { return {}; }
  [[nodiscard]] shape output_shape(const shape& input) const { return input; }
  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request&) const { return {}; }
  [[nodiscard]] double forward_flops(const shape& input) const { return 10.0 * static_cast<double>(input.count()); }

  void forward(execution& context, layer_parameters, tensor_view input, tensor_view output, const saved_state&) const {
    context.launch(op::gelu_forward{.out = output, .in = input});
  }

  void backward_input(execution& context, layer_parameters, tensor_view grad_output, tensor_view grad_input,
                      const saved_state& saved, layer_gradients) const {
    if (!grad_input) return;
    context.launch(op::gelu_backward{.grad_in = grad_input, .grad_out = grad_output, .in = saved.input});
  }

  void backward_weight(execution&, layer_parameters, tensor_view, const saved_state&, layer_gradients) const {}
};

/// output = max(x, 0).
struct relu {
  static constexpr bool splits_backward = true;
  static constexpr bool reads_input = false;

  [[nodiscard]] std::size_t parameter_count() const noexcept { return 0; }
  [[nodiscard]] std::vector<parameter_spec> parameters() const { return {}; }
  [[nodiscard]] shape output_shape(const shape& input) const { return input; }
  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request&) const { return {}; }
  [[nodiscard]] double forward_flops(const shape& input) const { return static_cast<double>(input.count()); }

  void forward(execution& context, layer_parameters, tensor_view input, tensor_view output, const saved_state&) const {
    context.launch(op::relu_forward{.out = output, .in = input});
  }

  void backward_input(execution& context, layer_parameters, tensor_view grad_output, tensor_view grad_input,
                      const saved_state& saved, layer_gradients) const {
    if (!grad_input) return;
    context.launch(op::relu_backward{.grad_in = grad_input, .grad_out = grad_output, .out = saved.output});
  }

  void backward_weight(execution&, layer_parameters, tensor_view, const saved_state&, layer_gradients) const {}
};

static_assert(layer<gelu>, "gelu models the layer concept");
static_assert(layer<relu>, "relu models the layer concept");

}  // namespace hetero
