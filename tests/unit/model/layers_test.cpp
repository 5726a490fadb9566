// SPDX-License-Identifier: Apache-2.0
// Every layer of the library through the conformance suite, on the CPU backend and on the reference device.
#include <hetero/device/cpu_device.hpp>
#include <hetero/model/layer/activation.hpp>
#include <hetero/model/layer/attention.hpp>
#include <hetero/model/layer/dropout.hpp>
#include <hetero/model/layer/embedding.hpp>
#include <hetero/model/layer/layer_norm.hpp>
#include <hetero/model/layer/linear.hpp>
#include <hetero/model/layer/rms_norm.hpp>
#include <hetero/model/layer/tied_head.hpp>

#include "conformance/layer.hpp"
#include "support/catch.hpp"
#include "support/reference_device.hpp"

using namespace hetero;
using namespace hetero::test;

namespace {

any_device device_named(int which) {
  if (which == 0) return reference_device{};
  return cpu_device{{.threads = static_cast<std::size_t>(which)}};
}

}  // namespace

TEST_CASE("linear conforms", "[model]") {
  const auto device = device_named(GENERATE(0, 1, 2));
  check_layer(linear{.name = "l", .inputs = 5, .outputs = 3}, device, {.input = {4, 5}});
  check_layer(linear{.name = "l", .inputs = 5, .outputs = 3, .bias = false}, device, {.input = {2, 3, 5}});
}

TEST_CASE("tied_head conforms", "[model]") {
  const auto device = device_named(GENERATE(0, 1, 2));
  check_layer(tied_head{.table = "t", .vocabulary = 7, .width = 4}, device, {.input = {2, 3, 4}});
}

TEST_CASE("embedding conforms", "[model]") {
  const auto device = device_named(GENERATE(0, 1, 2));
  embedding e{.name = "e", .vocabulary = 6, .width = 4, .positions = 5};
  check_layer(e, device, {.input = {3, 5}, .vocabulary = 6});
  check_layer(e, device, {.input = {3, 2}, .vocabulary = 6});  // shorter than the position table
  check_layer(embedding{.name = "e", .vocabulary = 6, .width = 4}, device, {.input = {3, 5}, .vocabulary = 6});
  e.drop = {"e.dropout", 0.5};
  check_layer(e, device, {.input = {3, 5}, .vocabulary = 6});
}

TEST_CASE("norms conform", "[model]") {
  const auto device = device_named(GENERATE(0, 1, 2));
  check_layer(layer_norm{.name = "n", .width = 6}, device, {.input = {2, 3, 6}});
  check_layer(layer_norm{.name = "n", .width = 6, .bias = false}, device, {.input = {4, 6}});
  check_layer(rms_norm{.name = "n", .width = 6}, device, {.input = {2, 3, 6}});
}

TEST_CASE("layer_norm slots may differ in accumulate", "[model]") {
  const layer_norm l{.name = "n", .width = 6};
  layer_runner<layer_norm> runner{l, reference_device{}, {.input = {4, 6}}};
  runner.forward();
  runner.backward();
  const auto once = runner.read_gradients();
  runner.slots[1].accumulate = true;
  runner.backward();
  const auto mixed = runner.read_gradients();
  CHECK(distance(mixed[0], once[0]) < 1e-14);
  for (std::size_t i = 0; i < 6; ++i) CHECK(mixed[1][i] == Approx(2 * once[1][i]));
}

TEST_CASE("activations conform", "[model]") {
  const auto device = device_named(GENERATE(0, 1, 2));
  check_layer(gelu{}, device, {.input = {3, 7}});
  check_layer(relu{}, device, {.input = {3, 7}});
}

TEST_CASE("attention conforms", "[model]") {
  const auto device = device_named(GENERATE(0, 1, 2));
  check_layer(causal_attention{.heads = 2, .width = 4}, device, {.input = {2, 5, 12}});
  check_layer(causal_attention{.heads = 1, .width = 3}, device, {.input = {1, 4, 9}});
}

TEST_CASE("attention does not look ahead", "[model]") {
  const auto device = device_named(GENERATE(0, 1));
  const causal_attention l{.heads = 2, .width = 4};
  layer_runner<causal_attention> runner{l, device, {.input = {1, 5, 12}}};
  runner.forward();
  const auto before = runner.read(runner.output());
  auto input = runner.read(runner.input());
  for (std::size_t i = 3 * 12; i < 5 * 12; ++i) input[i] += 1;  // tokens 3 and 4
  runner.write(runner.input(), input);
  runner.forward();
  const auto after = runner.read(runner.output());
  CHECK(std::vector(after.begin(), after.begin() + 12) == std::vector(before.begin(), before.begin() + 12));
  CHECK(after[12] != before[12]);
}

TEST_CASE("dropout conforms", "[model]") {
  const auto device = device_named(GENERATE(0, 1, 2));
  check_layer(dropout{.name = "d", .probability = 0.4}, device, {.input = {3, 2, 9}});
  check_layer(dropout{.name = "d"}, device, {.input = {3, 2, 9}});
}

TEST_CASE("dropout masks depend on name, step and sample, and vanish in eval", "[model]") {
  const auto device = device_named(GENERATE(0, 1));
  const dropout first{.name = "a", .probability = 0.25};
  const dropout other{.name = "b", .probability = 0.25};
  layer_runner<dropout> runner{first, device, {.input = {2, 4000}}};
  runner.write(runner.input(), std::vector<double>(8000, 1.0));
  const auto masked = [&](const dropout& d, std::uint64_t step, phase pass) {
    auto context = runner.context(pass);
    context.step = step;
    d.forward(context, {}, runner.input(), runner.output(), runner.state());
    return runner.read(runner.output());
  };
  const auto mask = masked(first, 3, phase::train);
  CHECK(masked(first, 3, phase::recompute) == mask);
  CHECK(masked(first, 4, phase::train) != mask);
  CHECK(masked(other, 3, phase::train) != mask);
  CHECK(masked(first, 3, phase::eval) == std::vector<double>(8000, 1.0));
  CHECK(std::vector(mask.begin(), mask.begin() + 4000) != std::vector(mask.begin() + 4000, mask.end()));
  std::size_t dropped = 0;
  for (const double v : mask) {
    REQUIRE((v == 0 || v == Approx(1 / 0.75)));
    dropped += v == 0 ? 1 : 0;
  }
  CHECK(std::abs(static_cast<double>(dropped) / 8000 - 0.25) < 0.02);
}

TEST_CASE("layers refuse what does not fit", "[model]") {
  CHECK_THROWS_WITH((linear{.name = "l", .inputs = 5, .outputs = 3}.output_shape({2, 4})),
                    ContainsSubstring("'l' takes rows of 5") && ContainsSubstring("[2, 4]"));
  CHECK_THROWS_WITH((embedding{.name = "e", .vocabulary = 6, .width = 4, .positions = 5}.output_shape({2, 6})),
                    ContainsSubstring("at most 5"));
  CHECK_THROWS_WITH((causal_attention{.heads = 3, .width = 4}.output_shape({1, 2, 12})),
                    ContainsSubstring("width 4 and 3 heads"));
  CHECK_THROWS_WITH((causal_attention{.heads = 2, .width = 4}.output_shape({1, 2, 4})), ContainsSubstring("12]"));
  CHECK_THROWS_WITH((layer_norm{.name = "n", .width = 4}.output_shape({1, 5})), ContainsSubstring("rows of 4"));
  CHECK_THROWS_WITH((rms_norm{.name = "n", .width = 4}.output_shape({1, 5})), ContainsSubstring("rows of 4"));
  CHECK_THROWS_WITH((tied_head{.table = "t", .vocabulary = 6, .width = 4}.output_shape({1, 5})),
                    ContainsSubstring("rows of 4"));

  const embedding e{.name = "e", .vocabulary = 6, .width = 4};
  layer_runner<embedding> ids{e, reference_device{}, {.input = {1, 2}, .vocabulary = 6}};
  ids.forward();
  auto context = ids.context();
  CHECK_THROWS_WITH(e.backward_input(context, ids.params, ids.grad_output(), ids.output(), ids.state(), ids.slots),
                    ContainsSubstring("unsupported") && ContainsSubstring("no gradient"));
  ids.write(ids.input(), std::vector<double>{0, 6});
  CHECK_THROWS_WITH(ids.forward(), ContainsSubstring("invalid_argument"));

  const dropout d{.name = "d", .probability = 0.5};
  layer_runner<dropout> dropped{d, reference_device{}, {.input = {2, 3}}};
  dropped.sample_ids.pop_back();
  CHECK_THROWS_WITH(dropped.forward(), ContainsSubstring("2 samples") && ContainsSubstring("1 sample ids"));
  const dropout wrong{.name = "d", .probability = 1};
  layer_runner<dropout> all{wrong, reference_device{}, {.input = {2, 3}}};
  CHECK_THROWS_WITH(all.forward(), ContainsSubstring("[0, 1)"));
}

TEST_CASE("the gradient check finds a wrong gradient", "[model]") {
  struct wrong_gelu : gelu {  // the control: a backward pass that is off by one part in a thousand
    void backward_input(execution& context, layer_parameters params, tensor_view grad_output, tensor_view grad_input,
                        const saved_state& saved, layer_gradients grads) const {
      gelu::backward_input(context, params, grad_output, grad_input, saved, grads);
      context.launch(op::scale{.values = grad_input, .factor = 1.001});
    }
  };
  const wrong_gelu l;
  layer_runner<wrong_gelu> runner{l, reference_device{}, {.input = {3, 7}}};
  runner.forward();
  runner.backward();
  const auto gradient = runner.read(runner.grad_input());
  CHECK(distance(gradient, differences(runner, runner.input())) > 1e-4);
}
