// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <hetero/model/layer_traits.hpp>

namespace hetero {

/// output = input / sqrt(mean of squares + epsilon) * gain over the last dimension (arXiv 1910.07467).
struct rms_norm {
  std::string name;
  std::size_t width = 0;
  double epsilon = 1e-6;

  static constexpr bool splits_backward = true;
  static constexpr bool reads_output = false;

  [[nodiscard]] std::size_t parameter_count() const noexcept { return 1; }
  [[nodiscard]] std::vector<parameter_spec> parameters() const {
    return {{.name = name + ".gain", .extents = {width}, .init = initializer::ones(), .decays = false}};
  }

  /// @throws error invalid_shape when the last dimension is not `width`
  [[nodiscard]] shape output_shape(const shape& input) const {
    require(input.dims() >= 2 && input.last() == width, errc::invalid_shape, [&] {
      return "rms_norm '" + name + "' takes rows of " + std::to_string(width) + " values, got " + to_string(input);
    });
    return input;
  }

  /// 1 / root mean square of each row.
  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request& request) const {
    return {{request.type, detail::without_last(request.input)}};
  }

  [[nodiscard]] double forward_flops(const shape& input) const { return 4.0 * static_cast<double>(input.count()); }

  void forward(execution& context, layer_parameters params, tensor_view input, tensor_view output,
               const saved_state& saved) const {
    context.launch(op::rms_norm_forward{.out = detail::as_rows(output),
                                        .rstd = detail::as_vector(saved.kept[0]),
                                        .in = detail::as_rows(input),
                                        .gain = params[0],
                                        .epsilon = epsilon});
  }

  void backward_input(execution& context, layer_parameters params, tensor_view grad_output, tensor_view grad_input,
                      const saved_state& saved, layer_gradients) const {
    if (!grad_input) return;
    context.launch(op::rms_norm_backward_input{.grad_in = detail::as_rows(grad_input),
                                               .grad_out = detail::as_rows(grad_output),
                                               .in = detail::as_rows(saved.input),
                                               .rstd = detail::as_vector(saved.kept[0]),
                                               .gain = params[0]});
  }

  void backward_weight(execution& context, layer_parameters, tensor_view grad_output, const saved_state& saved,
                       layer_gradients grads) const {
    if (!grads[0].view) return;
    context.launch(op::rms_norm_backward_weight{.grad_gain = grads[0].view,
                                                .grad_out = detail::as_rows(grad_output),
                                                .in = detail::as_rows(saved.input),
                                                .rstd = detail::as_vector(saved.kept[0]),
                                                .accumulate = grads[0].accumulate});
  }
};

static_assert(layer<rms_norm>, "rms_norm models the layer concept");

}  // namespace hetero
