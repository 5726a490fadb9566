// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hetero/model/context.hpp>
#include <hetero/model/parameter.hpp>

namespace hetero {

/// Shape and type of a tensor that does not exist yet.
struct tensor_spec {
  dtype type = dtype::f32;
  shape extents;
};

/// What a layer is asked to keep for its backward pass: `input` includes the samples as first dimension.
struct saved_request {
  shape input;
  dtype type = dtype::f32;      ///< element type of activations
  bool split_backward = false;  ///< `backward_weight` may run long after `backward_input`
};

/// What a layer finds again in its backward pass: its input, its output, and the tensors it asked for in `saved()`.
struct saved_state {
  tensor_view input;
  tensor_view output;
  std::span<const tensor_view> kept{};
};

/// Communication a layer does, as data for profiles and simulation.
struct layer_communication {
  enum class pass : std::uint8_t { forward, backward_input, backward_weight } when = pass::forward;
  parallel_group group = parallel_group::tensor;
  std::string collective;  ///< "all_reduce", "all_gather", ...
  std::size_t bytes = 0;   ///< per call and rank, before the algorithm's factor
};

/// A layer: mathematics without storage. One object serves any number of replicas and weight versions at once, because
/// all memory comes from the caller (docs/concepts/layer.md has the whole table).
///
/// `forward` writes `output` and the kept tensors. `backward_input` writes `grad_input` (skipped when the view is empty)
/// and `backward_weight` the gradients of the *sum* of the losses. With `splits_backward == false` all work happens in
/// `backward_input`. Calls are stream-ordered; they throw `hetero::error` and leave no state behind. The concept cannot
/// check that gradients are right; tests/conformance/layer.hpp does.
template <class L, class Context = layer_context<>>
concept layer = requires(const L& l, Context& context, const shape& input, const saved_request& request,
                         layer_parameters params, tensor_view v, const saved_state& saved, layer_gradients grads) {
  { L::splits_backward } -> std::convertible_to<bool>;
  { l.parameters() } -> std::same_as<std::vector<parameter_spec>>;
  { l.output_shape(input) } -> std::same_as<shape>;
  { l.saved(request) } -> std::same_as<std::vector<tensor_spec>>;
  { l.forward_flops(input) } -> std::same_as<double>;
  { l.forward(context, params, v, v, saved) } -> std::same_as<void>;
  { l.backward_input(context, params, v, v, saved, grads) } -> std::same_as<void>;
  { l.backward_weight(context, params, v, saved, grads) } -> std::same_as<void>;
};

/// Both halves of the backward pass at once, in the cheaper order a layer may offer as `backward`.
template <class Context, layer<Context> L>
void backward(const L& l, Context& context, layer_parameters params, tensor_view grad_output, tensor_view grad_input,
              const saved_state& saved, layer_gradients grads) {
  if constexpr (requires { l.backward(context, params, grad_output, grad_input, saved, grads); }) {
    l.backward(context, params, grad_output, grad_input, saved, grads);
  } else {
    if constexpr (L::splits_backward) l.backward_weight(context, params, grad_output, saved, grads);
    l.backward_input(context, params, grad_output, grad_input, saved, grads);
  }
}

/// What a layer says it communicates; nothing unless it has `communication(shape)`.
template <class L>
[[nodiscard]] std::vector<layer_communication> communication_of(const L& l, const shape& input) {
  if constexpr (requires { { l.communication(input) } -> std::same_as<std::vector<layer_communication>>; }) {
    return l.communication(input);
  } else {
    return {};
  }
}

/// A loss: weighted sum over the samples of a call, and its gradient.
///
/// `evaluate` adds {sum, weight} to `result` (f64 [2] on the device) and, unless `grad_prediction` is empty, writes the
/// gradient of the sum; `grad_prediction` may be `prediction`.
template <class L>
concept loss_function = requires(const L& l, execution& context, tensor_view v) {
  { l.evaluate(context, v, v, v, v, v) } -> std::same_as<void>;  // prediction, targets, weights, result, grad_prediction
};

/// A model: a chain of units (each a layer) that a plan can cut between, and a loss at its end.
///
/// `visit(i, f)` calls `f` with unit i as its own type; `input_shape(samples)` is the shape of the batch it accepts.
template <class M>
concept model = requires(const M& m, std::size_t i) {
  { m.name() } -> std::convertible_to<std::string>;
  { m.size() } -> std::convertible_to<std::size_t>;
  { m.input_shape(i) } -> std::same_as<shape>;
  { m.unit_name(i) } -> std::convertible_to<std::string>;
  { m.loss() };
  m.visit(i, [](const auto&) {});
};

}  // namespace hetero
