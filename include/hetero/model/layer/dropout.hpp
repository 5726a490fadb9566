// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <hetero/core/hash.hpp>
#include <hetero/model/layer_traits.hpp>

namespace hetero {

/// Zeroes elements with `probability` in training and scales the rest by 1 / (1 - probability); the identity in phase
/// eval.
///
/// The mask is a function of (seed, name, step, global sample id, element of the sample). So nothing is kept for the
/// backward pass, a recomputed pass gives the same mask, and so does any split of the batch.
struct dropout {
  std::string name;  ///< stable and unique among the dropouts of a model: it separates their masks
  double probability = 0;

  static constexpr bool splits_backward = true;
  static constexpr bool reads_input = false;
  static constexpr bool reads_output = false;

  [[nodiscard]] std::size_t parameter_count() const noexcept { return 0; }
  [[nodiscard]] std::vector<parameter_spec> parameters() const { return {}; }
  [[nodiscard]] shape output_shape(const shape& input) const { return input; }
  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request&) const { return {}; }
  [[nodiscard]] double forward_flops(const shape& input) const {
    return probability > 0 ? static_cast<double>(input.count()) : 0.0;
  }

  void forward(execution& context, layer_parameters, tensor_view input, tensor_view output, const saved_state&) const {
    apply(context, output, input);
  }

  void backward_input(execution& context, layer_parameters, tensor_view grad_output, tensor_view grad_input,
                      const saved_state&, layer_gradients) const {
    if (grad_input) apply(context, grad_input, grad_output);
  }

  void backward_weight(execution&, layer_parameters, tensor_view, const saved_state&, layer_gradients) const {}

  /// Whether this call drops anything.
  [[nodiscard]] bool active(const execution& context) const noexcept {
    return probability > 0 && context.pass != phase::eval;
  }

  /// out = mask * in, or a copy when nothing is dropped; out may be in. The same on activations and on gradients.
  /// Stream-ordered.
  /// @throws error invalid_argument when the context names no samples, or the probability is outside [0, 1)
  void apply(execution& context, tensor_view out, tensor_view in) const {
    require(probability >= 0 && probability < 1, errc::invalid_argument, [&] {
      return "dropout '" + name + "' has probability " + std::to_string(probability) + ", it must lie in [0, 1)";
    });
    if (!active(context)) {
      if (out.data() != in.data()) context.device.copy(out, in, context.stream);
      return;
    }
    const std::size_t samples = in.extent(0);
    require(context.sample_ids.count() == samples, errc::invalid_argument, [&] {
      return "dropout '" + name + "' works on " + std::to_string(samples) + " samples but was given " +
             std::to_string(context.sample_ids.count()) + " sample ids; their masks depend on the ids";
    });
    const shape rows{samples, samples == 0 ? 0 : in.count() / samples};
    context.launch(op::dropout{.out = out.reshape(rows),
                               .in = in.reshape(rows),
                               .sample_ids = context.sample_ids,
                               .probability = probability,
                               .seed = context.seed,
                               .step = context.step,
                               .layer = static_cast<std::uint32_t>(stable_hash{}.add(name).value())});
  }

  /// The gradient in front of the dropout: `grad` itself when nothing is dropped, else scratch of the current frame.
  /// Stream-ordered.
  [[nodiscard]] tensor_view before(execution& context, tensor_view grad) const {
    if (!active(context)) return grad;
    const tensor_view out = context.scratch.take(grad.type(), grad.extents());
    apply(context, out, grad);
    return out;
  }
};

static_assert(layer<dropout>, "dropout models the layer concept");

}  // namespace hetero
