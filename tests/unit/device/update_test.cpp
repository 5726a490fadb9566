// SPDX-License-Identifier: Apache-2.0
#include "conformance/device_backend.hpp"

#include <cmath>
#include <vector>

#include <hetero/device/cpu_device.hpp>

using namespace hetero;
using test::code_of;
using test::device_fixture;
using test::largest_difference;
using test::random_values;

namespace {

/// The published formula, in double, in the order in which AdamW is usually written.
struct plain_adamw {
  op::adamw_update o;
  std::vector<double> param, moment1, moment2;

  void step(const std::vector<double>& grad) {
    for (std::size_t i = 0; i < param.size(); ++i) {
      const double g = grad[i] * o.grad_scale;
      param[i] *= 1 - o.learning_rate * o.weight_decay;
      moment1[i] = o.beta1 * moment1[i] + (1 - o.beta1) * g;
      moment2[i] = o.beta2 * moment2[i] + (1 - o.beta2) * g * g;
      const double step = static_cast<double>(o.step);
      const double m = moment1[i] / (1 - std::pow(o.beta1, step));
      const double v = moment2[i] / (1 - std::pow(o.beta2, step));
      param[i] -= o.learning_rate * m / (std::sqrt(v) + o.epsilon);
    }
    ++o.step;
  }
};

op::adamw_update adamw_options() {
  op::adamw_update o{};
  o.grad_scale = 0.25;
  o.learning_rate = 0.01;
  o.beta2 = 0.99;
  o.weight_decay = 0.1;
  return o;
}

}  // namespace

TEMPLATE_TEST_CASE("ten AdamW steps match the formula at odd sizes on several threads", "", float, double) {
  using T = TestType;
  for (const std::size_t threads : {1, 3}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{13}, std::size_t{50007}}) {
      device_fixture f{cpu_device{{.threads = threads, .team = {}}}};
      const auto start = random_values<T>(count, 1);
      plain_adamw plain{
          adamw_options(), {start.begin(), start.end()}, std::vector<double>(count), std::vector<double>(count)};
      op::adamw_update o = adamw_options();
      o.param = f.tensor(start);
      o.moment1 = f.tensor(std::vector<T>(count, T(0)));
      o.moment2 = f.tensor(std::vector<T>(count, T(0)));
      for (unsigned step = 0; step < 10; ++step) {
        const auto grad = random_values<T>(count, 10 + step);
        o.grad = f.tensor(grad);
        f.launch(o);
        ++o.step;
        plain.step({grad.begin(), grad.end()});
      }
      const auto result = f.template read<T>(o.param);
      const double tolerance = std::is_same_v<T, float> ? 2e-6 : 1e-14;
      CHECK(largest_difference(std::vector<double>(result.begin(), result.end()), plain.param) < tolerance);
    }
  }
}

TEST_CASE("AdamW gives the same bits for any split of the elements and any number of threads") {
  constexpr std::size_t count = 40001;
  const auto start = random_values<float>(count, 1);
  const auto grad = random_values<float>(count, 2);
  const auto stepped = [&](std::size_t threads, const std::vector<std::size_t>& cuts) {
    device_fixture f{cpu_device{{.threads = threads, .team = {}}}};
    const tensor_view p = f.tensor(start);
    const tensor_view g = f.tensor(grad);
    const tensor_view m = f.tensor(std::vector<float>(count, 0.1F));
    const tensor_view v = f.tensor(std::vector<float>(count, 0.2F));
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      op::adamw_update o = adamw_options();
      o.param = p.flat(cuts[i], cuts[i + 1]);
      o.grad = g.flat(cuts[i], cuts[i + 1]);
      o.moment1 = m.flat(cuts[i], cuts[i + 1]);
      o.moment2 = v.flat(cuts[i], cuts[i + 1]);
      f.launch(o);
    }
    return f.read<float>(p);
  };
  const auto whole = stepped(1, {0, count});
  CHECK(stepped(2, {0, count}) == whole);
  CHECK(stepped(3, {0, 1, 17, 20000, 20007, count}) == whole);
}

TEMPLATE_TEST_CASE("SGD with momentum, Nesterov's form and decoupled decay", "", float, double) {
  using T = TestType;
  for (const bool nesterov : {false, true}) {
    for (const double momentum_factor : {0.0, 0.9}) {
      device_fixture f{cpu_device{{.threads = 2, .team = {}}}};
      constexpr std::size_t count = 40003;
      const auto start = random_values<T>(count, 1);
      std::vector<double> param{start.begin(), start.end()}, momentum(count, 0.0);
      op::sgd_update o{.param = f.tensor(start),
                       .grad = {},
                       .grad_scale = 0.5,
                       .learning_rate = 0.1,
                       .momentum_factor = momentum_factor,
                       .weight_decay = 0.01,
                       .nesterov = nesterov};
      if (momentum_factor != 0) o.momentum = f.tensor(std::vector<T>(count, T(0)));
      for (unsigned step = 0; step < 3; ++step) {
        const auto grad = random_values<T>(count, 10 + step);
        o.grad = f.tensor(grad);
        f.launch(o);
        for (std::size_t i = 0; i < count; ++i) {
          const double g = static_cast<double>(grad[i]) * 0.5;
          momentum[i] = momentum_factor * momentum[i] + g;
          const double direction = nesterov ? g + momentum_factor * momentum[i] : momentum[i];
          param[i] = param[i] * (1 - 0.1 * 0.01) - 0.1 * direction;
        }
      }
      const auto result = f.template read<T>(o.param);
      const double tolerance = std::is_same_v<T, float> ? 1e-6 : 1e-14;
      CHECK(largest_difference(std::vector<double>(result.begin(), result.end()), param) < tolerance);
    }
  }
}

TEST_CASE("updates refuse operands that do not match, and steps that cannot be") {
  device_fixture f{cpu_device{}};
  const tensor_view x = f.tensor(std::vector<float>(8, 1.0F));
  op::adamw_update o{.param = x, .grad = x, .moment1 = x, .moment2 = x};
  o.grad = x.flat(0, 7);
  CHECK(code_of([&] { f.run(o); }) == errc::invalid_shape);
  o.grad = x;
  o.step = 0;
  CHECK(code_of([&] { f.run(o); }) == errc::invalid_argument);
  o.step = 1;
  o.beta2 = 1;
  CHECK(code_of([&] { f.run(o); }) == errc::invalid_argument);
  o.beta2 = 0.999;
  f.run(o);  // the control
  op::sgd_update s{.param = x, .grad = x, .momentum_factor = 0.9};
  CHECK(code_of([&] { f.run(s); }) == errc::invalid_shape);  // no memory for the momentum
  s.momentum_factor = 0;
  f.run(s);
}
