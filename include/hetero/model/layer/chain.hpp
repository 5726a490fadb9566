// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <hetero/model/layer_traits.hpp>

namespace hetero {

/// Layers one after another, as one layer. Parameters, gradient slots and kept tensors are those of its parts in order.
///
/// Between two parts it keeps a tensor only where one of them reads it again. Gradients between parts live in scratch;
/// with a split backward pass they are kept tensors too, so that `backward_weight` may run any time later. Parts that
/// communicate, and parts with `splits_backward == false`, need nothing special. When two parts share a parameter (one
/// name), both list it, and each writes its own slot.
template <class... Layers> class chain {
  static constexpr std::size_t parts = sizeof...(Layers);
  static_assert(parts > 0, "a chain needs at least one layer");
  template <std::size_t Index> using part = std::tuple_element_t<Index, std::tuple<Layers...>>;

 public:
  explicit chain(Layers... layers) : layers_{std::move(layers)...} {
    for_each(
        [&](auto i, const auto& l) { first_parameter_[i + 1] = first_parameter_[i] + hetero::parameter_count(l); });
  }

  static constexpr bool splits_backward = (Layers::splits_backward || ...);
  static constexpr bool reads_input = hetero::reads_input<part<0>>;
  static constexpr bool reads_output = hetero::reads_output<part<parts - 1>>;

  /// Part `Index`, as its own type.
  template <std::size_t Index> [[nodiscard]] const part<Index>& get() const noexcept {
    return std::get<Index>(layers_);
  }

  [[nodiscard]] std::size_t parameter_count() const noexcept { return first_parameter_[parts]; }
  [[nodiscard]] std::vector<parameter_spec> parameters() const {
    std::vector<parameter_spec> all;
    all.reserve(parameter_count());
    for_each([&](auto, const auto& l) {
      for (auto& spec : l.parameters()) all.push_back(std::move(spec));
    });
    return all;
  }

  /// @throws error invalid_shape when a part does not accept what the one before it makes
  [[nodiscard]] shape output_shape(const shape& input) const {
    shape current = input;
    for_each([&](auto, const auto& l) { current = l.output_shape(current); });
    return current;
  }

  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request& request) const {
    std::vector<tensor_spec> specs;
    (void)lay_out(request, [&](const tensor_spec& spec) { specs.push_back(spec); });
    return specs;
  }

  [[nodiscard]] double forward_flops(const shape& input) const {
    double sum = 0;
    shape current = input;
    for_each([&](auto, const auto& l) {
      sum += l.forward_flops(current);
      current = l.output_shape(current);
    });
    return sum;
  }

  [[nodiscard]] std::vector<layer_communication> communication(const shape& input) const {
    std::vector<layer_communication> all;
    shape current = input;
    for_each([&](auto, const auto& l) {
      for (auto& entry : communication_of(l, current)) all.push_back(std::move(entry));
      current = l.output_shape(current);
    });
    return all;
  }

  /// @throws error invalid_argument when `saved.kept` is not what `saved()` asked for
  template <context_for<Layers...> Context>
  void forward(Context& context, layer_parameters params, tensor_view input, tensor_view output,
               const saved_state& saved) const {
    const layout where = find(context, input.extents(), output.type(), saved);
    const scratch_pool::frame frame{context.scratch};
    const gradient_wanted wanted{context};
    tensor_view in = input;
    for_each([&](auto i, const auto& l) {
      tensor_view out = output;
      if constexpr (keeps_output<i>()) {
        out = saved.kept[where.output[i]];
      } else if constexpr (i + 1 < parts) {
        out = context.scratch.take(output.type(), where.input[i + 1]);
      }
      l.forward(context, parameters_of(i, params), in, out, {in, out, kept_of(i, where, saved)});
      wanted.set(true);
      in = out;
    });
  }

  template <context_for<Layers...> Context>
  void backward_input(Context& context, layer_parameters params, tensor_view grad_output, tensor_view grad_input,
                      const saved_state& saved, layer_gradients grads) const {
    const layout where = find(context, saved.input.extents(), grad_output.type(), saved);
    require(context.split_backward || parts == 1 || !splits_backward, errc::invalid_argument,
            "a chain keeps the gradients between its layers only for a split backward pass: set split_backward in "
            "saved_request and execution, or call hetero::backward");
    const scratch_pool::frame frame{context.scratch};
    const gradient_wanted wanted{context};
    tensor_view grad = grad_output;
    for_each_reversed([&](auto i, const auto& l) {
      tensor_view to = grad_input;
      if constexpr (i > 0) {
        to = context.split_backward ? saved.kept[where.gradient[i - 1]]
                                    : context.scratch.take(grad_output.type(), where.input[i]);
      }
      wanted.set(i > 0);
      l.backward_input(context, parameters_of(i, params), grad, to, state_of<i>(where, saved, grad_output.type()),
                       gradients_of(i, grads));
      grad = to;
    });
  }

  template <context_for<Layers...> Context>
  void backward_weight(Context& context, layer_parameters params, tensor_view grad_output, const saved_state& saved,
                       layer_gradients grads) const {
    if constexpr (splits_backward) {
      const layout where = find(context, saved.input.extents(), grad_output.type(), saved);
      for_each_reversed([&](auto i, const auto& l) {
        if constexpr (part<i>::splits_backward) {
          tensor_view grad = grad_output;
          if constexpr (i + 1 < parts) grad = saved.kept[where.gradient[i]];
          l.backward_weight(context, parameters_of(i, params), grad, state_of<i>(where, saved, grad_output.type()),
                            gradients_of(i, grads));
        }
      });
    }
  }

  /// Both halves, from the last part to the first, with two gradients between parts alive at a time.
  template <context_for<Layers...> Context>
  void backward(Context& context, layer_parameters params, tensor_view grad_output, tensor_view grad_input,
                const saved_state& saved, layer_gradients grads) const {
    const layout where = find(context, saved.input.extents(), grad_output.type(), saved);
    const scratch_pool::frame frame{context.scratch};
    const gradient_wanted wanted{context};
    std::size_t largest = 0;
    for (std::size_t i = 1; i < parts; ++i) largest = std::max(largest, where.input[i].count());
    std::array<tensor_view, 2> between{};
    for (std::size_t i = 0; i + 1 < parts && i < 2; ++i)
      between[i] = context.scratch.take(grad_output.type(), {largest});
    tensor_view grad = grad_output;
    for_each_reversed([&](auto i, const auto& l) {
      tensor_view to = grad_input;
      if constexpr (i > 0) to = between[(i - 1) % 2].flat(0, where.input[i].count()).reshape(where.input[i]);
      wanted.set(i > 0);
      hetero::backward(l, context, parameters_of(i, params), grad, to, state_of<i>(where, saved, grad_output.type()),
                       gradients_of(i, grads));
      grad = to;
    });
  }

 private:
  // Where things of each part lie in one call: input shapes, and indices into the kept tensors.
  struct layout {
    std::array<shape, parts + 1> input{};
    std::array<std::size_t, parts> kept{};      // first tensor of the part's own
    std::array<std::size_t, parts> output{};    // its output, if kept; also the end of its own
    std::array<std::size_t, parts> gradient{};  // gradient of its output, if kept
    std::size_t count = 0;
  };

  // Only the first part depends on whether anybody wants the gradient of the chain's input.
  class gradient_wanted {
   public:
    explicit gradient_wanted(execution& context) noexcept : context_{context}, before_{context.needs_input_gradient} {}
    gradient_wanted(const gradient_wanted&) = delete;
    gradient_wanted& operator=(const gradient_wanted&) = delete;
    ~gradient_wanted() { context_.needs_input_gradient = before_; }
    void set(bool inside) const noexcept { context_.needs_input_gradient = inside || before_; }

   private:
    execution& context_;
    bool before_;
  };

  template <std::size_t Index> static constexpr bool keeps_output() {
    if constexpr (Index + 1 < parts) {
      return hetero::reads_output<part<Index>> || hetero::reads_input<part<Index + 1>>;
    } else {
      return false;
    }
  }

  template <class F> void for_each(F&& f) const {
    [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      (f(std::integral_constant<std::size_t, Index>{}, std::get<Index>(layers_)), ...);
    }
    (std::index_sequence_for<Layers...>{});
  }
  template <class F> void for_each_reversed(F&& f) const {
    [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      (f(std::integral_constant<std::size_t, parts - 1 - Index>{}, std::get<parts - 1 - Index>(layers_)), ...);
    }
    (std::index_sequence_for<Layers...>{});
  }

  template <class Keep> [[nodiscard]] layout lay_out(const saved_request& request, Keep&& keep) const {
    layout where;
    where.input[0] = request.input;
    for_each([&](auto i, const auto& l) {
      where.kept[i] = where.count;
      for (const tensor_spec& spec : l.saved({where.input[i], request.type, request.split_backward})) {
        keep(spec);
        ++where.count;
      }
      where.input[i + 1] = l.output_shape(where.input[i]);
      const tensor_spec between{request.type, where.input[i + 1]};
      where.output[i] = where.count;
      if constexpr (keeps_output<i>()) {
        keep(between);
        ++where.count;
      }
      where.gradient[i] = where.count;
      if (i + 1 < parts && request.split_backward) {
        keep(between);
        ++where.count;
      }
    });
    return where;
  }

  [[nodiscard]] layout find(const execution& context, const shape& input, dtype type, const saved_state& saved) const {
    const layout where = lay_out({input, type, context.split_backward}, [](const tensor_spec&) {});
    require(where.count == saved.kept.size(), errc::invalid_argument, [&] {
      return "a chain of " + std::to_string(parts) + " layers keeps " + std::to_string(where.count) +
             " tensors with a " + (context.split_backward ? "split" : "fused") + " backward pass, it was given " +
             std::to_string(saved.kept.size()) + "; ask saved() with the same split_backward as in execution";
    });
    return where;
  }

  [[nodiscard]] static std::span<const tensor_view> kept_of(std::size_t i, const layout& where,
                                                            const saved_state& saved) {
    return saved.kept.subspan(where.kept[i], where.output[i] - where.kept[i]);
  }
  // What was not kept because nobody reads it still has its shape.
  template <std::size_t Index>
  [[nodiscard]] static saved_state state_of(const layout& where, const saved_state& saved, dtype type) {
    saved_state state{saved.input, saved.output, kept_of(Index, where, saved)};
    if constexpr (Index > 0) {
      state.input = tensor_view{nullptr, type, where.input[Index]};
      if constexpr (keeps_output<Index - 1>()) state.input = saved.kept[where.output[Index - 1]];
    }
    if constexpr (Index + 1 < parts) {
      state.output = tensor_view{nullptr, type, where.input[Index + 1]};
      if constexpr (keeps_output<Index>()) state.output = saved.kept[where.output[Index]];
    }
    return state;
  }
  [[nodiscard]] layer_parameters parameters_of(std::size_t i, layer_parameters params) const {
    return params.subspan(first_parameter_[i], first_parameter_[i + 1] - first_parameter_[i]);
  }
  [[nodiscard]] layer_gradients gradients_of(std::size_t i, layer_gradients grads) const {
    return grads.subspan(first_parameter_[i], first_parameter_[i + 1] - first_parameter_[i]);
  }

  std::tuple<Layers...> layers_;
  std::array<std::size_t, parts + 1> first_parameter_{};
};

}  // namespace hetero
