// SPDX-License-Identifier: Apache-2.0
// The least that is a layer, a loss and a model, and near misses that are broken in exactly one way.
#pragma once

#include <string>
#include <vector>

#include <hetero/model/concepts.hpp>

namespace hetero::test {

/// Nothing but what the concept asks for; no default constructor, no copy.
struct layer_archetype {
  layer_archetype() = delete;
  layer_archetype(const layer_archetype&) = delete;
  layer_archetype& operator=(const layer_archetype&) = delete;

  static constexpr bool splits_backward = false;
  [[nodiscard]] std::vector<parameter_spec> parameters() const { return {}; }
  [[nodiscard]] shape output_shape(const shape& input) const { return input; }
  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request&) const { return {}; }
  [[nodiscard]] double forward_flops(const shape&) const { return 0; }
  void forward(execution&, layer_parameters, tensor_view, tensor_view, const saved_state&) const {}
  void backward_input(execution&, layer_parameters, tensor_view, tensor_view, const saved_state&,
                      layer_gradients) const {}
  void backward_weight(execution&, layer_parameters, tensor_view, const saved_state&, layer_gradients) const {}
};
static_assert(layer<layer_archetype>, "the archetype is a layer");

// Near misses: complete, but for one thing.
struct layer_base {
  static constexpr bool splits_backward = true;
  [[nodiscard]] std::vector<parameter_spec> parameters() const { return {}; }
  [[nodiscard]] shape output_shape(const shape& input) const { return input; }
  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request&) const { return {}; }
  [[nodiscard]] double forward_flops(const shape&) const { return 0; }
  void forward(execution&, layer_parameters, tensor_view, tensor_view, const saved_state&) const {}
  void backward_input(execution&, layer_parameters, tensor_view, tensor_view, const saved_state&,
                      layer_gradients) const {}
  void backward_weight(execution&, layer_parameters, tensor_view, const saved_state&, layer_gradients) const {}
};
static_assert(layer<layer_base>, "the base of the near misses is whole");

struct layer_whose_forward_changes_it : layer_base {
  void forward(execution&, layer_parameters, tensor_view, tensor_view, const saved_state&) {}
};
static_assert(!layer<layer_whose_forward_changes_it>, "layers own nothing: forward is const");

struct layer_that_returns_its_output : layer_base {
  tensor_view forward(execution&, layer_parameters, tensor_view input, tensor_view, const saved_state&) const {
    return input;
  }
};
static_assert(!layer<layer_that_returns_its_output>, "memory comes from the caller");

struct layer_without_gradient_slots : layer_base {
  void backward_weight(execution&, layer_parameters, tensor_view, const saved_state&) const {}
};
static_assert(!layer<layer_without_gradient_slots>, "weight gradients go where the caller says");

struct layer_with_one_backward : layer_base {
  void backward_input() const = delete;
};
static_assert(!layer<layer_with_one_backward>, "the input half stands on its own");

struct layer_with_parameter_names : layer_base {
  [[nodiscard]] std::vector<std::string> parameters() const { return {}; }
};
static_assert(!layer<layer_with_parameter_names>, "parameters have shape and initialisation too");

struct layer_that_hides_its_split : layer_base {
  void splits_backward() const = delete;
};
static_assert(!layer<layer_that_hides_its_split>, "a layer says whether its backward pass splits");

struct layer_that_saves_bytes : layer_base {
  [[nodiscard]] std::size_t saved(const saved_request&) const { return 0; }
};
static_assert(!layer<layer_that_saves_bytes>, "what is kept has shapes");

struct layer_that_needs_groups : layer_base {
  template <class Context>
  requires requires(Context& c) { c.group(parallel_group::tensor); }
  void forward(Context&, layer_parameters, tensor_view, tensor_view, const saved_state&) const {}
};
struct some_groups {
  int tensor = 0;
  int& get(parallel_group) { return tensor; }
};
static_assert(!layer<layer_that_needs_groups>, "without groups it cannot run");
static_assert(layer<layer_that_needs_groups, layer_context<some_groups>>, "with groups it can");

struct loss_archetype {
  void evaluate(execution&, tensor_view, tensor_view, tensor_view, tensor_view, tensor_view) const {}
};
static_assert(loss_function<loss_archetype>, "the archetype is a loss");
struct loss_that_returns_a_mean {
  double evaluate(execution&, tensor_view, tensor_view, tensor_view, tensor_view, tensor_view) const { return 0; }
};
static_assert(!loss_function<loss_that_returns_a_mean>, "a loss adds a sum and a weight, it returns no mean");

struct model_archetype {
  [[nodiscard]] std::string name() const { return "archetype"; }
  [[nodiscard]] std::size_t size() const { return 1; }
  [[nodiscard]] shape input_shape(std::size_t samples) const { return {samples, 1}; }
  [[nodiscard]] std::string unit_name(std::size_t) const { return "unit"; }
  [[nodiscard]] loss_archetype loss() const { return {}; }
  template <class F> void visit(std::size_t, F&& f) const { f(layer_base{}); }
};
static_assert(model<model_archetype>, "the archetype is a model");
struct model_with_a_fixed_batch : model_archetype {
  [[nodiscard]] shape input_shape() const { return {1, 1}; }
};
static_assert(!model<model_with_a_fixed_batch>, "a model is asked for any number of samples");
struct model_that_visits_all : model_archetype {
  template <class F> void visit(F&& f) const { f(layer_base{}); }
};
static_assert(!model<model_that_visits_all>, "a plan cuts between units, so they are visited one by one");

}  // namespace hetero::test
