// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hetero/core/shape.hpp>
#include <hetero/core/tensor_view.hpp>

namespace hetero {

/// Named groups of ranks a layer may talk to, or a gradient is summed over.
enum class parallel_group : std::uint8_t { data, tensor, expert, context, graph };

/// How a parameter starts; drawn from (seed, parameter name, element number), so every rank and split draws the same.
struct initializer {
  enum class kind : std::uint8_t { constant, normal, uniform } how = kind::normal;
  double value = 0.02;  ///< the constant, the standard deviation, or the half width of the interval around 0

  static constexpr initializer zeros() { return {kind::constant, 0.0}; }
  static constexpr initializer ones() { return {kind::constant, 1.0}; }
  static constexpr initializer normal(double deviation) { return {kind::normal, deviation}; }
  static constexpr initializer uniform(double half_width) { return {kind::uniform, half_width}; }
  friend constexpr bool operator==(const initializer&, const initializer&) = default;
};

/// What the trainer stores for a layer. The name is stable and unique in the model; two layers that list the same name
/// and shape share one tensor (tied weights).
struct parameter_spec {
  std::string name;
  shape extents;                                    ///< global shape
  initializer init = initializer::normal(0.02);
  bool decays = true;                               ///< weight decay applies (matrices usually, gains and biases not)
  bool trainable = true;                            ///< false: state such as running moments, written by `forward` in phase train only
  parallel_group gradient_group = parallel_group::data;  ///< ranks over which the gradient is summed
  friend bool operator==(const parameter_spec&, const parameter_spec&) = default;
};

/// Where a layer puts the gradient of one parameter: overwritten, or added to when `accumulate` is set. A view without
/// memory means that nobody wants this gradient (frozen weights, state).
struct gradient_slot {
  tensor_view view;
  bool accumulate = false;
};

/// The parameters of one layer in the order of its `parameters()`.
using layer_parameters = std::span<const tensor_view>;
/// The gradient slots of one layer in the same order.
using layer_gradients = std::span<const gradient_slot>;

}  // namespace hetero
