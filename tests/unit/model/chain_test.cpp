// SPDX-License-Identifier: Apache-2.0
#include <hetero/device/cpu_device.hpp>
#include <hetero/model/layer/embedding.hpp>
#include <hetero/model/layer/rms_norm.hpp>
#include <hetero/model/layer/tied_head.hpp>
#include <hetero/model/layer/transformer_block.hpp>

#include "archetypes/layer.hpp"
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

linear wide() { return {.name = "wide", .inputs = 4, .outputs = 6}; }
linear narrow() { return {.name = "narrow", .inputs = 6, .outputs = 4}; }

transformer_block block(double dropped = 0, bool bias = true) {
  return make_transformer_block({.name = "b", .heads = 2, .width = 4, .hidden = 6, .dropout = dropped, .bias = bias});
}

}  // namespace

TEST_CASE("chains conform", "[model]") {
  const auto device = device_named(GENERATE(0, 1));
  check_layer(chain{wide()}, device, {.input = {3, 4}});
  check_layer(chain{wide(), relu{}}, device, {.input = {3, 4}});
  check_layer(chain{wide(), gelu{}, narrow(), relu{}}, device, {.input = {3, 4}});
  // Neither neighbour of the dropouts reads what lies between: it is not kept.
  check_layer(chain{dropout{"first", 0.3}, dropout{"second", 0.3}, relu{}, dropout{"third", 0.3}}, device,
              {.input = {3, 4}});
  check_layer(chain{embedding{.name = "e", .vocabulary = 6, .width = 4, .positions = 5}, wide(), relu{}}, device,
              {.input = {2, 5}, .vocabulary = 6});
}

TEST_CASE("chains of chains conform", "[model]") {
  const auto device = device_named(GENERATE(0, 1));
  check_layer(chain{chain{wide(), relu{}}, chain{narrow(), chain{rms_norm{.name = "n", .width = 4}, gelu{}}}}, device,
              {.input = {3, 4}});
  check_layer(chain{chain{dropout{"a", 0.3}, chain{dropout{"b", 0.3}}}, wide()}, device, {.input = {3, 4}});
}

TEST_CASE("residuals conform", "[model]") {
  const auto device = device_named(GENERATE(0, 1));
  check_layer(residual{chain{wide(), relu{}, narrow()}}, device, {.input = {3, 4}});
  check_layer(residual{relu{}}, device, {.input = {3, 4}});  // its backward pass reads its own output
  check_layer(residual{chain{wide(), narrow(), relu{}}, dropout{"d", 0.4}}, device, {.input = {3, 4}});
  check_layer(residual{relu{}, dropout{"d", 0.4}}, device, {.input = {3, 4}});
  check_layer(residual{residual{chain{wide(), narrow()}}, dropout{"d", 0.4}}, device, {.input = {3, 4}});
}

TEST_CASE("transformer blocks conform", "[model]") {
  const auto device = device_named(GENERATE(0, 1, 2));
  check_layer(block(), device, {.input = {2, 3, 4}});
  check_layer(block(0.3, false), device, {.input = {2, 3, 4}});
}

TEST_CASE("a chain keeps only what its backward pass reads", "[model]") {
  const saved_request fused{.input = {3, 4}};
  const saved_request split{.input = {3, 4}, .split_backward = true};
  CHECK(chain{wide(), gelu{}, narrow()}.saved(fused).size() == 2);  // both inputs
  CHECK(chain{wide(), gelu{}, narrow()}.saved(split).size() == 4);  // and two gradients
  CHECK(chain{dropout{"a", 0.3}, dropout{"b", 0.3}}.saved(fused).empty());
  CHECK(chain{wide(), narrow(), dropout{"a", 0.3}}.saved(fused).size() == 1);
  CHECK(residual{chain{wide(), narrow()}}.saved(fused).size() == 1);
  CHECK(residual{chain{wide(), narrow(), relu{}}}.saved(fused).size() ==
        2);  // relu reads its output, the sum covers it

  const auto kept = block().saved({.input = {2, 3, 4}, .type = dtype::f64});
  std::size_t elements = 0;
  for (const auto& spec : kept) {
    CHECK(spec.type == dtype::f64);
    elements += spec.extents.count();
  }
  // per token: two norms (2 statistics, 1 output each), qkv, log-sum-exp of 2 heads, attention, first half, 2 x hidden
  CHECK(elements == 6 * (2 * (2 + 4) + 12 + 2 + 4 + 4 + 2 * 6));
}

TEST_CASE("a chain flattens parameters, FLOPs and shapes", "[model]") {
  const chain c{wide(), gelu{}, narrow()};
  const auto specs = c.parameters();
  REQUIRE(specs.size() == 4);
  CHECK(specs[0].name == "wide.weight");
  CHECK(specs[3].name == "narrow.bias");
  CHECK(c.output_shape({3, 4}) == shape{3, 4});
  CHECK(c.forward_flops({3, 4}) == 2.0 * 3 * 4 * 6 + 10.0 * 3 * 6 + 2.0 * 3 * 6 * 4);
  CHECK(c.get<2>().name == "narrow");
  CHECK_THROWS_WITH((chain{wide(), wide()}.output_shape({3, 4})), ContainsSubstring("rows of 4"));
  CHECK_THROWS_WITH((residual{wide()}.output_shape({3, 4})),
                    ContainsSubstring("[3, 4]") && ContainsSubstring("[3, 6]"));
}

TEST_CASE("a chain refuses kept tensors of another request", "[model]") {
  const chain c{wide(), gelu{}, narrow()};
  layer_runner<decltype(c)> runner{c, reference_device{}, {.input = {3, 4}, .split = true}};
  auto context = runner.context();
  context.split_backward = false;
  CHECK_THROWS_WITH(c.forward(context, runner.params, runner.input(), runner.output(), runner.state()),
                    ContainsSubstring("keeps 2 tensors with a fused backward pass, it was given 4"));
  layer_runner<decltype(c)> fused{c, reference_device{}, {.input = {3, 4}}};
  fused.forward();
  CHECK_THROWS_WITH(fused.backward_split(), ContainsSubstring("split_backward"));
}

TEST_CASE("only the first layer of a chain hears that nobody wants the input's gradient", "[model]") {
  struct listener : layer_base {
    std::vector<bool>* heard;
    void forward(execution& context, layer_parameters, tensor_view, tensor_view, const saved_state&) const {
      heard->push_back(context.needs_input_gradient);
    }
    void backward_input(execution& context, layer_parameters, tensor_view, tensor_view grad_input, const saved_state&,
                        layer_gradients) const {
      heard->push_back(context.needs_input_gradient);
      heard->push_back(static_cast<bool>(grad_input));
    }
  };
  std::vector<bool> first;
  std::vector<bool> second;
  listener a;
  a.heard = &first;
  listener b;
  b.heard = &second;
  const chain c{a, b};
  layer_runner<decltype(c)> runner{c, reference_device{}, {.input = {3, 4}}};
  auto context = runner.context(phase::train, false);
  c.forward(context, {}, runner.input(), runner.output(), runner.state());
  c.backward(context, {}, runner.grad_output(), {}, runner.state(), {});
  CHECK(first == std::vector<bool>{false, false, false});
  CHECK(second == std::vector<bool>{true, true, true});
  CHECK_FALSE(context.needs_input_gradient);  // as the caller set it
}
