// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <hetero/model/layer/dropout.hpp>
#include <hetero/model/layer_traits.hpp>

namespace hetero {

/// output[s, i] = token[input[s, i]] + position[i]: i32 [samples, context] -> [samples, context, width].
///
/// Contexts shorter than the position table are legal. An id outside the table is errc::invalid_argument.
struct embedding {
  std::string name;
  std::size_t vocabulary = 0;
  std::size_t width = 0;
  std::size_t positions = 0;  ///< longest context, or 0 for no position table
  initializer init = initializer::normal(0.02);
  dropout drop{};  ///< applied to the sum

  static constexpr bool splits_backward = true;
  static constexpr bool reads_output = false;

  [[nodiscard]] std::size_t parameter_count() const noexcept { return positions > 0 ? 2 : 1; }
  [[nodiscard]] std::vector<parameter_spec> parameters() const {
    std::vector<parameter_spec> specs{{.name = name + ".token", .extents = {vocabulary, width}, .init = init}};
    if (positions > 0) specs.push_back({.name = name + ".position", .extents = {positions, width}, .init = init});
    return specs;
  }

  /// @throws error invalid_shape when the input is not [samples, context] or its context exceeds the positions
  [[nodiscard]] shape output_shape(const shape& input) const {
    require(input.dims() == 2 && (positions == 0 || input[1] <= positions), errc::invalid_shape, [&] {
      return "embedding '" + name + "' takes token ids as [samples, context]" +
             (positions > 0 ? " with a context of at most " + std::to_string(positions) : std::string{}) + ", got " +
             to_string(input);
    });
    return {input[0], input[1], width};
  }

  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request&) const { return {}; }

  [[nodiscard]] double forward_flops(const shape& input) const {
    return positions > 0 ? static_cast<double>(input.count() * width) : 0.0;
  }

  void forward(execution& context, layer_parameters params, tensor_view input, tensor_view output,
               const saved_state&) const {
    context.launch(
        op::embedding_forward{.out = detail::as_rows(output),
                              .ids = detail::as_vector(input),
                              .table = params[0],
                              .positions = positions > 0 ? params[1].slice(0, 0, input.extent(1)) : tensor_view{}});
    if (drop.active(context)) drop.apply(context, output, output);
  }

  /// @throws error unsupported when a gradient of the ids is asked for
  void backward_input(execution&, layer_parameters, tensor_view, tensor_view grad_input, const saved_state&,
                      layer_gradients) const {
    require(!grad_input, errc::unsupported, [&] {
      return "token ids of embedding '" + name + "' have no gradient; pass an empty view for the gradient of the input";
    });
  }

  void backward_weight(execution& context, layer_parameters, tensor_view grad_output, const saved_state& saved,
                       layer_gradients grads) const {
    const bool wants_positions = positions > 0 && grads[1].view;
    if (!grads[0].view && !wants_positions) return;
    const scratch_pool::frame frame{context.scratch};
    const tensor_view grad = drop.before(context, grad_output);
    tensor_view grad_positions{};
    bool accumulate_positions = false;
    if (wants_positions) {
      const std::size_t length = saved.input.extent(1);
      grad_positions = grads[1].view.slice(0, 0, length);
      accumulate_positions = grads[1].accumulate;
      if (!accumulate_positions && length < positions) {  // the op clears only the rows of this context
        context.launch(op::fill{.out = grads[1].view.slice(0, length, positions)});
      }
    }
    if (!grads[0].view) {  // a frozen table: the positions alone are a sum over samples
      if (!accumulate_positions) context.launch(op::fill{.out = grad_positions});
      for (std::size_t s = 0; s < grad.extent(0); ++s) {
        context.launch(
            op::accumulate{.into = grad_positions, .from = grad.slice(0, s, s + 1).reshape(grad_positions.extents())});
      }
      return;
    }
    context.launch(op::embedding_backward{.grad_table = grads[0].view,
                                          .grad_positions = grad_positions,
                                          .grad_out = detail::as_rows(grad),
                                          .ids = detail::as_vector(saved.input),
                                          .accumulate_table = grads[0].accumulate,
                                          .accumulate_positions = accumulate_positions});
  }
};

static_assert(layer<embedding>, "embedding models the layer concept");

}  // namespace hetero
