// SPDX-License-Identifier: Apache-2.0
// Minimal layers that prove what the layer interface carries: communication inside a layer, state that recompute leaves
// alone, one object for several weight versions at once, and modules that cannot split their backward pass.
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include <hetero/model/layer/transformer_block.hpp>

#include "archetypes/layer.hpp"
#include "conformance/layer.hpp"
#include "support/catch.hpp"
#include "support/reference_device.hpp"

using namespace hetero;
using namespace hetero::test;

namespace {

// --- a layer that communicates ---------------------------------------------------------------------------------------

/// Two threads that add up tensors; a communicator reduced to what the test needs.
class pair_sum {
 public:
  void all_reduce(const tensor_view& v) {
    std::unique_lock lock{mutex_};
    const auto values = v.elements<double>();
    ++calls_;
    if (waiting_ == nullptr) {
      waiting_ = &values;
      const std::uint64_t mine = round_;
      require(met_.wait_for(lock, std::chrono::seconds{30}, [&] { return round_ != mine; }), errc::timeout,
              "the other rank did not come");
    } else {
      require(waiting_->size() == values.size(), errc::mismatch, "counts differ");
      for (std::size_t i = 0; i < values.size(); ++i) (*waiting_)[i] = values[i] = values[i] + (*waiting_)[i];
      waiting_ = nullptr;
      ++round_;
      met_.notify_one();
    }
  }
  [[nodiscard]] int calls() const { return calls_; }

 private:
  std::mutex mutex_;
  std::condition_variable met_;
  const std::span<double>* waiting_ = nullptr;
  std::uint64_t round_ = 0;
  int calls_ = 0;
};

struct rank_in_pair {
  pair_sum* shared = nullptr;
  std::size_t rank = 0;
  void all_reduce(const tensor_view& v) const { shared->all_reduce(v); }
};

struct pair_groups {
  rank_in_pair tensor;
  rank_in_pair& get(parallel_group name) {
    require(name == parallel_group::tensor, errc::unsupported, "only the tensor group is here");
    return tensor;
  }
};

using pair_context = layer_context<pair_groups>;

/// A linear layer whose outputs are computed by two ranks, half by half; both end with all of them. Each rank holds
/// half the rows of the weight.
struct column_parallel_linear {
  std::string name;
  std::size_t inputs = 0;
  std::size_t outputs = 0;

  static constexpr bool splits_backward = true;
  static constexpr bool reads_output = false;

  [[nodiscard]] std::vector<parameter_spec> parameters() const {
    return {{.name = name + ".weight", .extents = {outputs, inputs}}};
  }
  [[nodiscard]] shape output_shape(const shape& input) const { return {input[0], outputs}; }
  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request&) const { return {}; }
  [[nodiscard]] double forward_flops(const shape& input) const {
    return static_cast<double>(input.count() * outputs);  // half of them
  }
  [[nodiscard]] std::vector<layer_communication> communication(const shape& input) const {
    using pass = layer_communication::pass;
    return {{pass::forward, parallel_group::tensor, "all_reduce", input[0] * outputs * sizeof(double)},
            {pass::backward_input, parallel_group::tensor, "all_reduce", input[0] * inputs * sizeof(double)}};
  }

  template <class Context>
  requires requires(Context& c) { c.group(parallel_group::tensor).all_reduce(tensor_view{}); }
  void forward(Context& context, layer_parameters params, tensor_view input, tensor_view output,
               const saved_state&) const {
    context.launch(op::fill{.out = output});
    context.launch(op::matmul{.out = mine(context, output), .a = input, .b = params[0], .transpose_b = true});
    context.group(parallel_group::tensor).all_reduce(output);
  }
  template <class Context>
  requires requires(Context& c) { c.group(parallel_group::tensor).all_reduce(tensor_view{}); }
  void backward_input(Context& context, layer_parameters params, tensor_view grad_output, tensor_view grad_input,
                      const saved_state&, layer_gradients) const {
    if (!grad_input) return;
    context.launch(op::matmul{.out = grad_input, .a = mine(context, grad_output), .b = params[0]});
    context.group(parallel_group::tensor).all_reduce(grad_input);
  }
  template <class Context>
  void backward_weight(Context& context, layer_parameters, tensor_view grad_output, const saved_state& saved,
                       layer_gradients grads) const {
    if (!grads[0].view) return;
    context.launch(op::matmul{.out = grads[0].view,
                              .a = mine(context, grad_output),
                              .b = saved.input,
                              .transpose_a = true,
                              .accumulate = grads[0].accumulate});
  }

 private:
  template <class Context> tensor_view mine(Context& context, const tensor_view& v) const {
    const std::size_t half = outputs / 2;
    const std::size_t rank = context.group(parallel_group::tensor).rank;
    return v.slice(1, rank * half, (rank + 1) * half);
  }
};

static_assert(layer<column_parallel_linear, pair_context>);
static_assert(!layer<column_parallel_linear>, "without groups it is refused by the compiler, not at run time");

using parallel_chain = chain<relu, column_parallel_linear, gelu>;
static_assert(layer<parallel_chain, pair_context>);
static_assert(!layer<parallel_chain>);

// --- a layer with state ----------------------------------------------------------------------------------------------

/// Passes its input on and adds up its columns in phase train (the sums of a running mean, whose weight travels apart).
template <bool Careful> struct column_counter {
  std::size_t width = 0;

  static constexpr bool splits_backward = true;
  static constexpr bool reads_input = false;
  static constexpr bool reads_output = false;

  [[nodiscard]] std::vector<parameter_spec> parameters() const {
    return {{.name = "columns", .extents = {width}, .init = initializer::zeros(), .decays = false, .trainable = false}};
  }
  [[nodiscard]] shape output_shape(const shape& input) const { return input; }
  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request&) const { return {}; }
  [[nodiscard]] double forward_flops(const shape&) const { return 0; }
  void forward(execution& context, layer_parameters params, tensor_view input, tensor_view output,
               const saved_state&) const {
    context.device.copy(output, input, context.stream);
    if (!Careful || context.pass == phase::train) {
      context.launch(op::column_sum{.out = params[0], .in = input, .accumulate = true});
    }
  }
  void backward_input(execution& context, layer_parameters, tensor_view grad_output, tensor_view grad_input,
                      const saved_state&, layer_gradients) const {
    if (grad_input) context.device.copy(grad_input, grad_output, context.stream);
  }
  void backward_weight(execution&, layer_parameters, tensor_view, const saved_state&, layer_gradients) const {}
};

// --- a module of another framework -----------------------------------------------------------------------------------

/// Scales by a parameter: out = in * p. It stands for a module that computes everything in one backward call.
struct foreign_module {
  static constexpr bool splits_backward = false;
  static constexpr bool reads_output = false;

  [[nodiscard]] std::vector<parameter_spec> parameters() const { return {{.name = "foreign.scale", .extents = {1}}}; }
  [[nodiscard]] shape output_shape(const shape& input) const { return input; }
  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request&) const { return {}; }
  [[nodiscard]] double forward_flops(const shape& input) const { return static_cast<double>(input.count()); }
  void forward(execution& context, layer_parameters params, tensor_view input, tensor_view output,
               const saved_state&) const {
    run(context, {output, input, params[0]}, [](std::span<const tensor_view> t) {
      for (std::size_t i = 0; i < t[0].count(); ++i) t[0].as<double>()[i] = t[1].as<double>()[i] * *t[2].as<double>();
    });
  }
  void backward_input(execution& context, layer_parameters params, tensor_view grad_output, tensor_view grad_input,
                      const saved_state& saved, layer_gradients grads) const {
    const bool accumulate = grads[0].accumulate;
    run(context, {grad_output, grad_input, saved.input, params[0], grads[0].view},
        [accumulate](std::span<const tensor_view> t) {
          double sum = 0;
          for (std::size_t i = 0; i < t[0].count(); ++i) {
            const double g = t[0].as<double>()[i];
            sum += g * t[2].as<double>()[i];
            if (t[1]) t[1].as<double>()[i] = g * *t[3].as<double>();
          }
          if (t[4]) *t[4].as<double>() = accumulate ? *t[4].as<double>() + sum : sum;
        });
  }
  void backward_weight(execution&, layer_parameters, tensor_view, const saved_state&, layer_gradients) const {
    throw error{errc::invalid_argument, "nobody may call the weight half of a layer that does not split"};
  }

 private:
  template <class F> static void run(execution& context, std::vector<tensor_view> tensors, F f) {
    context.launch(
        op::custom_op{.name = "foreign",
                      .tensors = std::move(tensors),
                      .launchers = {{device_kind::cpu, [f](const op::custom_arguments& a) { f(a.tensors); }}}});
  }
};
static_assert(layer<foreign_module>);

std::vector<double> rows_of(const std::vector<double>& v, std::size_t rank) {
  const auto half = static_cast<std::ptrdiff_t>(v.size() / 2);
  const auto begin = v.begin() + static_cast<std::ptrdiff_t>(rank) * half;
  return {begin, begin + half};
}

}  // namespace

TEST_CASE("a layer may communicate in every pass, inside a chain", "[model]") {
  const bool split = GENERATE(false, true);
  const layer_case how{.input = {3, 4}, .split = split};
  const chain single{relu{}, linear{.name = "c", .inputs = 4, .outputs = 6, .bias = false}, gelu{}};
  layer_runner<decltype(single)> whole{single, reference_device{}, how};
  whole.forward();
  whole.backward();
  const auto output = whole.read(whole.output());
  const auto grad_input = whole.read(whole.grad_input());
  const auto grad_weight = whole.read_gradients()[0];

  struct found {
    std::vector<double> output, grad_input, grad_weight;
    std::exception_ptr failure;
  };
  std::array<found, 2> ranks;
  pair_sum shared;
  const parallel_chain both{relu{}, column_parallel_linear{.name = "c", .inputs = 4, .outputs = 6}, gelu{}};
  const auto work = [&](std::size_t rank) {
    try {
      pair_groups groups{{&shared, rank}};
      layer_runner<parallel_chain, pair_context> runner{both, reference_device{}, how};
      runner.groups = &groups;
      runner.params[0] = runner.params[0].slice(0, rank * 3, (rank + 1) * 3);  // the box held here
      runner.slots[0].view = runner.slots[0].view.slice(0, rank * 3, (rank + 1) * 3);
      runner.forward();
      if (split) {
        runner.backward_split();
      } else {
        runner.backward();
      }
      ranks[rank] = {runner.read(runner.output()), runner.read(runner.grad_input()), runner.read_gradients()[0], {}};
    } catch (...) {
      ranks[rank].failure = std::current_exception();
    }
  };
  std::thread other{work, 1};
  work(0);
  other.join();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    if (ranks[rank].failure) std::rethrow_exception(ranks[rank].failure);
    CHECK(distance(ranks[rank].output, output) < 1e-14);
    CHECK(distance(ranks[rank].grad_input, grad_input) < 1e-14);
    CHECK(distance(ranks[rank].grad_weight, rows_of(grad_weight, rank)) < 1e-14);
    CHECK(distance(ranks[rank].grad_weight, rows_of(grad_weight, 1 - rank)) > 1e-3);  // control: the halves differ
  }
  CHECK(shared.calls() == 4);  // two ranks, forward and backward
}

TEST_CASE("what a layer communicates is data, through chains and residuals", "[model]") {
  const column_parallel_linear l{.name = "c", .inputs = 4, .outputs = 6};
  const chain nested{relu{}, residual{chain{l, column_parallel_linear{.name = "d", .inputs = 6, .outputs = 4}}}};
  const auto declared = communication_of(nested, {3, 4});
  REQUIRE(declared.size() == 4);
  CHECK(declared[0].when == layer_communication::pass::forward);
  CHECK(declared[0].group == parallel_group::tensor);
  CHECK(declared[0].bytes == 3 * 6 * sizeof(double));
  CHECK(declared[2].bytes == 3 * 4 * sizeof(double));
  CHECK(declared[3].bytes == 3 * 6 * sizeof(double));
  CHECK(communication_of(chain{relu{}, gelu{}}, {3, 4}).empty());
}

TEST_CASE("recompute and evaluation leave state alone", "[model]") {
  const auto run = [](const auto& l, phase second) {
    const residual wrapped{chain{l, gelu{}}};
    layer_runner<decltype(wrapped)> runner{wrapped, reference_device{}, {.input = {3, 4}}};
    runner.forward();
    const auto once = runner.read(runner.params[0]);
    CHECK(once != std::vector<double>(4, 0.0));
    runner.forward(second);
    auto twice = once;
    for (double& v : twice) v *= 2;
    const auto after = runner.read(runner.params[0]);
    CHECK((after == once || distance(after, twice) < 1e-14));
    return after == once;
  };
  CHECK(run(column_counter<true>{4}, phase::recompute));
  CHECK(run(column_counter<true>{4}, phase::eval));
  CHECK_FALSE(run(column_counter<true>{4}, phase::train));       // a second training pass does count
  CHECK_FALSE(run(column_counter<false>{4}, phase::recompute));  // control: a careless layer is found
  check_recompute(chain{column_counter<true>{4}, gelu{}}, reference_device{}, {.input = {3, 4}});
}

TEST_CASE("one layer object serves replicas on several threads", "[model]") {
  const auto block = make_transformer_block({.name = "b", .heads = 2, .width = 4, .hidden = 8, .dropout = 0.2});
  using block_runner = layer_runner<transformer_block>;
  const auto run = [&](std::uint32_t weights) {
    block_runner runner{block, reference_device{}, {.input = {2, 3, 4}, .weights = weights}};
    for (int repeat = 0; repeat < 20; ++repeat) {
      runner.forward();
      runner.backward();
    }
    return runner.read_gradients();
  };
  const auto first = run(1);
  const auto second = run(2);
  CHECK(first != second);
  std::vector<std::vector<double>> a;
  std::vector<std::vector<double>> b;
  std::thread other{[&] { b = run(2); }};
  a = run(1);
  other.join();
  CHECK(a == first);
  CHECK(b == second);
}

TEST_CASE("backward uses the weight version it is given", "[model]") {
  // Weight stashing: micro-batch 1 runs forward on version A, then the weights move on, then its backward pass comes.
  const chain c{linear{.name = "one", .inputs = 4, .outputs = 6}, relu{},
                linear{.name = "two", .inputs = 6, .outputs = 4}};
  layer_runner<decltype(c)> runner{c, reference_device{}, {.input = {3, 4}}};
  runner.forward();
  runner.backward();
  const auto expected = runner.read_gradients();

  std::vector<buffer> stash;
  std::vector<tensor_view> version_a;
  for (const auto& p : runner.params) {
    stash.emplace_back(runner.device, runner.context().stream, p.type(), p.extents());
    version_a.push_back(stash.back().view());
    runner.device.copy(version_a.back(), p, runner.context().stream);
  }
  runner.forward();
  for (const auto& p : runner.params) runner.write(p, normals(p.count(), 99));  // version B arrives
  const auto version_b = runner.params;
  runner.params = version_a;
  runner.backward();
  CHECK(runner.read_gradients() == expected);
  runner.params = version_b;
  runner.backward();
  CHECK(runner.read_gradients() != expected);  // control: the versions do differ
}

TEST_CASE("a layer that does not split does all its work in backward_input", "[model]") {
  check_layer(foreign_module{}, reference_device{}, {.input = {3, 4}});
  const linear l{.name = "l", .inputs = 4, .outputs = 4};
  check_layer(chain{l, foreign_module{}, relu{}}, reference_device{}, {.input = {3, 4}});
  check_layer(residual{chain{foreign_module{}, foreign_module{}}}, reference_device{}, {.input = {3, 4}});
  static_assert(chain<linear, foreign_module>::splits_backward);
  static_assert(!chain<foreign_module, foreign_module>::splits_backward);
  static_assert(!residual<chain<foreign_module>>::splits_backward);
}
