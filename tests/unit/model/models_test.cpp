// SPDX-License-Identifier: Apache-2.0
// gpt and mlp as wholes: gradients, structure, initialisation, refusals, profile.
#include <cmath>
#include <numeric>

#include <hetero/device/cpu_device.hpp>
#include <hetero/model/gpt.hpp>
#include <hetero/model/mlp.hpp>
#include <hetero/model/profile.hpp>

#include "conformance/layer.hpp"
#include "support/catch.hpp"
#include "support/model_runner.hpp"
#include "support/reference_device.hpp"

using namespace hetero;
using namespace hetero::test;

namespace {

any_device device_named(int which) {
  if (which == 0) return reference_device{};
  return cpu_device{{.threads = static_cast<std::size_t>(which)}};
}

gpt small_gpt(double dropped = 0, bool bias = true) {
  return gpt{{.layers = 2, .heads = 2, .width = 4, .context = 3, .vocabulary = 5, .dropout = dropped, .bias = bias}};
}

model_batch tokens(std::size_t samples, std::size_t context, std::size_t vocabulary, bool ragged) {
  model_batch b;
  b.inputs = whole_numbers(samples * context, vocabulary, 1);
  for (const double t : whole_numbers(samples * context, vocabulary, 2))
    b.targets.push_back(static_cast<std::int32_t>(t));
  b.weights.assign(samples, 1.0F);
  b.sample_ids.resize(samples);
  std::iota(b.sample_ids.begin(), b.sample_ids.end(), std::int64_t{100});
  if (ragged) {
    for (std::size_t i = 0; i < b.targets.size(); i += 4) b.targets[i] = -1;
    for (std::size_t s = 0; s < samples; ++s) b.weights[s] = 0.5F + static_cast<float>(s);
  }
  return b;
}

/// Every parameter of the model against central differences of its loss. The distance found is returned.
template <class Runner> double gradient_distance(Runner& runner, const model_batch& batch) {
  // Initial weights are small and alike; larger ones make every path through the model count.
  std::uint32_t stream = 50;
  for (const auto& spec : runner.specs) {
    auto values = normals(spec.extents.count(), stream++);
    for (double& v : values) v = 0.4 * v + 0.2;
    runner.write(spec.name, values);
  }
  runner.run(batch, true);
  double largest = 0;
  constexpr double step = 1e-5;
  for (const auto& spec : runner.specs) {
    const auto gradient = runner.gradient(spec.name);
    auto values = runner.read(spec.name);
    std::vector<double> slopes(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double centre = values[i];
      values[i] = centre + step;
      runner.write(spec.name, values);
      const double above = runner.run(batch, false).sum;
      values[i] = centre - step;
      runner.write(spec.name, values);
      slopes[i] = (above - runner.run(batch, false).sum) / (2 * step);
      values[i] = centre;
    }
    runner.write(spec.name, values);
    INFO(spec.name);
    const double found = distance(gradient, slopes);
    CHECK(found < 1e-6);
    largest = std::max(largest, found);
  }
  return largest;
}

}  // namespace

TEST_CASE("gpt passes the gradient check as a whole", "[model]") {
  const auto device = device_named(GENERATE(0, 1));
  const double dropped = GENERATE(0.0, 0.25);
  const gpt m = small_gpt(dropped, dropped == 0);
  model_runner<gpt> runner{m, device, dtype::f64, 3};
  gradient_distance(runner, tokens(3, 3, 5, true));
}

TEST_CASE("mlp passes the gradient check as a whole", "[model]") {
  const auto device = device_named(GENERATE(0, 1));
  const mlp m{{.widths = {6, 5, 4, 3}}};
  model_batch batch = tokens(4, 1, 3, true);
  batch.inputs = normals(4 * 6, 3);
  model_runner<mlp> runner{m, device, dtype::f64, 4};
  gradient_distance(runner, batch);
}

TEST_CASE("a model's split backward pass gives the bits of the fused one", "[model]") {
  const auto device = device_named(GENERATE(0, 1));
  const gpt m = small_gpt(0.25);
  const auto batch = tokens(3, 3, 5, true);
  model_runner<gpt> fused{m, device, dtype::f64, 3};
  model_runner<gpt> split{m, device, dtype::f64, 3, 1, true};
  CHECK(fused.run(batch, true) == split.run(batch, true));
  for (const auto& spec : fused.specs) {
    INFO(spec.name);
    CHECK(fused.gradient(spec.name) == split.gradient(spec.name));
  }
}

TEST_CASE("the CPU backend and the reference device agree on a model", "[model]") {
  const gpt m{{.layers = 2, .heads = 2, .width = 16, .context = 9, .vocabulary = 11}};
  const auto batch = tokens(3, 9, 11, true);
  model_runner<gpt> reference{m, reference_device{}, dtype::f32, 3};
  model_runner<gpt> cpu{m, cpu_device{{.threads = 2}}, dtype::f32, 3};
  const weighted_sum a = reference.run(batch, true);
  const weighted_sum b = cpu.run(batch, true);
  CHECK(b.sum == Approx(a.sum).epsilon(1e-5));
  CHECK(b.weight == a.weight);
  for (const auto& spec : reference.specs) {
    const auto expected = reference.gradient(spec.name);
    const auto found = cpu.gradient(spec.name);
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      difference += std::pow(found[i] - expected[i], 2);
      norm += std::pow(expected[i], 2);
    }
    INFO(spec.name);
    CHECK(std::sqrt(difference) <= 1e-5 * std::sqrt(norm));
  }
}

TEST_CASE("a batch is the sum of its samples, whatever their weights and ignored targets", "[model]") {
  const gpt m = small_gpt(0.25);
  const auto batch = tokens(3, 3, 5, true);
  model_runner<gpt> whole{m, cpu_device{}, dtype::f64, 3};
  model_runner<gpt> one{m, cpu_device{}, dtype::f64, 1};
  const weighted_sum total = whole.run(batch, true);
  weighted_sum parts;
  weighted_sum means;  // the control
  std::vector<double> gradient(m.options().vocabulary * m.options().width);
  for (std::size_t s = 0; s < 3; ++s) {
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(s) * 3;
    const model_batch part{{batch.inputs.begin() + at, batch.inputs.begin() + at + 3},
                           {batch.targets.begin() + at, batch.targets.begin() + at + 3},
                           {batch.weights[s]},
                           {batch.sample_ids[s]}};
    const weighted_sum found = one.run(part, true);
    parts += found;
    means += {found.sum / found.weight, 1};
    const auto g = one.gradient("embedding.token");
    for (std::size_t i = 0; i < g.size(); ++i) gradient[i] += g[i];
  }
  CHECK(parts.sum == Approx(total.sum).epsilon(1e-12));
  CHECK(parts.weight == total.weight);
  CHECK(distance(gradient, whole.gradient("embedding.token")) < 1e-12);
  CHECK(std::abs(means.sum / means.weight - total.sum / total.weight) > 1e-3);
}

TEST_CASE("gpt has GPT-2's structure", "[model]") {
  const gpt gpt2{{}};
  CHECK(gpt2.num_parameters() == 124'439'808);
  const model_profile profile = profile_of(gpt2);
  CHECK(profile.parameters() == 124'439'808);
  REQUIRE(profile.layers.size() == 14);
  CHECK(profile.layers[0].name == "embedding");
  CHECK(profile.layers[0].parameters == (50257 + 1024) * 768);
  CHECK(profile.layers[1].name == "block.0");
  CHECK(profile.layers[1].parameters == 12 * 768 * 768 + 13 * 768);
  CHECK(profile.layers[13].name == "head");
  CHECK(profile.layers[13].parameters == 2 * 768);  // the tied table counts with the embedding

  // FLOPs of a sample in closed form: four matrices per block and the head, causal attention, and the small rest.
  const double t = 1024;
  const double w = 768;
  const double block = 2 * 12 * t * w * w + 2 * t * (t + 1) * w;
  const double rest = 2 * 8 * t * w + 10 * t * 4 * w + 2 * t * w;
  CHECK(profile.layers[1].forward_flops == Approx(block + rest).epsilon(1e-12));
  CHECK(profile.layers[13].forward_flops == Approx(2 * t * w * 50257 + 8 * t * w).epsilon(1e-12));
  CHECK(profile.layers[1].output_bytes == 1024 * 768 * 4);
  // Norm statistics and outputs, qkv, log-sum-exp of 12 heads, attention, first half, expanded before and after gelu,
  // output.
  CHECK(profile.layers[1].activation_bytes == 1024 * 4 * (2 * (2 + 768) + 3 * 768 + 12 + 768 + 768 + 8 * 768 + 768));
  CHECK(profile.layers[13].output_bytes == std::size_t{1024} * 50257 * 4);

  const gpt bare{{.layers = 3, .heads = 2, .width = 8, .context = 6, .vocabulary = 10, .bias = false}};
  CHECK(bare.num_parameters() == profile_of(bare).parameters());
  CHECK(bare.num_parameters() == (10 + 6) * 8 + 3 * (12 * 64 + 16) + 8);
}

TEST_CASE("parameter names of gpt are stable and unique but for the tied table", "[model]") {
  const gpt m = small_gpt();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < m.size(); ++i) {
    m.visit(i, [&](const auto& unit) {
      for (const auto& spec : unit.parameters()) names.push_back(spec.name);
    });
  }
  REQUIRE(names.size() == 2 + 2 * 12 + 3);
  CHECK(names[0] == "embedding.token");
  CHECK(names[1] == "embedding.position");
  CHECK(std::vector(names.begin() + 2, names.begin() + 14) ==
        std::vector<std::string>{"block.0.attention.norm.gain", "block.0.attention.norm.bias",
                                 "block.0.attention.qkv.weight", "block.0.attention.qkv.bias",
                                 "block.0.attention.projection.weight", "block.0.attention.projection.bias",
                                 "block.0.feed_forward.norm.gain", "block.0.feed_forward.norm.bias",
                                 "block.0.feed_forward.expand.weight", "block.0.feed_forward.expand.bias",
                                 "block.0.feed_forward.projection.weight", "block.0.feed_forward.projection.bias"});
  CHECK(names[names.size() - 3] == "head.norm.gain");
  CHECK(names.back() == "embedding.token");
  std::sort(names.begin(), names.end());
  CHECK(std::unique(names.begin(), names.end()) == names.end() - 1);
}

TEST_CASE("gpt starts as GPT-2 does", "[model]") {
  const gpt m{{.layers = 8, .heads = 2, .width = 64, .context = 32, .vocabulary = 100}};
  model_runner<gpt> runner{m, cpu_device{}, dtype::f32, 1};
  const auto deviation = [&](const std::string& name) {
    const auto values = runner.read(name);
    double squares = 0;
    for (const double v : values) squares += v * v;
    return std::sqrt(squares / static_cast<double>(values.size()));
  };
  CHECK(deviation("embedding.token") == Approx(0.02).epsilon(0.05));
  CHECK(deviation("block.3.attention.qkv.weight") == Approx(0.02).epsilon(0.05));
  CHECK(deviation("block.3.attention.projection.weight") == Approx(0.02 / 4).epsilon(0.05));
  CHECK(deviation("block.3.feed_forward.projection.weight") == Approx(0.02 / 4).epsilon(0.05));
  CHECK(deviation("block.3.attention.qkv.bias") == 0);
  CHECK(runner.read("head.norm.gain") == std::vector<double>(64, 1.0));
  // An untrained model knows nothing: its loss is that of a uniform guess.
  const weighted_sum loss = runner.run(tokens(1, 32, 100, false), false);
  CHECK(loss.weight == 32);
  CHECK(loss.sum / loss.weight == Approx(std::log(100.0)).epsilon(0.02));
}

TEST_CASE("weight decay applies to matrices only", "[model]") {
  const gpt m = small_gpt();
  for (std::size_t i = 0; i < m.size(); ++i) {
    m.visit(i, [&](const auto& unit) {
      for (const auto& spec : unit.parameters()) CHECK(spec.decays == (spec.extents.dims() == 2));
    });
  }
}

TEST_CASE("models refuse options that make no model", "[model]") {
  const auto code = [](const gpt_options& o) {
    try {
      gpt m{o};
    } catch (const error& e) {
      return std::string{e.what()};
    }
    return std::string{"accepted"};
  };
  CHECK(code({}) == "accepted");
  CHECK_THAT(code({.heads = 5, .width = 768}),
             ContainsSubstring("768 is not a multiple of its 5") && ContainsSubstring("770"));
  CHECK_THAT(code({.layers = 0}), ContainsSubstring("invalid_argument") && ContainsSubstring("layers 0"));
  CHECK_THAT(code({.heads = 0}), ContainsSubstring("heads 0"));
  CHECK_THAT(code({.width = 0}), ContainsSubstring("width 0"));
  CHECK_THAT(code({.context = 0}), ContainsSubstring("context 0"));
  CHECK_THAT(code({.vocabulary = 0}), ContainsSubstring("vocabulary 0"));
  CHECK_THAT(code({.vocabulary = std::size_t{1} << 32U}), ContainsSubstring("32-bit"));
  CHECK_THAT(code({.dropout = 1}), ContainsSubstring("[0, 1)"));
  CHECK_THAT(code({.dropout = -0.1}), ContainsSubstring("[0, 1)"));
  CHECK_THAT(code({.dropout = std::nan("")}), ContainsSubstring("[0, 1)"));
  CHECK_THROWS_WITH(mlp{{.widths = {784}}}, ContainsSubstring("at least two widths"));
  CHECK_THROWS_WITH(mlp{{}}, ContainsSubstring("got 0"));
  CHECK_THROWS_WITH((mlp{{.widths = {784, 0, 10}}}), ContainsSubstring("mlp(784, 0, 10)"));
}

TEST_CASE("names and hashes tell models apart", "[model]") {
  CHECK(model_hash(small_gpt()) == model_hash(small_gpt()));
  CHECK(model_hash(small_gpt()) != model_hash(small_gpt(0.1)));
  const gpt one{{.layers = 2, .heads = 2, .width = 8, .context = 3, .vocabulary = 5}};
  const gpt other{{.layers = 2, .heads = 4, .width = 8, .context = 3, .vocabulary = 5}};  // the same shapes everywhere
  CHECK(model_hash(one) != model_hash(other));
  CHECK(mlp{{.widths = {784, 128, 10}}}.name() == "mlp(784, 128, 10)");
  CHECK(mlp{{.widths = {784, 128, 10}}}.num_parameters() == 784 * 128 + 128 + 128 * 10 + 10);
  CHECK(profile_of(mlp{{.widths = {784, 128, 10}}}).parameters() == 101'770);
}

TEST_CASE("gpt accepts contexts shorter than its longest", "[model]") {
  const gpt m = small_gpt();
  m.visit(0, [](const auto& unit) { CHECK(unit.output_shape({2, 2}) == shape{2, 2, 4}); });
  m.visit(0, [](const auto& unit) { CHECK_THROWS_WITH(unit.output_shape({2, 4}), ContainsSubstring("at most 3")); });
}
