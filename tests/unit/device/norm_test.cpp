// SPDX-License-Identifier: Apache-2.0
#include "unit/device/kernel_test.hpp"

#include <hetero/device/cpu/norm.hpp>

using namespace hetero;
using namespace hetero::test::kernels;
using hetero::detail::cpu::run;

namespace {

/// One norm over everything that both have; `centred` is layer norm, else RMS norm.
struct reference {
  std::vector<double> out, mean, rstd, grad_in, grad_gain, grad_bias;
};

template <class T>
reference plain_norm(bool centred, std::size_t rows, std::size_t width, const tensor<T>& in, const tensor<T>& gain,
                     const tensor<T>& bias, const tensor<T>& grad, double epsilon) {
  reference r;
  r.grad_gain.resize(width);
  r.grad_bias.resize(width);
  const double n = static_cast<double>(width);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto x = [&](std::size_t j) { return static_cast<double>(in[row * width + j]); };
    const auto g = [&](std::size_t j) { return static_cast<double>(grad[row * width + j]); };
    double mean = 0;
    if (centred) {
      for (std::size_t j = 0; j < width; ++j) mean += x(j) / n;
    }
    double square = 0;
    for (std::size_t j = 0; j < width; ++j) square += (x(j) - mean) * (x(j) - mean) / n;
    const double rstd = 1 / std::sqrt(square + epsilon);
    r.mean.push_back(mean);
    r.rstd.push_back(rstd);
    for (std::size_t j = 0; j < width; ++j) {
      const double normal = (x(j) - mean) * rstd;
      r.out.push_back(normal * static_cast<double>(gain[j]) + (centred ? static_cast<double>(bias[j]) : 0));
      r.grad_gain[j] += g(j) * normal;
      r.grad_bias[j] += g(j);
      double sum = 0;  // the whole Jacobian, entry by entry
      for (std::size_t i = 0; i < width; ++i) {
        const double other = (x(i) - mean) * rstd;
        const double entry = (i == j ? 1.0 : 0.0) - (centred ? 1 / n : 0) - normal * other / n;
        sum += g(i) * static_cast<double>(gain[i]) * rstd * entry;
      }
      r.grad_in.push_back(sum);
    }
  }
  return r;
}

template <class T>
struct norm_case {
  std::size_t rows, width;
  tensor<T> in, gain, bias, grad;
  tensor<T> out{rows, width}, mean{rows}, rstd{rows}, grad_in{rows, width}, grad_gain{width}, grad_bias{width};

  norm_case(std::size_t r, std::size_t w)
      : rows{r},
        width{w},
        in{normal<T>({r, w}, 1, 2, 0.5)},
        gain{normal<T>({w}, 2, 0.3, 1)},
        bias{normal<T>({w}, 3)},
        grad{normal<T>({r, w}, 4)} {}

  void layer(std::size_t threads) {
    thread_team team{threads};
    run(op::layer_norm_forward{out, mean, rstd, in, gain, bias, 1e-5}, team);
    run(op::layer_norm_backward_input{grad_in, grad, in, mean, rstd, gain}, team);
    run(op::layer_norm_backward_weight{grad_gain, grad_bias, grad, in, mean, rstd, false}, team);
  }
  void rms(std::size_t threads) {
    thread_team team{threads};
    run(op::rms_norm_forward{out, rstd, in, gain, 1e-6}, team);
    run(op::rms_norm_backward_input{grad_in, grad, in, rstd, gain}, team);
    run(op::rms_norm_backward_weight{grad_gain, grad, in, rstd, false}, team);
  }
};

}  // namespace

TEMPLATE_TEST_CASE("norms match the plain formulas at ragged sizes", "", float, double) {
  using T = TestType;
  struct size {
    std::size_t rows, width;
  };
  const size s =
      GENERATE(size{1, 1}, size{3, 17}, size{5, 64}, size{4, 65}, size{64, 3}, size{65, 128}, size{130, 200});
  const bool centred = GENERATE(true, false);
  CAPTURE(s.rows, s.width, centred);
  norm_case<T> c{s.rows, s.width};
  centred ? c.layer(1) : c.rms(1);
  const reference r = plain_norm(centred, s.rows, s.width, c.in, c.gain, c.bias, c.grad, centred ? 1e-5 : 1e-6);
  // A row of one element has variance 0, so 1 / sqrt(epsilon) scales its rounding errors.
  const double loose = s.width == 1 ? 1000 : 10;
  CHECK(distance(c.out.values, r.out) < 2 * tolerance<T>);
  CHECK(distance(c.rstd.values, r.rstd) < 2 * tolerance<T>);
  if (centred) CHECK(distance(c.mean.values, r.mean) < 2 * tolerance<T>);
  CHECK(distance(c.grad_in.values, r.grad_in, 1) < loose * tolerance<T>);
  CHECK(distance(c.grad_gain.values, r.grad_gain) < 2 * tolerance<T>);
  if (centred) CHECK(distance(c.grad_bias.values, r.grad_bias) < 2 * tolerance<T>);
}

TEMPLATE_TEST_CASE("a norm's row has the same bits alone, in a batch and on two threads", "", float, double) {
  using T = TestType;
  const std::size_t rows = 700;
  const std::size_t width = 65;
  norm_case<T> one{rows, width};
  norm_case<T> two{rows, width};
  one.layer(1);
  two.layer(2);
  CHECK(same_bits(one.out, two.out));
  CHECK(same_bits(one.mean, two.mean));
  CHECK(same_bits(one.rstd, two.rstd));
  CHECK(same_bits(one.grad_in, two.grad_in));
  CHECK(same_bits(one.grad_gain, two.grad_gain));
  CHECK(same_bits(one.grad_bias, two.grad_bias));

  norm_case<T> alone{1, width};
  alone.in = rows_of(one.in, 433, 1);
  alone.grad = rows_of(one.grad, 433, 1);
  alone.layer(1);
  CHECK(same_bits(alone.out, rows_of(one.out, 433, 1)));
  CHECK(same_bits(alone.grad_in, rows_of(one.grad_in, 433, 1)));
  CHECK_FALSE(same_bits(alone.grad_in, rows_of(one.grad_in, 434, 1)));  // control
  CHECK_FALSE(same_bits(alone.grad_gain, one.grad_gain));               // control: these do mix rows
}

TEST_CASE("layer norm keeps its digits when the mean is far larger than the deviation") {
  norm_case<float> c{3, 96};
  c.in = normal<float>({3, 96}, 9, 0.01, 1000);
  c.layer(1);
  const reference r = plain_norm(true, 3, 96, c.in, c.gain, c.bias, c.grad, 1e-5);
  CHECK(distance(c.out.values, r.out) < 0.01);  // one float step of the mean is 6e-5, of a deviation of 0.01

  double square = 0;  // control: the one-pass formula in float loses everything
  float sum = 0;
  float sum_of_squares = 0;
  for (std::size_t j = 0; j < 96; ++j) {
    sum += c.in[j];
    sum_of_squares += c.in[j] * c.in[j];
    square += std::pow(static_cast<double>(c.in[j]) - r.mean[0], 2) / 96;
  }
  const float mean = sum / 96;
  CHECK(std::abs(static_cast<double>(sum_of_squares / 96 - mean * mean) - square) > square);
}

TEST_CASE("norm weights accumulate only on request") {
  norm_case<double> c{9, 33};
  c.layer(1);
  const tensor<double> once = c.grad_gain;
  thread_team team{1};
  run(op::layer_norm_backward_weight{c.grad_gain, c.grad_bias, c.grad, c.in, c.mean, c.rstd, true}, team);
  for (std::size_t j = 0; j < 33; ++j) CHECK(c.grad_gain[j] == Approx(2 * once[j]));
  run(op::layer_norm_backward_weight{c.grad_gain, {}, c.grad, c.in, c.mean, c.rstd, false}, team);
  CHECK(same_bits(c.grad_gain, once));
}

TEST_CASE("a zero row and no bias are legal in a norm, no rows as well") {
  thread_team team{1};
  tensor<float> in{{2, 16}, std::vector<float>(32, 0.0F)};
  tensor<float> out{2, 16};
  tensor<float> mean{2};
  tensor<float> rstd{2};
  tensor<float> gain{{16}, std::vector<float>(16, 2.0F)};
  run(op::layer_norm_forward{out, mean, rstd, in, gain, {}, 1e-5}, team);
  CHECK(std::all_of(out.values.begin(), out.values.end(), [](float x) { return x == 0.0F; }));
  run(op::rms_norm_forward{out, rstd, in, gain, 1e-6}, team);
  CHECK(rstd[1] == Approx(1000));

  tensor<float> none{0, 16};
  tensor<float> no_rows{0};
  tensor<float> grad_gain{16};
  run(op::rms_norm_forward{none, no_rows, none, gain, 1e-6}, team);
  run(op::rms_norm_backward_weight{grad_gain, none, none, no_rows, false}, team);
  CHECK(grad_gain[3] == 0.0F);
}

TEST_CASE("norms refuse operands that do not fit, and say what they got") {
  thread_team team{1};
  norm_case<float> c{4, 8};
  tensor<float> narrow{4, 7};
  auto found = failure_of([&] {
    run(op::layer_norm_forward{narrow, c.mean, c.rstd, c.in, c.gain, c.bias, 1e-5}, team);
  });
  CHECK(found.code == errc::invalid_shape);
  CHECK_THAT(found.text, ContainsSubstring("[4, 7]") && ContainsSubstring("[4, 8]"));
  tensor<float> folded{8, 4};
  CHECK(failure_of([&] {
          run(op::rms_norm_forward{c.out, c.rstd, folded, c.gain, 1e-6}, team);
        }).code == errc::invalid_shape);
  CHECK(failure_of([&] {
          run(op::rms_norm_forward{c.out, c.mean, c.in, c.grad, 1e-6}, team);
        }).code == errc::invalid_shape);
  CHECK(failure_of([&] {
          run(op::layer_norm_backward_weight{c.grad_gain, c.rstd, c.grad, c.in, c.mean, c.rstd, false}, team);
        }).code == errc::invalid_shape);
  norm_case<double> d{4, 8};
  CHECK(failure_of([&] {
          run(op::layer_norm_backward_input{c.grad_in, c.grad, d.in, c.mean, c.rstd, c.gain}, team);
        }).code == errc::invalid_shape);
  tensor<bfloat16> half{{4, 8}, std::vector<bfloat16>(32)};
  found = failure_of([&] { run(op::rms_norm_forward{half, c.rstd, half, c.gain, 1e-6}, team); });
  CHECK(found.code == errc::unsupported);
  CHECK_THAT(found.text, ContainsSubstring("bf16") && ContainsSubstring("f32 and f64"));
}
