// SPDX-License-Identifier: Apache-2.0
#include "unit/device/kernel_test.hpp"

#include <bit>

#include <hetero/device/cpu/activation.hpp>
#include <hetero/device/op/functor/math.hpp>

using namespace hetero;
using namespace hetero::test::kernels;
using hetero::detail::cpu::run;

namespace {

double plain_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

/// Distance in units of the last place of the right answer.
double ulps(float found, double right) {
  const float rounded = std::abs(static_cast<float>(right));
  const double unit = static_cast<double>(std::nextafter(rounded, std::numeric_limits<float>::infinity()) - rounded);
  return std::abs(static_cast<double>(found) - right) / unit;
}

constexpr float infinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("fast_exp and fast_tanh are right to a few units of the last place over all floats") {
  double worst_exp = 0;
  double worst_tanh = 0;
  std::size_t differing = 0;
  for (std::uint64_t bits = 0; bits < 0x100000000ULL; bits += 100003) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (!std::isfinite(x)) continue;
    const float e = functor::fast_exp{}(x);
    const float t = functor::fast_tanh{}(x);
    if (x > -86.9F && x < 88.72F) worst_exp = std::max(worst_exp, ulps(e, std::exp(static_cast<double>(x))));
    if (std::abs(x) > 1e-37F) worst_tanh = std::max(worst_tanh, ulps(t, std::tanh(static_cast<double>(x))));
    const detail::simd<float> lanes = functor::fast_exp{}(detail::simd<float>(x));
    differing += lanes[0] == e && lanes[15] == e ? 0 : 1;
  }
  CHECK(worst_exp < 2);
  CHECK(worst_tanh < 4);
  CHECK(differing == 0);  // a pack of lanes computes what a scalar does
}

TEST_CASE("fast_exp and fast_tanh treat zero, overflow, infinity and NaN as the standard library does") {
  const functor::fast_exp exp;
  const functor::fast_tanh tanh;
  CHECK(exp(0.0F) == 1.0F);
  CHECK(exp(-0.0F) == 1.0F);
  CHECK(exp(88.8F) == infinity);
  CHECK(exp(1e30F) == infinity);
  CHECK(exp(infinity) == infinity);
  CHECK(exp(-87.5F) == 0.0F);  // where the library's would be subnormal
  CHECK(exp(-1e30F) == 0.0F);
  CHECK(exp(-infinity) == 0.0F);
  CHECK(std::isnan(exp(std::nanf(""))));
  CHECK(std::isnan(exp(-std::nanf(""))));
  CHECK(std::isnan(exp(std::bit_cast<float>(0x7fc00001U))));
  CHECK(tanh(0.0F) == 0.0F);
  CHECK(std::signbit(tanh(-0.0F)));
  CHECK(tanh(1e-20F) == 1e-20F);
  CHECK(tanh(20.0F) == 1.0F);
  CHECK(tanh(-infinity) == -1.0F);
  CHECK(std::isnan(tanh(std::nanf(""))));
  CHECK(std::isnan(tanh(-std::nanf(""))));
  CHECK(exp(1.0) == std::exp(1.0));
  CHECK(tanh(0.3) == std::tanh(0.3));
}

TEMPLATE_TEST_CASE("gelu and its derivative match the tanh form", "", float, double) {
  using T = TestType;
  const std::size_t count = GENERATE(1U, 3U, 17U, 64U, 65U, 1000U);
  const tensor<T> in = normal<T>({count}, 1, 3);
  const tensor<T> grad = normal<T>({count}, 2);
  tensor<T> out{count};
  tensor<T> grad_in{count};
  thread_team team{1};
  run(op::gelu_forward{out, in}, team);
  run(op::gelu_backward{grad_in, grad, in}, team);
  std::vector<double> expected;
  std::vector<double> expected_grad;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(in[i]);
    expected.push_back(plain_gelu(x));
    const double step = 1e-3;  // five-point differences: error about step^4
    const double slope =
        (8 * (plain_gelu(x + step) - plain_gelu(x - step)) - (plain_gelu(x + 2 * step) - plain_gelu(x - 2 * step))) /
        (12 * step);
    expected_grad.push_back(static_cast<double>(grad[i]) * slope);
  }
  CHECK(distance(out.values, expected) < tolerance<T>);
  CHECK(distance(grad_in.values, expected_grad) < std::max(tolerance<T>, 1e-10));

  SECTION("in place") {
    tensor<T> both = in;
    run(op::gelu_forward{both, both}, team);
    CHECK(same_bits(both, out));
    both = grad;
    run(op::gelu_backward{both, both, in}, team);
    CHECK(same_bits(both, grad_in));
  }
}

TEMPLATE_TEST_CASE("activations far out stay finite, and NaN stays NaN", "", float, double) {
  using T = TestType;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const tensor<T> in{{8}, {T(-1e30), T(-12), T(-0.0), T(0), T(12), T(1e30), nan, T(1e-30)}};
  const tensor<T> grad{{8}, std::vector<T>(8, T{1})};
  tensor<T> out{8};
  tensor<T> grad_in{8};
  thread_team team{1};
  run(op::gelu_forward{out, in}, team);
  run(op::gelu_backward{grad_in, grad, in}, team);
  CHECK(out[0] == 0);
  CHECK(std::abs(out[1]) < T(1e-20));
  CHECK(out[3] == 0);
  CHECK(out[5] == T(1e30));
  CHECK(std::isnan(out[6]));
  CHECK(std::abs(grad_in[0]) < T(1e-20));
  CHECK(grad_in[3] == T(0.5));
  CHECK(grad_in[5] == 1);
  CHECK(std::isnan(grad_in[6]));

  run(op::relu_forward{out, in}, team);
  CHECK(out[0] == 0);
  CHECK(out[5] == T(1e30));
  CHECK(std::isnan(out[6]));
  run(op::relu_backward{grad_in, grad, out}, team);
  CHECK(grad_in[0] == 0);
  CHECK(grad_in[3] == 0);
  CHECK(grad_in[5] == 1);
  CHECK(grad_in[7] == 1);
}

TEMPLATE_TEST_CASE("relu cuts at zero, in place as well", "", float, double) {
  using T = TestType;
  tensor<T> in = normal<T>({133}, 1);
  const tensor<T> grad = normal<T>({133}, 2);
  tensor<T> out{133};
  tensor<T> grad_in{133};
  thread_team team{1};
  run(op::relu_forward{out, in}, team);
  run(op::relu_backward{grad_in, grad, out}, team);
  bool right = true;
  for (std::size_t i = 0; i < 133; ++i) {
    right = right && out[i] == std::max(in[i], T{0}) && grad_in[i] == (in[i] > 0 ? grad[i] : T{0});
  }
  CHECK(right);
  run(op::relu_forward{in, in}, team);
  CHECK(same_bits(in, out));
}

TEMPLATE_TEST_CASE("an element's activation has the same bits wherever it lies and on any number of threads", "", float,
                   double) {
  using T = TestType;
  const std::size_t count = 70001;
  const tensor<T> in = normal<T>({count}, 1, 2);
  const tensor<T> grad = normal<T>({count}, 2);
  const auto both = [&](std::size_t threads, std::size_t begin, std::size_t end) {
    thread_team team{threads};
    tensor<T> results{2, end - begin};
    run(op::gelu_forward{results.view().flat(0, end - begin), in.view().flat(begin, end)}, team);
    run(op::gelu_backward{results.view().flat(end - begin, 2 * (end - begin)), grad.view().flat(begin, end),
                          in.view().flat(begin, end)},
        team);
    return results;
  };
  const tensor<T> whole = both(1, 0, count);
  CHECK(same_bits(whole, both(2, 0, count)));
  for (const std::size_t begin : {1U, 7U, 33U}) {
    for (const std::size_t length : {1U, 5U, 30U, 64U}) {
      const tensor<T> part = both(1, begin, begin + length);
      CHECK(std::memcmp(part.values.data(), &whole[begin], length * sizeof(T)) == 0);
      CHECK(std::memcmp(&part[length], &whole[count + begin], length * sizeof(T)) == 0);
      CHECK(std::memcmp(part.values.data(), &whole[begin + 1], length * sizeof(T)) != 0);  // control
    }
  }
}

TEST_CASE("activations refuse operands that do not fit, and say what they got") {
  thread_team team{1};
  tensor<float> in = normal<float>({4, 6}, 1);
  tensor<float> out{4, 5};
  const failure found = failure_of([&] { run(op::gelu_forward{out, in}, team); });
  CHECK(found.code == errc::invalid_shape);
  CHECK_THAT(found.text, ContainsSubstring("[4, 5]") && ContainsSubstring("[4, 6]"));
  tensor<double> wide{4, 6};
  CHECK(failure_of([&] { run(op::relu_backward{in, in, wide}, team); }).code == errc::invalid_shape);
  CHECK(failure_of([&] {
          run(op::relu_forward{out.view().slice(1, 0, 2), in.view().slice(1, 0, 2)}, team);
        }).code == errc::invalid_shape);
  tensor<std::int32_t> whole{{4}, {1, 2, 3, 4}};
  CHECK(failure_of([&] { run(op::relu_forward{whole, whole}, team); }).code == errc::unsupported);
  tensor<float> none{0};
  run(op::gelu_forward{none, none}, team);
}
