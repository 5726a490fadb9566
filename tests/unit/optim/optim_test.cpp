// SPDX-License-Identifier: Apache-2.0
// What the updates of the optimizers do, against closed forms. The ops run in a scalar fp64 reference here; that the
// devices compute the same is the device tests' business.
#include <cmath>
#include <limits>
#include <variant>
#include <vector>

#include <hetero/optim/adamw.hpp>
#include <hetero/optim/clip.hpp>
#include <hetero/optim/learning_rate.hpp>
#include <hetero/optim/sgd.hpp>

#include "support/catch.hpp"

namespace {

using namespace hetero;

void run(const op::sgd_update& u) {
  const auto p = u.param.elements<double>();
  const auto g = u.grad.elements<double>();
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double grad = g[i] * u.grad_scale;
    double direction = grad;
    if (u.momentum) {
      double& v = u.momentum.elements<double>()[i];
      v = u.momentum_factor * v + grad;
      direction = u.nesterov ? grad + u.momentum_factor * v : v;
    }
    p[i] = p[i] * (1 - u.learning_rate * u.weight_decay) - u.learning_rate * direction;
  }
}

void run(const op::adamw_update& u) {
  const auto p = u.param.elements<double>();
  const auto g = u.grad.elements<double>();
  const auto m = u.moment1.elements<double>();
  const auto v = u.moment2.elements<double>();
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double grad = g[i] * u.grad_scale;
    m[i] = u.beta1 * m[i] + (1 - u.beta1) * grad;
    v[i] = u.beta2 * v[i] + (1 - u.beta2) * grad * grad;
    const double m_hat = m[i] / (1 - std::pow(u.beta1, static_cast<double>(u.step)));
    const double v_hat = v[i] / (1 - std::pow(u.beta2, static_cast<double>(u.step)));
    p[i] = p[i] * (1 - u.learning_rate * u.weight_decay) - u.learning_rate * m_hat / (std::sqrt(v_hat) + u.epsilon);
  }
}

/// One parameter element and its state, updated with a given gradient.
template <optimizer O> class scalar_run {
 public:
  scalar_run(O policy, double start) : policy_{policy}, param_{start} {
    state_.assign(policy.state_names().size(), std::vector<double>(1, 0.0));
  }
  void step(double grad, double grad_scale = 1, bool decays = true) {
    std::vector<double> g{grad};
    std::vector<tensor_view> views;
    for (auto& s : state_) views.emplace_back(std::span{s});
    const device_op update = policy_.update({.param = tensor_view{std::span{param_}},
                                             .grad = tensor_view{std::span{g}},
                                             .state = views,
                                             .grad_scale = grad_scale,
                                             .learning_rate = policy_.learning_rate,
                                             .decays = decays,
                                             .step = ++step_});
    std::visit(
        [](const auto& u) {
          if constexpr (requires { run(u); }) {
            run(u);
          } else {
            FAIL("an optimizer returned an op that is no update");
          }
        },
        update);
  }
  [[nodiscard]] double param() const { return param_[0]; }

 private:
  O policy_;
  std::vector<double> param_;
  std::vector<std::vector<double>> state_{};
  std::uint64_t step_ = 0;
};

constexpr adamw from_float_literal{.learning_rate = 1e-3f};
static_assert(from_float_literal.learning_rate > 0.0009 && adamw{} == adamw{} && sgd{.nesterov = true} != sgd{});

struct optimizer_without_rate {
  using policy_kind = optimizer_policy;
  std::vector<std::string> state_names() const { return {}; }
  device_op update(const update_request& r) const { return op::fill{.out = r.param}; }
};
static_assert(!optimizer<optimizer_without_rate>);

}  // namespace

TEST_CASE("sgd under a constant gradient follows its closed forms") {
  const double rate = 0.1;
  const double mu = 0.9;
  const double g = 0.5;
  scalar_run plain{sgd{.learning_rate = rate}, 2.0};
  scalar_run heavy{sgd{.learning_rate = rate, .momentum = mu}, 2.0};
  scalar_run ahead{sgd{.learning_rate = rate, .momentum = mu, .nesterov = true}, 2.0};
  scalar_run decayed{sgd{.learning_rate = rate, .weight_decay = 0.2}, 2.0};
  double heavy_sum = 0;
  double ahead_sum = 0;
  for (int t = 1; t <= 20; ++t) {
    plain.step(g);
    heavy.step(g);
    ahead.step(4 * g, 0.25);  // the division by the global weight is part of the update
    decayed.step(0);
    heavy_sum += g * (1 - std::pow(mu, t)) / (1 - mu);
    ahead_sum += g * (1 - std::pow(mu, t + 1)) / (1 - mu);
    CHECK(plain.param() == Approx(2.0 - rate * g * t));
    CHECK(heavy.param() == Approx(2.0 - rate * heavy_sum));
    CHECK(ahead.param() == Approx(2.0 - rate * ahead_sum));
    CHECK(decayed.param() == Approx(2.0 * std::pow(1 - rate * 0.2, t)));
  }
  CHECK(std::abs(heavy.param() - ahead.param()) > 0.01);  // control: the two forms differ
}

TEST_CASE("adamw under a constant gradient moves by its rate, whatever the gradient's size") {
  for (const double g : {1e-4, 0.5, -300.0}) {
    scalar_run run{adamw{.learning_rate = 0.01, .weight_decay = 0}, 1.0};
    for (int t = 1; t <= 30; ++t) {
      run.step(g);
      // Bias correction makes both moments exact from the first step: g and g squared.
      CHECK(run.param() == Approx(1.0 - 0.01 * t * g / (std::abs(g) + 1e-8)));
    }
  }
}

TEST_CASE("adamw: two different gradients by hand, and decay only where it applies") {
  scalar_run run{adamw{.learning_rate = 0.1, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 1e-12, .weight_decay = 0}, 0.0};
  run.step(1);
  CHECK(run.param() == Approx(-0.1));
  run.step(3);
  // m = (0.25 + 1.5) / 0.75, v = (0.1875 + 2.25) / 0.4375
  CHECK(run.param() == Approx(-0.1 - 0.1 * (1.75 / 0.75) / std::sqrt(2.4375 / 0.4375)));

  scalar_run decays{adamw{.learning_rate = 0.1, .weight_decay = 0.5}, 2.0};
  scalar_run does_not{adamw{.learning_rate = 0.1, .weight_decay = 0.5}, 2.0};
  decays.step(0);
  does_not.step(0, 1, false);
  CHECK(decays.param() == Approx(2.0 * 0.95));
  CHECK(does_not.param() == 2.0);
}

TEST_CASE("optimizers keep state only where they need it and refuse what does not fit") {
  CHECK(sgd{}.state_names().empty());
  CHECK(sgd{.momentum = 0.9}.state_names() == std::vector<std::string>{"momentum"});
  CHECK(adamw{}.state_names() == std::vector<std::string>{"moment1", "moment2"});

  std::vector<float> three(3);
  std::vector<float> two(2);
  const tensor_view a{std::span{three}};
  const tensor_view b{std::span{two}};
  const std::vector<tensor_view> good{a, a};
  const std::vector<tensor_view> short_state{a, b};
  CHECK_NOTHROW(adamw{}.update({.param = a, .grad = a, .state = good, .learning_rate = 0.1}));  // control
  CHECK_THROWS_WITH(adamw{}.update({.param = a, .grad = a}),
                    ContainsSubstring("adamw needs 2 state tensors, 0 were given"));
  CHECK_THROWS_WITH(adamw{}.update({.param = a, .grad = b, .state = good}), ContainsSubstring("2 gradients"));
  CHECK_THROWS_WITH(adamw{}.update({.param = a, .grad = a, .state = short_state}),
                    ContainsSubstring("2 elements of state"));
  CHECK_THROWS_WITH(adamw{}.update({.param = a, .grad = a, .state = good, .step = 0}),
                    ContainsSubstring("steps from 1"));
  CHECK_THROWS_WITH(adamw{}.update({.param = a, .grad = a, .state = good, .learning_rate = std::nan("")}),
                    ContainsSubstring("learning rate"));
  CHECK_THROWS_WITH(adamw{.beta1 = 1}.update({.param = a, .grad = a, .state = good}),
                    ContainsSubstring("invalid_argument"));
  CHECK_THROWS_WITH(sgd{.nesterov = true}.update({.param = a, .grad = a}), ContainsSubstring("momentum"));
  CHECK_THROWS_WITH(sgd{.momentum = 1.5}.update({.param = a, .grad = a, .state = std::span{good}.first(1)}),
                    ContainsSubstring("momentum 1.5"));
}

TEST_CASE("schedules: warm-up, shape and end") {
  const cosine_rate cosine{.warm_up_steps = 10, .total_steps = 110, .final_factor = 0.1};
  CHECK(cosine.at(1) == Approx(0.1));
  CHECK(cosine.at(9) == Approx(0.9));
  CHECK(cosine.at(10) == Approx(1.0));
  CHECK(cosine.at(60) == Approx(0.55));
  CHECK(cosine.at(35) == Approx(0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5))));
  CHECK(cosine.at(110) == Approx(0.1));
  CHECK(cosine.at(100000) == Approx(0.1));

  const linear_rate linear{.warm_up_steps = 10, .total_steps = 110, .final_factor = 0.2};
  CHECK(linear.at(5) == Approx(0.5));
  CHECK(linear.at(60) == Approx(0.6));
  CHECK(linear.at(110) == Approx(0.2));
  CHECK(linear.at(111) == Approx(0.2));
  CHECK(linear.at(35) != Approx(cosine.at(35)));  // control

  CHECK(constant_rate{}.at(1) == 1.0);
  CHECK(constant_rate{.warm_up_steps = 4}.at(1) == 0.25);
  CHECK(constant_rate{.warm_up_steps = 4}.at(400) == 1.0);

  for (std::uint64_t step = 11; step <= 110; ++step) {
    CHECK(cosine.at(step) <= cosine.at(step - 1));
    CHECK(linear.at(step) <= linear.at(step - 1));
  }
  const learning_rate_schedule chosen{cosine};
  CHECK(chosen.at(35) == cosine.at(35));
  CHECK(chosen == learning_rate_schedule{cosine});
  CHECK(learning_rate_schedule{}.at(7) == 1.0);
  CHECK_THROWS_WITH((linear_rate{.warm_up_steps = 10, .total_steps = 10}.at(1)),
                    ContainsSubstring("total_steps must be larger"));
  CHECK_THROWS_WITH((cosine_rate{.warm_up_steps = 10, .total_steps = 5}.at(1)), ContainsSubstring("invalid_argument"));
}

TEST_CASE("clipping brings a large norm down to the limit and leaves a small one alone") {
  const clip_norm clip{.max_norm = 2};
  CHECK(clip.factor(1.9) == 1);
  CHECK(clip.factor(2) == 1);
  CHECK(clip.factor(8) == 0.25);
  CHECK(clip.factor(8) * 8 == Approx(2));
  CHECK(clip.factor(0) == 1);
  CHECK(clip_norm{}.factor(1e9) == 1);  // off
  CHECK_THROWS_WITH(clip.factor(std::nan("")), ContainsSubstring("gradient norm is nan"));
  CHECK_THROWS_WITH(clip.factor(std::numeric_limits<double>::infinity()), ContainsSubstring("invalid_argument"));
  CHECK_THROWS_WITH(clip_norm{.max_norm = -1}.factor(1), ContainsSubstring("invalid_argument"));
}
