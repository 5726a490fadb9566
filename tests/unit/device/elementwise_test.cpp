// SPDX-License-Identifier: Apache-2.0
#include "conformance/device_backend.hpp"

#include <cstdint>
#include <vector>

#include <hetero/device/cpu_device.hpp>

using namespace hetero;
using test::code_of;
using test::device_fixture;
using test::random_values;

TEMPLATE_TEST_CASE("add, scale and accumulate at odd sizes on several threads, in place too", "", float, double) {
  using T = TestType;
  for (const std::size_t threads : {1, 3}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{37}, std::size_t{100003}}) {
      device_fixture f{cpu_device{{.threads = threads, .team = {}}}};
      const auto a = random_values<T>(count, 1);
      const auto b = random_values<T>(count, 2);
      std::vector<T> sum(count), scaled(count);
      for (std::size_t i = 0; i < count; ++i) {
        sum[i] = a[i] + b[i];
        scaled[i] = a[i] * T(3);
      }
      const tensor_view x = f.tensor(a);
      const tensor_view y = f.tensor(b);
      const tensor_view out = f.tensor(dtype_of<T>, {count});
      f.launch(op::add{.out = out, .a = x, .b = y});
      CHECK(f.template read<T>(out) == sum);
      f.launch(op::scale{.values = x, .factor = 3});
      CHECK(f.template read<T>(x) == scaled);
      f.launch(op::accumulate{.into = x, .from = y, .factor = -2});
      for (std::size_t i = 0; i < count; ++i) scaled[i] = scaled[i] - T(2) * b[i];
      CHECK(test::largest_difference(f.template read<T>(x), scaled) < 1e-6);
      f.launch(op::add{.out = y, .a = y, .b = y});
      for (std::size_t i = 0; i < count; ++i) sum[i] = b[i] + b[i];
      CHECK(f.template read<T>(y) == sum);
    }
  }
}

TEST_CASE("the bits of an element do not depend on where its range begins or ends") {
  device_fixture f{cpu_device{}};
  constexpr std::size_t count = 101;
  const auto a = random_values<float>(count, 1);
  const auto b = random_values<float>(count, 2);
  const tensor_view from = f.tensor(b);
  const tensor_view whole = f.tensor(a);
  f.launch(op::accumulate{.into = whole, .from = from, .factor = 0.3});
  for (const std::size_t cut : {std::size_t{1}, std::size_t{16}, std::size_t{50}, std::size_t{99}}) {
    const tensor_view parts = f.tensor(a);
    f.launch(op::accumulate{.into = parts.flat(0, cut), .from = from.flat(0, cut), .factor = 0.3});
    f.launch(op::accumulate{.into = parts.flat(cut, count), .from = from.flat(cut, count), .factor = 0.3});
    CHECK(f.read<float>(parts) == f.read<float>(whole));
  }
}

TEST_CASE("fill writes every element type") {
  device_fixture f{cpu_device{{.threads = 2, .team = {}}}};
  const auto filled = [&]<class T>(T expected, double value) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{300001}}) {
      const tensor_view x = f.tensor(dtype_of<T>, {count});
      f.launch(op::fill{.out = x, .value = value});
      CHECK(f.template read<T>(x) == std::vector<T>(count, expected));
    }
  };
  filled(1.5, 1.5);
  filled(1.5F, 1.5);
  filled(bfloat16{1.5F}, 1.5);
  filled(float16{1.5F}, 1.5);
  filled(std::int64_t{-1}, -1.9);
  filled(std::int32_t{7}, 7.0);
  filled(std::int8_t{127}, 1000.0);
  filled(std::uint8_t{0}, -5.0);
}

TEST_CASE("16-bit tensors accumulate through float") {
  device_fixture f{cpu_device{}};
  const auto check = [&]<class T>(T) {
    std::vector<T> a, b, expected;
    for (int i = 0; i < 100; ++i) {
      a.push_back(T{0.1F * static_cast<float>(i)});
      b.push_back(T{1.0F / static_cast<float>(i + 1)});
      expected.push_back(T{static_cast<float>(a.back()) + 0.5F * static_cast<float>(b.back())});
    }
    const tensor_view into = f.tensor(a);
    f.launch(op::accumulate{.into = into, .from = f.tensor(b), .factor = 0.5});
    CHECK(f.template read<T>(into) == expected);
  };
  check(bfloat16{});
  check(float16{});
}

TEST_CASE("element-wise ops refuse other counts, types, gaps and integers") {
  device_fixture f{cpu_device{}};
  const tensor_view x = f.tensor(std::vector<float>(12, 1.0F), {3, 4});
  const tensor_view d = f.tensor(std::vector<double>(12, 1.0));
  const tensor_view i = f.tensor(std::vector<std::int32_t>(12, 1));
  f.run(op::add{.out = x, .a = x, .b = x});  // the control
  CHECK(code_of([&] { f.run(op::add{.out = x, .a = x, .b = x.slice(0, 0, 2)}); }) == errc::invalid_shape);
  CHECK(code_of([&] { f.run(op::add{.out = x, .a = x, .b = d}); }) == errc::invalid_shape);
  CHECK(code_of([&] { f.run(op::scale{.values = x.slice(1, 0, 2)}); }) == errc::invalid_shape);
  CHECK(code_of([&] { f.run(op::add{.out = x, .a = x, .b = {}}); }) == errc::invalid_shape);
  std::string text;
  CHECK(code_of([&] { f.run(op::accumulate{.into = i, .from = i}); }, &text) == errc::unsupported);
  CHECK(text.find("bf16") != std::string::npos);
  CHECK(code_of([&] { f.run(op::scale{.values = i}); }) == errc::unsupported);
}
