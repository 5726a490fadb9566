// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hetero/model/layer_traits.hpp>

namespace hetero {

/// Causal self-attention over queries, keys and values that a linear layer has made:
/// [samples, context, 3 * width] -> [samples, context, width]. No context x context matrix exists in memory.
struct causal_attention {
  std::size_t heads = 1;
  std::size_t width = 0;

  static constexpr bool splits_backward = true;

  [[nodiscard]] std::size_t parameter_count() const noexcept { return 0; }
  [[nodiscard]] std::vector<parameter_spec> parameters() const { return {}; }

  /// @throws error invalid_shape when the input is not [samples, context, 3 * width] or the heads do not divide the
  /// width
  [[nodiscard]] shape output_shape(const shape& input) const {
    require(heads > 0 && width % heads == 0, errc::invalid_shape, [&] {
      return "attention needs a width that its heads divide, got width " + std::to_string(width) + " and " +
             std::to_string(heads) + " heads";
    });
    require(input.dims() == 3 && input[2] == 3 * width, errc::invalid_shape, [&] {
      return "attention takes queries, keys and values as [samples, context, " + std::to_string(3 * width) + "], got " +
             to_string(input);
    });
    return {input[0], input[1], width};
  }

  /// log(sum(exp(scores))) of each row.
  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request& request) const {
    return {{request.type, {request.input[0], heads, request.input[1]}}};
  }

  /// Both products over the causal half of the scores.
  [[nodiscard]] double forward_flops(const shape& input) const {
    const double context = static_cast<double>(input[1]);
    return 2.0 * static_cast<double>(input[0]) * context * (context + 1) * static_cast<double>(width);
  }

  void forward(execution& context, layer_parameters, tensor_view input, tensor_view output,
               const saved_state& saved) const {
    context.launch(op::attention_forward{
        .out = output, .log_sum_exp = saved.kept[0], .qkv = input, .heads = static_cast<std::uint32_t>(heads)});
  }

  void backward_input(execution& context, layer_parameters, tensor_view grad_output, tensor_view grad_input,
                      const saved_state& saved, layer_gradients) const {
    if (!grad_input) return;
    context.launch(op::attention_backward{.grad_qkv = grad_input,
                                          .grad_out = grad_output,
                                          .qkv = saved.input,
                                          .out = saved.output,
                                          .log_sum_exp = saved.kept[0],
                                          .heads = static_cast<std::uint32_t>(heads)});
  }

  void backward_weight(execution&, layer_parameters, tensor_view, const saved_state&, layer_gradients) const {}
};

static_assert(layer<causal_attention>, "causal_attention models the layer concept");

}  // namespace hetero
