// SPDX-License-Identifier: Apache-2.0
// What every model of `layer` must do, as far as tests can tell. Run it over a new layer on fp64:
//   check_layer(my_layer{...}, device, {.input = {3, 5, 8}});
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/layer_runner.hpp"

#include <hetero/model/layer_traits.hpp>

namespace hetero::test {

/// Largest |a - b| / max(1, |b|).
[[nodiscard]] inline double distance(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i]));
    if (std::isnan(d)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, d);
  }
  return largest;
}

/// Central differences of `objective()` in the elements of `at`.
template <class Runner> [[nodiscard]] std::vector<double> differences(Runner& runner, const tensor_view& at) {
  constexpr double step = 1e-5;
  std::vector<double> values = runner.read(at);
  std::vector<double> slopes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double centre = values[i];
    values[i] = centre + step;
    runner.write(at, values);
    runner.forward();
    const double above = runner.objective();
    values[i] = centre - step;
    runner.write(at, values);
    runner.forward();
    slopes[i] = (above - runner.objective()) / (2 * step);
    values[i] = centre;
  }
  runner.write(at, values);
  runner.forward();
  return slopes;
}

/// Gradients of all parameters and of the input against central differences in fp64.
template <class Context = layer_context<>, class L>
void check_gradients(const L& l, const any_device& device, layer_case how, double tolerance = 2e-7) {
  layer_runner<L, Context> runner{l, device, how};
  runner.forward();
  runner.backward();
  const auto gradients = runner.read_gradients();
  const auto grad_input = runner.read(runner.grad_input());
  for (std::size_t i = 0; i < runner.params.size(); ++i) {
    if (!runner.specs[i].trainable) continue;
    INFO("parameter " << runner.specs[i].name);
    CHECK(distance(gradients[i], differences(runner, runner.params[i])) < tolerance);
  }
  if (how.vocabulary == 0) {
    INFO("input");
    CHECK(distance(grad_input, differences(runner, runner.input())) < tolerance);
  }
}

/// `accumulate` adds to what is there; a slot without memory changes no other; no input gradient changes no weight.
template <class Context = layer_context<>, class L>
void check_slots(const L& l, const any_device& device, const layer_case& how) {
  layer_runner<L, Context> runner{l, device, how};
  runner.forward();
  const bool ids = how.vocabulary > 0;
  runner.backward(!ids);
  const auto once = runner.read_gradients();
  const auto grad_input = runner.read(runner.grad_input());

  runner.backward(false);
  CHECK(runner.read_gradients() == once);

  const auto slots = runner.slots;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    INFO("parameter " << runner.specs[i].name);
    if (!runner.specs[i].trainable) continue;
    runner.slots[i] = {slots[i].view, true};
    runner.backward(!ids);
    for (std::size_t j = 0; j < slots.size(); ++j) {
      auto expected = once[j];
      if (j == i) {
        for (double& v : expected) v *= 2;  // exact, so only the order of an addition may differ
      }
      CHECK(distance(runner.read(slots[j].view), expected) < (j == i ? 1e-12 : 1e-13));
    }
    runner.slots[i] = {};
    runner.backward(!ids);
    for (std::size_t j = 0; j < slots.size(); ++j) {
      if (j != i) CHECK(distance(runner.read(slots[j].view), once[j]) < 1e-13);
    }
    if (!ids) CHECK(runner.read(runner.grad_input()) == grad_input);
    runner.slots[i] = slots[i];
  }
}

/// The two halves give the bits of the whole, whatever happens between them.
template <class Context = layer_context<>, class L>
void check_split(const L& l, const any_device& device, layer_case how) {
  const bool ids = how.vocabulary > 0;
  how.split = false;
  layer_runner<L, Context> fused{l, device, how};
  how.split = true;
  layer_runner<L, Context> split{l, device, how};
  fused.forward();
  fused.backward(!ids);
  split.forward();
  split.backward_split(!ids);
  CHECK(split.read(split.output()) == fused.read(fused.output()));
  CHECK(split.read_gradients() == fused.read_gradients());
  if (!ids) CHECK(split.read(split.grad_input()) == fused.read(fused.grad_input()));
  split.backward(!ids);  // a plan may ask for a split and still run both halves at once
  CHECK(split.read_gradients() == fused.read_gradients());
}

/// A recomputed pass gives the same bits and the same gradients, and neither pass writes a parameter.
template <class Context = layer_context<>, class L>
void check_recompute(const L& l, const any_device& device, const layer_case& how) {
  const bool ids = how.vocabulary > 0;
  layer_runner<L, Context> runner{l, device, how};
  runner.forward();
  const auto output = runner.read(runner.output());
  std::vector<std::vector<double>> kept;
  for (const auto& k : runner.kept) kept.push_back(runner.read(k));
  runner.backward(!ids);
  const auto gradients = runner.read_gradients();
  std::vector<std::vector<double>> params;
  for (const auto& p : runner.params) params.push_back(runner.read(p));

  runner.forward(phase::recompute);
  CHECK(runner.read(runner.output()) == output);
  for (std::size_t i = 0; i < kept.size(); ++i) CHECK(runner.read(runner.kept[i]) == kept[i]);
  runner.backward(!ids);
  CHECK(runner.read_gradients() == gradients);
  for (std::size_t i = 0; i < params.size(); ++i) {
    INFO("parameter " << runner.specs[i].name);
    CHECK(runner.read(runner.params[i]) == params[i]);
  }
}

/// One object serves two replicas with different weights whose passes interleave.
template <class Context = layer_context<>, class L>
void check_replicas(const L& l, const any_device& device, layer_case how) {
  const bool ids = how.vocabulary > 0;
  std::vector<std::vector<std::vector<double>>> alone;
  std::vector<std::vector<double>> outputs;
  for (const std::uint32_t weights : {1U, 2U}) {
    how.weights = weights;
    layer_runner<L, Context> runner{l, device, how};
    runner.forward();
    outputs.push_back(runner.read(runner.output()));
    runner.backward(!ids);
    alone.push_back(runner.read_gradients());
  }
  how.weights = 1;
  layer_runner<L, Context> first{l, device, how};
  how.weights = 2;
  layer_runner<L, Context> second{l, device, how};
  first.forward();
  second.forward();
  CHECK(first.read(first.output()) == outputs[0]);
  CHECK(second.read(second.output()) == outputs[1]);
  first.backward(!ids);
  second.backward(!ids);
  CHECK(first.read_gradients() == alone[0]);
  CHECK(second.read_gradients() == alone[1]);
  if (!first.params.empty()) CHECK(outputs[0] != outputs[1]);  // the control: the weights did differ
}

/// Each sample gives what it gives alone (not for layers that mix samples).
template <class Context = layer_context<>, class L>
void check_samples_are_independent(const L& l, const any_device& device, layer_case how) {
  layer_runner<L, Context> all{l, device, how};
  all.forward();
  const auto input = all.read(all.input());
  const auto output = all.read(all.output());
  const std::size_t samples = how.input[0];
  how.input[0] = 1;
  layer_runner<L, Context> one{l, device, how};
  for (std::size_t s = 0; s < samples; ++s) {
    const std::size_t in = input.size() / samples;
    const std::size_t out = output.size() / samples;
    one.write(one.input(), std::span{input}.subspan(s * in, in));
    one.sample_ids[0] = all.sample_ids[s];
    one.forward();
    CHECK(distance(one.read(one.output()), std::span{output}.subspan(s * out, out)) < 1e-13);
  }
}

/// A steady step takes no memory from the device.
template <class Context = layer_context<>, class L>
void check_steady_memory(const L& l, const any_device& device, const layer_case& how) {
  const bool ids = how.vocabulary > 0;
  layer_runner<L, Context> runner{l, device, how};
  runner.forward();
  runner.backward(!ids);
  const auto before = runner.device.counters().allocations;
  runner.forward();
  runner.backward(!ids);
  CHECK(runner.device.counters().allocations == before);
}

/// Everything above.
template <class Context = layer_context<>, class L>
void check_layer(const L& l, const any_device& device, const layer_case& how) {
  static_assert(layer<L, Context>);
  check_gradients<Context>(l, device, how);
  check_slots<Context>(l, device, how);
  check_split<Context>(l, device, how);
  check_recompute<Context>(l, device, how);
  check_replicas<Context>(l, device, how);
  check_samples_are_independent<Context>(l, device, how);
  check_steady_memory<Context>(l, device, how);
  CHECK(parameter_count(l) == l.parameters().size());
  CHECK(l.forward_flops(how.input) >= 0);
}

}  // namespace hetero::test
