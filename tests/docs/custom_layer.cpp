// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <vector>

// [include]
#include <hetero/trainer.hpp>
// [include]

// [layer]
/// output = (input * down^T) * up^T: a linear layer through `rank` numbers.
struct low_rank_linear {
  std::string name;
  std::size_t inputs = 0;
  std::size_t outputs = 0;
  std::size_t rank = 1;

  static constexpr bool splits_backward = true;
  static constexpr bool reads_output = false;  // the backward pass needs the input, not the output

  std::vector<hetero::parameter_spec> parameters() const {
    const auto init = [](std::size_t n) { return hetero::initializer::normal(1 / std::sqrt(static_cast<double>(n))); };
    return {{.name = name + ".down", .extents = {rank, inputs}, .init = init(inputs)},
            {.name = name + ".up", .extents = {outputs, rank}, .init = init(rank)}};
  }

  hetero::shape output_shape(const hetero::shape& input) const {
    hetero::require(input.dims() == 2 && input[1] == inputs, hetero::errc::invalid_shape,
                    [&] { return "low_rank_linear '" + name + "' cannot take " + to_string(input); });
    return {input[0], outputs};
  }

  // Kept from the forward pass: input * down^T, one row per sample.
  std::vector<hetero::tensor_spec> saved(const hetero::saved_request& request) const {
    return {{request.type, {request.input[0], rank}}};
  }

  double forward_flops(const hetero::shape& input) const {
    return 2.0 * static_cast<double>(input[0] * rank * (inputs + outputs));
  }
  // [layer]

  // [forward]
  void forward(hetero::execution& context, hetero::layer_parameters params, hetero::tensor_view input,
               hetero::tensor_view output, const hetero::saved_state& saved) const {
    const hetero::tensor_view middle = saved.kept[0];
    context.launch(hetero::op::matmul{.out = middle, .a = input, .b = params[0], .transpose_b = true});
    context.launch(hetero::op::matmul{.out = output, .a = middle, .b = params[1], .transpose_b = true});
  }
  // [forward]

  // [backward]
  void backward_input(hetero::execution& context, hetero::layer_parameters params, hetero::tensor_view grad_output,
                      hetero::tensor_view grad_input, const hetero::saved_state& saved, hetero::layer_gradients) const {
    if (!grad_input) return;  // nobody wants it: this is the first layer
    const hetero::scratch_pool::frame frame{context.scratch};
    const auto grad_middle = before_up(context, params, grad_output, saved);
    context.launch(hetero::op::matmul{.out = grad_input, .a = grad_middle, .b = params[0]});
  }

  void backward_weight(hetero::execution& context, hetero::layer_parameters params, hetero::tensor_view grad_output,
                       const hetero::saved_state& saved, hetero::layer_gradients grads) const {
    if (grads[1].view) {
      context.launch(hetero::op::matmul{.out = grads[1].view, .a = grad_output, .b = saved.kept[0],
                                        .transpose_a = true, .accumulate = grads[1].accumulate});
    }
    if (grads[0].view) {  // a slot without memory is a frozen parameter
      const hetero::scratch_pool::frame frame{context.scratch};
      const auto grad_middle = before_up(context, params, grad_output, saved);
      context.launch(hetero::op::matmul{.out = grads[0].view, .a = grad_middle, .b = saved.input,
                                        .transpose_a = true, .accumulate = grads[0].accumulate});
    }
  }

 private:
  static hetero::tensor_view before_up(hetero::execution& context, hetero::layer_parameters params,
                                       hetero::tensor_view grad_output, const hetero::saved_state& saved) {
    const auto grad = context.scratch.take(grad_output.type(), saved.kept[0].extents());
    context.launch(hetero::op::matmul{.out = grad, .a = grad_output, .b = params[1]});
    return grad;
  }
};

static_assert(hetero::layer<low_rank_linear>);
// [backward]

// [model]
class low_rank_classifier {
 public:
  std::string name() const { return "low_rank_classifier(10, 32, 2, rank=6)"; }
  std::size_t size() const { return 2; }
  hetero::shape input_shape(std::size_t samples) const { return {samples, 10}; }
  std::string unit_name(std::size_t i) const { return i == 0 ? "hidden" : "classes"; }
  hetero::softmax_cross_entropy loss() const { return {}; }

  template <class F>
  void visit(std::size_t i, F&& f) const {
    if (i == 0) {
      f(hidden_);
    } else {
      f(classes_);
    }
  }

 private:
  hetero::chain<low_rank_linear, hetero::relu> hidden_{{"hidden", 10, 32, 6}, {}};
  hetero::linear classes_{.name = "classes", .inputs = 32, .outputs = 2};
};

static_assert(hetero::model<low_rank_classifier>);
// [model]

namespace {

struct majority {  // of ten signs
  std::uint64_t size() const { return 1024; }
  hetero::shape input_shape() const { return {10}; }
  hetero::shape target_shape() const { return {}; }
  hetero::dtype input_type() const { return hetero::dtype::f32; }
  hetero::dtype target_type() const { return hetero::dtype::i32; }
  std::uint64_t fingerprint() const { return hetero::stable_hash{}.add("majority of 10 bits").value(); }
  void load(std::span<const std::uint64_t> ids, hetero::batch& out) const {
    out.prepare(ids, input_type(), input_shape(), target_type(), target_shape());
    for (std::size_t row = 0; row < ids.size(); ++row) {
      for (std::size_t bit = 0; bit < 10; ++bit) {
        out.inputs.elements<float>()[10 * row + bit] = (ids[row] >> bit & 1U) != 0 ? 1.0F : -1.0F;
      }
      out.targets.elements<std::int32_t>()[row] = std::popcount(ids[row]) > 5 ? 1 : 0;
    }
  }
};

}  // namespace

// [check]
double largest_gradient_error(const low_rank_linear& layer) {
  constexpr auto f64 = hetero::dtype::f64;
  hetero::stream queue{hetero::cpu_device{}};
  hetero::scratch_pool scratch{queue.device(), queue.id()};
  const auto make = [&](const hetero::shape& extents, std::uint32_t seed) {
    hetero::buffer made{queue.device(), queue.id(), f64, extents};
    const hetero::counter_rng rng{1, hetero::rng_purpose::test, seed};
    for (std::size_t i = 0; i < extents.count(); ++i) made.view().as<double>()[i] = rng.normal(i);
    return made;
  };
  const hetero::shape samples{3, layer.inputs};
  const auto input = make(samples, 0), grad_input = make(samples, 1);
  const auto output = make(layer.output_shape(samples), 2), factor = make(layer.output_shape(samples), 3);
  const auto kept = make(layer.saved({samples, f64})[0].extents, 4);
  const auto down = make({layer.rank, layer.inputs}, 5), up = make({layer.outputs, layer.rank}, 6);
  const auto grad_down = make(down.view().extents(), 7), grad_up = make(up.view().extents(), 8);

  const std::vector params{down.view(), up.view()}, keep{kept.view()};
  const std::vector<hetero::gradient_slot> slots{{grad_down.view()}, {grad_up.view()}};
  const hetero::saved_state saved{input.view(), output.view(), keep};
  hetero::execution context{.device = queue.device(), .stream = queue.id(), .scratch = scratch};

  const auto objective = [&] {  // any scalar will do; this one has `factor` as its gradient of the output
    layer.forward(context, params, input.view(), output.view(), saved);
    double sum = 0;
    for (std::size_t i = 0; i < output.view().count(); ++i) {
      sum += output.view().as<double>()[i] * factor.view().as<double>()[i];
    }
    return sum;
  };
  objective();
  hetero::backward(layer, context, params, factor.view(), grad_input.view(), saved, slots);

  double worst = 0;
  for (const auto& [value, gradient] : {std::pair{&input, &grad_input}, {&down, &grad_down}, {&up, &grad_up}}) {
    for (std::size_t i = 0; i < value->view().count(); ++i) {
      double& x = value->view().as<double>()[i];
      const double before = x;
      x = before + 1e-5;
      const double above = objective();
      x = before - 1e-5;
      const double slope = (above - objective()) / 2e-5;
      x = before;
      worst = std::max(worst, std::abs(slope - gradient->view().as<double>()[i]));
    }
  }
  return worst;
}
// [check]

int main() {
  const double error = largest_gradient_error({"l", 5, 4, 2});
  std::printf("largest gradient error %.1e\n", error);
  if (!(error < 1e-7)) return 1;

  double last = 1;
  // [train]
  const low_rank_classifier model;
  const hetero::batches batches{majority{}, {.global_batch = 64}};
  hetero::run_pool(hetero::parse_pool("cpu:1,cpu:1@0.5"), [&](hetero::pool_member& here) {
    hetero::trainer trainer{model, here.world, here.device, hetero::adamw{.learning_rate = 1e-2}};
    for (const auto& step : trainer.steps(batches, 60)) {
      if (step.rank == 0) last = step.loss;
    }
  });
  std::printf("loss after 60 steps: %.3f\n", last);
  // [train]
  return last < 0.3 ? 0 : 1;
}
