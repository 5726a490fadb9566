// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <hetero/model/layer_traits.hpp>

namespace hetero {

/// logits = input * table^T over the last dimension, with the token table of an embedding: [..., width] ->
/// [..., vocabulary]. It lists that table's name and shape, and one name is one tensor.
struct tied_head {
  std::string table;  ///< name of the parameter, such as "embedding.token"
  std::size_t vocabulary = 0;
  std::size_t width = 0;
  initializer init = initializer::normal(0.02);

  static constexpr bool splits_backward = true;
  static constexpr bool reads_output = false;

  [[nodiscard]] std::size_t parameter_count() const noexcept { return 1; }
  [[nodiscard]] std::vector<parameter_spec> parameters() const {
    return {{.name = table, .extents = {vocabulary, width}, .init = init}};
  }

  /// @throws error invalid_shape when the last dimension is not `width`
  [[nodiscard]] shape output_shape(shape input) const {
    require(input.dims() >= 2 && input.last() == width, errc::invalid_shape, [&] {
      return "the head tied to '" + table + "' takes rows of " + std::to_string(width) + " values, got " +
             to_string(input);
    });
    input[input.dims() - 1] = vocabulary;
    return input;
  }

  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request&) const { return {}; }

  [[nodiscard]] double forward_flops(const shape& input) const {
    return 2.0 * static_cast<double>(input.count()) * static_cast<double>(vocabulary);
  }

  void forward(execution& context, layer_parameters params, tensor_view input, tensor_view output,
               const saved_state&) const {
    context.launch(
        op::matmul{.out = detail::as_rows(output), .a = detail::as_rows(input), .b = params[0], .transpose_b = true});
  }

  void backward_input(execution& context, layer_parameters params, tensor_view grad_output, tensor_view grad_input,
                      const saved_state&, layer_gradients) const {
    if (!grad_input) return;
    context.launch(op::matmul{.out = detail::as_rows(grad_input), .a = detail::as_rows(grad_output), .b = params[0]});
  }

  void backward_weight(execution& context, layer_parameters, tensor_view grad_output, const saved_state& saved,
                       layer_gradients grads) const {
    if (!grads[0].view) return;
    context.launch(op::matmul{.out = grads[0].view,
                              .a = detail::as_rows(grad_output),
                              .b = detail::as_rows(saved.input),
                              .transpose_a = true,
                              .accumulate = grads[0].accumulate});
  }
};

static_assert(layer<tied_head>, "tied_head models the layer concept");

}  // namespace hetero
