// SPDX-License-Identifier: Apache-2.0
#include "conformance/device_backend.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <hetero/device/cpu_device.hpp>

extern "C" int openblas_get_num_threads() __attribute__((weak));

using namespace hetero;
using test::code_of;
using test::device_fixture;
using test::largest_difference;
using test::random_values;

namespace {

template <class T>
std::vector<T> plain_product(const std::vector<T>& a, const std::vector<T>& b, std::size_t m, std::size_t n,
                             std::size_t k) {
  std::vector<T> out(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::size_t l = 0; l < k; ++l) sum += static_cast<double>(a[i * k + l]) * static_cast<double>(b[l * n + j]);
      out[i * n + j] = static_cast<T>(sum);
    }
  }
  return out;
}

}  // namespace

TEMPLATE_TEST_CASE("products of odd sizes match the plain loop for any number of threads", "", float, double) {
  using T = TestType;
  const double tolerance = std::is_same_v<T, float> ? 1e-4 : 1e-12;
  struct size {
    std::size_t m, n, k;
  };
  for (const size s : {size{1, 1, 1}, size{1, 200, 300}, size{200, 1, 300}, size{17, 33, 5}, size{65, 130, 67},
                       size{130, 65, 67}, size{3, 5, 9000}}) {
    const auto a = random_values<T>(s.m * s.k, 1);
    const auto b = random_values<T>(s.k * s.n, 2);
    const auto expected = plain_product(a, b, s.m, s.n, s.k);
    for (const std::size_t threads : {1, 2, 3}) {
      device_fixture f{cpu_device{{.threads = threads, .team = {}}}};
      const tensor_view out = f.tensor(dtype_of<T>, {s.m, s.n});
      f.launch(op::fill{.out = out, .value = std::numeric_limits<double>::quiet_NaN()});
      f.launch(op::matmul{.out = out, .a = f.tensor(a, {s.m, s.k}), .b = f.tensor(b, {s.k, s.n})});
      CHECK(largest_difference(f.template read<T>(out), expected) < tolerance);
    }
  }
}

TEST_CASE("a product has the same bits in every run with one number of threads") {
  const auto a = random_values<float>(200 * 300, 1);
  const auto b = random_values<float>(300 * 100, 2);
  std::vector<float> first;
  for (int run = 0; run < 3; ++run) {
    device_fixture f{cpu_device{{.threads = 2, .team = {}}}};
    const tensor_view out = f.tensor(dtype::f32, {200, 100});
    f.launch(op::matmul{.out = out, .a = f.tensor(a, {200, 300}), .b = f.tensor(b, {300, 100})});
    const auto result = f.read<float>(out);
    if (run == 0) first = result;
    CHECK(result == first);
  }
}

TEST_CASE("a bias is added to every row, whatever out held before") {
  for (const std::size_t threads : {1, 2}) {
    device_fixture f{cpu_device{{.threads = threads, .team = {}}}};
    constexpr std::size_t m = 70, n = 90, k = 80;
    const auto a = random_values<float>(m * k, 1);
    const auto b = random_values<float>(k * n, 2);
    const auto bias = random_values<float>(n, 3);
    auto expected = plain_product(a, b, m, n, k);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i % n];
    const tensor_view out = f.tensor(std::vector<float>(m * n, NAN), {m, n});
    f.launch(op::matmul{.out = out, .a = f.tensor(a, {m, k}), .b = f.tensor(b, {k, n}), .bias = f.tensor(bias)});
    CHECK(largest_difference(f.read<float>(out), expected) < 1e-4);
  }
}

TEST_CASE("rows of all three matrices may be strided, and the gaps stay") {
  device_fixture f{cpu_device{{.threads = 2, .team = {}}}};
  constexpr std::size_t m = 40, n = 50, k = 30;
  const auto wide_a = random_values<float>(m * 2 * k, 1);
  const auto wide_b = random_values<float>(k * 2 * n, 2);
  std::vector<float> a(m * k), b(k * n);
  for (std::size_t i = 0; i < m; ++i) std::copy_n(&wide_a[i * 2 * k + k], k, &a[i * k]);
  for (std::size_t i = 0; i < k; ++i) std::copy_n(&wide_b[i * 2 * n + n / 2], n, &b[i * n]);
  const tensor_view wide_out = f.tensor(std::vector<float>(m * (n + 2), -7.0F), {m, n + 2});
  f.launch(op::matmul{.out = wide_out.slice(1, 1, n + 1),
                      .a = f.tensor(wide_a, {m, 2 * k}).slice(1, k, 2 * k),
                      .b = f.tensor(wide_b, {k, 2 * n}).slice(1, n / 2, n / 2 + n)});
  const auto expected = plain_product(a, b, m, n, k);
  const auto result = f.read<float>(wide_out);
  for (std::size_t i = 0; i < m; ++i) {
    CHECK(result[i * (n + 2)] == -7.0F);
    CHECK(result[i * (n + 2) + n + 1] == -7.0F);
    for (std::size_t j = 0; j < n; ++j) {
      CHECK(std::abs(result[i * (n + 2) + 1 + j] - expected[i * n + j]) < 1e-4F);
    }
  }
}

TEST_CASE("leading dimensions of a dense operand fold into rows") {
  device_fixture f{cpu_device{}};
  const auto a = random_values<float>(2 * 3 * 4, 1);
  const auto b = random_values<float>(4 * 5, 2);
  const tensor_view out = f.tensor(dtype::f32, {2, 3, 5});
  f.launch(op::matmul{.out = out, .a = f.tensor(a, {2, 3, 4}), .b = f.tensor(b, {4, 5})});
  CHECK(largest_difference(f.read<float>(out), plain_product(a, b, 6, 5, 4)) < 1e-5);
}

TEST_CASE("nothing to add up gives the bias, zeros, or what was there") {
  device_fixture f{cpu_device{}};
  const tensor_view a = f.tensor(dtype::f32, {2, 0});
  const tensor_view b = f.tensor(dtype::f32, {0, 3});
  const tensor_view out = f.tensor(std::vector<float>(6, NAN), {2, 3});
  f.launch(op::matmul{.out = out, .a = a, .b = b, .bias = f.tensor(std::vector<float>{1, 2, 3})});
  CHECK(f.read<float>(out) == std::vector<float>{1, 2, 3, 1, 2, 3});
  f.launch(op::matmul{.out = out, .a = a, .b = b, .accumulate = true});
  CHECK(f.read<float>(out) == std::vector<float>{1, 2, 3, 1, 2, 3});
  f.launch(op::matmul{.out = out, .a = a, .b = b});
  CHECK(f.read<float>(out) == std::vector<float>(6, 0.0F));
}

TEST_CASE("a product refuses what BLAS cannot or must not do") {
  device_fixture f{cpu_device{}};
  const tensor_view a = f.tensor(std::vector<float>(6, 1.0F), {2, 3});
  const tensor_view b = f.tensor(std::vector<float>(12, 1.0F), {3, 4});
  const tensor_view out = f.tensor(std::vector<float>(8, 1.0F), {2, 4});
  const tensor_view bias = f.tensor(std::vector<float>(4, 1.0F));
  f.run(op::matmul{.out = out, .a = a, .b = b, .bias = bias});  // the control
  CHECK(code_of([&] { f.run(op::matmul{.out = out, .a = a, .b = b, .bias = bias, .accumulate = true}); }) ==
        errc::invalid_argument);
  CHECK(code_of([&] { f.run(op::matmul{.out = out, .a = a, .b = b, .bias = bias.flat(0, 3)}); }) ==
        errc::invalid_shape);
  CHECK(code_of([&] { f.run(op::matmul{.out = out, .a = a, .b = b, .transpose_b = true}); }) == errc::invalid_shape);
  CHECK(code_of([&] { f.run(op::matmul{.out = out, .a = bias, .b = b}); }) == errc::invalid_shape);
  CHECK(code_of([&] {
          f.run(op::matmul{.out = out, .a = a, .b = f.tensor(dtype::f64, {3, 4})});
        }) == errc::invalid_shape);
  const tensor_view i = f.tensor(std::vector<std::int32_t>(4, 1), {2, 2});
  std::string text;
  CHECK(code_of([&] { f.run(op::matmul{.out = i, .a = i, .b = i}); }, &text) == errc::unsupported);
  CHECK(text.find("f32 and f64") != std::string::npos);
}

TEST_CASE("BLAS keeps to one thread after the first product") {
  device_fixture f{cpu_device{{.threads = 2, .team = {}}}};
  const tensor_view x = f.tensor(std::vector<float>(4, 1.0F), {2, 2});
  f.run(op::matmul{.out = f.tensor(dtype::f32, {2, 2}), .a = x, .b = x});
  if (openblas_get_num_threads != nullptr) CHECK(openblas_get_num_threads() == 1);
}

TEMPLATE_TEST_CASE("column sums add the rows in order on any number of threads", "", float, double) {
  using T = TestType;
  for (const std::size_t columns : {std::size_t{1}, std::size_t{15}, std::size_t{64}, std::size_t{771}}) {
    constexpr std::size_t rows = 129;
    const auto values = random_values<T>(rows * columns, 1);
    std::vector<T> sums(columns, T(0)), more(columns, T(0.5));
    for (std::size_t i = 0; i < values.size(); ++i) {
      sums[i % columns] += values[i];
      more[i % columns] += values[i];
    }
    for (const std::size_t threads : {1, 3}) {
      device_fixture f{cpu_device{{.threads = threads, .team = {}}}};
      const tensor_view in = f.tensor(values, {rows, columns});
      const tensor_view out = f.tensor(std::vector<T>(columns, T(0.5)));
      f.launch(op::column_sum{.out = out, .in = in, .accumulate = true});
      CHECK(f.template read<T>(out) == more);
      f.launch(op::column_sum{.out = out, .in = in});
      CHECK(f.template read<T>(out) == sums);
    }
  }
  device_fixture f{cpu_device{}};
  const tensor_view out = f.tensor(std::vector<T>{T(1), T(2)});
  f.launch(op::column_sum{.out = out, .in = f.tensor(dtype_of<T>, {0, 2})});
  CHECK(f.template read<T>(out) == std::vector<T>{T(0), T(0)});
  CHECK(code_of([&] {
          f.run(op::column_sum{.out = out, .in = f.tensor(dtype_of<T>, {2, 3})});
        }) == errc::invalid_shape);
}
