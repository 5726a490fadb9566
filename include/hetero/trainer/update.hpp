// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <hetero/device/buffer.hpp>
#include <hetero/device/stream.hpp>
#include <hetero/optim/concepts.hpp>
#include <hetero/trainer/parameter_store.hpp>

namespace hetero {

/// The sum of squares of a flat tensor. Local; blocks. `result` is kept between calls, so that a step allocates nothing.
[[nodiscard]] inline double sum_of_squares(stream& on, const tensor_view& values, buffer& result) {
  if (!result.view()) result = buffer{on.device(), on.id(), dtype::f64, {1}};
  on.launch(op::fill{result.view(), 0});
  on.launch(op::sum_squares{result.view(), values});
  std::array<double, 1> sum{};
  on.copy(tensor_view{std::span{sum}}, result.view());
  on.synchronize();
  return sum[0];
}

/// Applies an optimizer to every trainable parameter of a store. `grad_scale` is the one division by the global weight, times
/// the clipping factor; `step` counts from 1. Stream-ordered.
/// @throws error as the device does
template <optimizer Optimizer>
void apply_update(stream& on, parameter_store& store, const Optimizer& rule, double grad_scale, double learning_rate,
                  std::uint64_t step) {
  std::vector<tensor_view> state(store.state_names().size());
  for (const auto& entry : store.layout().entries) {
    if (!entry.spec.trainable) continue;
    for (std::size_t i = 0; i < state.size(); ++i) state[i] = store.state(i).slice(0, entry.offset, entry.end());
    on.launch(rule.update({.param = store.params().slice(0, entry.offset, entry.end()),
                           .grad = store.grads().slice(0, entry.offset, entry.end()),
                           .state = state,
                           .grad_scale = grad_scale,
                           .learning_rate = learning_rate,
                           .decays = entry.spec.decays,
                           .step = step}));
  }
}

}  // namespace hetero
