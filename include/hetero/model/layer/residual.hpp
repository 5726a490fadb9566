// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <hetero/model/layer/dropout.hpp>
#include <hetero/model/layer_traits.hpp>

namespace hetero {

/// output = input + dropout(inner(input)); `inner` keeps the shape of its input.
template <class Inner> struct residual {
  Inner inner;
  dropout drop{};  ///< on the branch; costs nothing while its probability is 0

  static constexpr bool splits_backward = Inner::splits_backward;
  static constexpr bool reads_input = hetero::reads_input<Inner>;
  static constexpr bool reads_output = false;

  [[nodiscard]] std::size_t parameter_count() const { return hetero::parameter_count(inner); }
  [[nodiscard]] std::vector<parameter_spec> parameters() const { return inner.parameters(); }

  /// @throws error invalid_shape when `inner` changes the shape
  [[nodiscard]] shape output_shape(const shape& input) const {
    const shape output = inner.output_shape(input);
    require(output == input, errc::invalid_shape, [&] {
      return "a residual branch must keep its shape, it turns " + to_string(input) + " into " + to_string(output);
    });
    return output;
  }

  /// What `inner` keeps, and its output where it reads that again (the sum takes its place in `output`).
  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request& request) const {
    std::vector<tensor_spec> specs = inner.saved(request);
    if constexpr (keeps_branch) specs.push_back({request.type, request.input});
    return specs;
  }

  [[nodiscard]] double forward_flops(const shape& input) const {
    return inner.forward_flops(input) + drop.forward_flops(input) + static_cast<double>(input.count());
  }

  [[nodiscard]] std::vector<layer_communication> communication(const shape& input) const {
    return communication_of(inner, input);
  }

  template <context_for<Inner> Context>
  void forward(Context& context, layer_parameters params, tensor_view input, tensor_view output,
               const saved_state& saved) const {
    tensor_view branch = output;
    if constexpr (keeps_branch) branch = saved.kept.back();
    inner.forward(context, params, input, branch, {input, branch, inner_kept(saved)});
    if (drop.active(context)) {
      drop.apply(context, output, branch);
      branch = output;
    }
    context.launch(op::add{.out = output, .a = branch, .b = input});
  }

  template <context_for<Inner> Context>
  void backward_input(Context& context, layer_parameters params, tensor_view grad_output, tensor_view grad_input,
                      const saved_state& saved, layer_gradients grads) const {
    const scratch_pool::frame frame{context.scratch};
    inner.backward_input(context, params, drop.before(context, grad_output), grad_input,
                         within(saved, grad_output.type()), grads);
    add_skip(context, grad_output, grad_input);
  }

  template <context_for<Inner> Context>
  void backward_weight(Context& context, layer_parameters params, tensor_view grad_output, const saved_state& saved,
                       layer_gradients grads) const {
    const scratch_pool::frame frame{context.scratch};
    inner.backward_weight(context, params, drop.before(context, grad_output), within(saved, grad_output.type()), grads);
  }

  /// Both halves; the mask of the dropout is applied once.
  template <context_for<Inner> Context>
  void backward(Context& context, layer_parameters params, tensor_view grad_output, tensor_view grad_input,
                const saved_state& saved, layer_gradients grads) const {
    const scratch_pool::frame frame{context.scratch};
    hetero::backward(inner, context, params, drop.before(context, grad_output), grad_input,
                     within(saved, grad_output.type()), grads);
    add_skip(context, grad_output, grad_input);
  }

 private:
  static constexpr bool keeps_branch = hetero::reads_output<Inner>;

  [[nodiscard]] static std::span<const tensor_view> inner_kept(const saved_state& saved) {
    return saved.kept.first(saved.kept.size() - (keeps_branch ? 1 : 0));
  }
  [[nodiscard]] static saved_state within(const saved_state& saved, dtype type) {
    const tensor_view shape_only{nullptr, type, saved.input.extents()};
    return {saved.input, keeps_branch ? saved.kept.back() : shape_only, inner_kept(saved)};
  }
  static void add_skip(execution& context, tensor_view grad_output, tensor_view grad_input) {
    if (grad_input) context.launch(op::add{.out = grad_input, .a = grad_input, .b = grad_output});
  }
};

template <class Inner> residual(Inner) -> residual<Inner>;
template <class Inner> residual(Inner, dropout) -> residual<Inner>;

}  // namespace hetero
