// SPDX-License-Identifier: Apache-2.0
#include "unit/device/kernel_test.hpp"

#include <hetero/device/cpu/cross_entropy.hpp>

using namespace hetero;
using namespace hetero::test::kernels;
using hetero::detail::cpu::run;

namespace {

template <class T>
struct batch {
  std::size_t rows, classes;
  tensor<T> logits{rows, classes};
  tensor<std::int32_t> targets{rows};
  tensor<T> grad{rows, classes};
  tensor<double> result{{2}, {0, 0}};

  batch(std::size_t r, std::size_t c) : rows{r}, classes{c} {
    logits = normal<T>({rows, classes}, 1, 3);
    const counter_rng rng{11, rng_purpose::test};
    for (std::size_t i = 0; i < rows; ++i) {
      targets[i] = i % 5 == 3 ? -1 : static_cast<std::int32_t>(rng.word(i) % classes);
    }
  }
  [[nodiscard]] op::cross_entropy op() const { return {result, grad, logits, targets, {}, -1}; }
  void run_on(std::size_t threads) {
    thread_team team{threads};
    run(op(), team);
  }
};

/// Loss and gradient of one row in double, the gradient already times `weight`.
template <class T>
double plain_row(const batch<T>& b, std::size_t row, double weight, std::vector<double>& grad) {
  double most = -1e300;
  for (std::size_t j = 0; j < b.classes; ++j) most = std::max(most, static_cast<double>(b.logits[row * b.classes + j]));
  double sum = 0;
  for (std::size_t j = 0; j < b.classes; ++j) {
    sum += std::exp(static_cast<double>(b.logits[row * b.classes + j]) - most);
  }
  const auto target = static_cast<std::size_t>(b.targets[row]);
  for (std::size_t j = 0; j < b.classes; ++j) {
    const double p = std::exp(static_cast<double>(b.logits[row * b.classes + j]) - most) / sum;
    grad[row * b.classes + j] = weight * (p - (j == target ? 1 : 0));
  }
  return weight * (most + std::log(sum) - static_cast<double>(b.logits[row * b.classes + target]));
}

}  // namespace

TEMPLATE_TEST_CASE("cross-entropy sums loss, weight and gradient like the plain formula", "", float, double) {
  using T = TestType;
  struct size {
    std::size_t rows, classes;
  };
  const size s =
      GENERATE(size{1, 1}, size{3, 2}, size{8, 17}, size{64, 64}, size{65, 65}, size{5, 1000}, size{6, 5003});
  CAPTURE(s.rows, s.classes);
  batch<T> b{s.rows, s.classes};
  b.run_on(1);
  std::vector<double> grad(s.rows * s.classes);
  double loss = 0;
  double weight = 0;
  for (std::size_t row = 0; row < s.rows; ++row) {
    if (b.targets[row] < 0) continue;
    loss += plain_row(b, row, 1, grad);
    weight += 1;
  }
  CHECK(b.result[0] == Approx(loss).epsilon(tolerance<T>).margin(tolerance<T>));
  CHECK(b.result[1] == weight);
  CHECK(distance(b.grad.values, grad) < tolerance<T>);

  SECTION("the gradient may take the place of the logits") {
    batch<T> in_place = b;
    in_place.result = {{2}, {0, 0}};
    thread_team team{1};
    op::cross_entropy op = in_place.op();
    op.grad_logits = op.logits;
    run(op, team);
    CHECK(same_bits(in_place.logits, b.grad));
    CHECK(same_bits(in_place.result, b.result));
  }
  SECTION("evaluation without gradient gives the same bits and adds to what is there") {
    const tensor<double> before = b.result;
    const tensor<T> logits = b.logits;
    thread_team team{1};
    op::cross_entropy op = b.op();
    op.grad_logits = {};
    run(op, team);
    CHECK(b.result[0] == 2 * before[0]);
    CHECK(b.result[1] == 2 * before[1]);
    CHECK(same_bits(b.logits, logits));
  }
}

TEMPLATE_TEST_CASE("cross-entropy has the same bits on any number of threads, and rows do not mix", "", float, double) {
  using T = TestType;
  batch<T> one{301, 130};
  batch<T> two = one;
  one.run_on(1);
  two.run_on(2);
  CHECK(same_bits(one.grad, two.grad));
  CHECK(same_bits(one.result, two.result));

  batch<T> alone{1, 130};
  alone.logits = rows_of(one.logits, 200, 1);
  alone.targets = rows_of(one.targets, 200, 1);
  alone.run_on(1);
  CHECK(same_bits(alone.grad, rows_of(one.grad, 200, 1)));
  CHECK_FALSE(same_bits(alone.grad, rows_of(one.grad, 201, 1)));  // control
}

TEST_CASE("weights are those of samples, and multiply loss, count and gradient") {
  batch<double> b{12, 9};
  const tensor<float> weights{{3}, {0.5F, 0.0F, 2.0F}};  // 4 rows each
  b.targets[5] = 2;
  b.logits[5 * 9] = std::nan("");  // a row of weight 0: padding counts nothing, whatever it holds
  thread_team team{1};
  op::cross_entropy op = b.op();
  op.weights = weights;
  run(op, team);
  std::vector<double> grad(12 * 9);
  double loss = 0;
  double count = 0;
  for (std::size_t row = 0; row < 12; ++row) {
    const double weight = static_cast<double>(weights[row / 4]);
    if (b.targets[row] < 0 || weight == 0) continue;
    loss += plain_row(b, row, weight, grad);
    count += weight;
  }
  CHECK(b.result[0] == Approx(loss).epsilon(1e-12));
  CHECK(b.result[1] == count);
  CHECK(distance(b.grad.values, grad) < 1e-12);

  batch<double> equal{12, 9};  // control: without weights the sums differ
  equal.run_on(1);
  CHECK(equal.result[0] != Approx(loss).epsilon(1e-3));

  tensor<float> five{{5}, std::vector<float>(5, 1.0F)};
  op.weights = five;
  CHECK(failure_of([&] { run(op, team); }).code == errc::invalid_shape);
}

TEST_CASE("another ignored target, and rows that lie apart, are legal") {
  batch<float> b{4, 6};
  b.targets = {{4}, {5, -100, 0, 3}};
  tensor<float> apart{4, 10};
  for (std::size_t i = 0; i < 4; ++i) std::copy_n(&b.logits[i * 6], 6, &apart[i * 10]);
  op::cross_entropy op = b.op();
  op.ignored_target = -100;
  thread_team team{1};
  run(op, team);
  CHECK(b.result[1] == 3);
  CHECK(std::all_of(&b.grad[6], &b.grad[12], [](float x) { return x == 0; }));
  const tensor<float> grad = b.grad;
  const double loss = b.result[0];
  op.logits = apart.view().slice(1, 0, 6);
  run(op, team);
  CHECK(same_bits(grad, b.grad));
  CHECK(b.result[0] == 2 * loss);
}

TEST_CASE("cross-entropy survives masked and enormous logits") {
  batch<float> b{3, 40};
  for (std::size_t j = 0; j < 40; ++j) b.logits[j] = -1e30F;
  for (std::size_t j = 0; j < 40; ++j) b.logits[40 + j] = j == 7 ? 1e30F : -1e30F;
  for (std::size_t j = 0; j < 39; ++j) b.logits[80 + j] = -std::numeric_limits<float>::infinity();
  b.logits[119] = -2.0F;
  b.targets = {{3}, {0, 7, 39}};
  b.run_on(1);
  CHECK(b.result[0] == Approx(std::log(40.0)));  // rows: uniform, certain, certain
  CHECK(std::all_of(b.grad.values.begin(), b.grad.values.end(), [](float x) { return std::isfinite(x); }));
  CHECK(b.grad[40 + 7] == 0.0F);
  CHECK(b.grad[0] == Approx(1.0 / 40 - 1));

  b.logits[5] = std::nanf("");  // control: a NaN is not swallowed
  b.run_on(1);
  CHECK(std::isnan(b.result[0]));
  CHECK(std::isnan(b.grad[9]));
}

TEST_CASE("a target that is no class is an error that names row and value, and writes nothing") {
  batch<float> b{8, 10};
  b.targets[6] = GENERATE(10, -2, 1 << 30);
  thread_team team{1};
  for (const bool count : {false, true}) {
    const failure found = failure_of([&] {
      if (count)
        run(op::count_correct{b.result, b.logits, b.targets, {}, -1}, team);
      else
        run(b.op(), team);
    });
    CHECK(found.code == errc::invalid_argument);
    CHECK_THAT(found.text, ContainsSubstring(std::to_string(b.targets[6])) && ContainsSubstring("row 6") &&
                               ContainsSubstring("10 classes"));
    CHECK(b.result[0] == 0);
    CHECK(std::isnan(b.grad[0]));
  }
}

TEST_CASE("cross-entropy refuses operands that do not fit") {
  thread_team team{1};
  batch<float> b{4, 6};
  op::cross_entropy op = b.op();
  tensor<float> other{4, 5};
  op.grad_logits = other;
  const failure found = failure_of([&] { run(op, team); });
  CHECK(found.code == errc::invalid_shape);
  CHECK_THAT(found.text, ContainsSubstring("[4, 5]") && ContainsSubstring("[4, 6]"));
  op = b.op();
  tensor<float> wrong_type{2};
  op.result = wrong_type;
  CHECK(failure_of([&] { run(op, team); }).code == errc::invalid_shape);
  op = b.op();
  tensor<std::int32_t> three{{3}, {0, 0, 0}};
  op.targets = three;
  CHECK(failure_of([&] { run(op, team); }).code == errc::invalid_shape);
  op = b.op();
  tensor<bfloat16> half{{4, 6}, std::vector<bfloat16>(24)};
  op.logits = half;
  CHECK(failure_of([&] { run(op, team); }).code == errc::unsupported);
}

TEMPLATE_TEST_CASE("count_correct counts weighted rows whose first largest logit is the target", "", float, double) {
  using T = TestType;
  const T inf = std::numeric_limits<T>::infinity();
  const tensor<T> logits{{6, 3},
                         {1, 2, 3,                                    // 2
                          5, 5, 1,                                    // a tie: 0 wins
                          5, 5, 1,                                    // so 1 does not
                          std::numeric_limits<T>::quiet_NaN(), 0, 9,  // no prediction
                          -inf, 0, -inf,                              // 1
                          9, 8, 7}};                                  // ignored
  const tensor<std::int32_t> targets{{6}, {2, 0, 1, 2, 1, -1}};
  const tensor<float> weights{{3}, {1.0F, 0.5F, 4.0F}};
  tensor<double> correct{{2}, {10, 100}};
  thread_team team{1};
  run(op::count_correct{correct, logits, targets, {}, -1}, team);
  CHECK(correct[0] == 10 + 3);
  CHECK(correct[1] == 100 + 5);
  correct = {{2}, {0, 0}};
  run(op::count_correct{correct, logits, targets, weights, -1}, team);
  CHECK(correct[0] == 1 + 1 + 4);
  CHECK(correct[1] == 1 + 1 + 0.5 + 0.5 + 4);
}
