// SPDX-License-Identifier: Apache-2.0
#include "conformance/device_backend.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <hetero/core/fixed_point.hpp>
#include <hetero/device/cpu_device.hpp>

using namespace hetero;
using test::code_of;
using test::device_fixture;
using test::random_values;

TEMPLATE_TEST_CASE("sums of squares are double, added to the result, and repeat bit for bit", "", float, double) {
  using T = TestType;
  for (const std::size_t threads : {1, 2, 3}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{100003}}) {
      const auto values = random_values<T>(count, 1);
      long double expected = 5;
      for (const T each : values) expected += static_cast<long double>(each) * static_cast<long double>(each);
      double first = 0;
      for (int run = 0; run < 2; ++run) {
        device_fixture f{cpu_device{{.threads = threads, .team = {}}}};
        const tensor_view result = f.tensor(std::vector<double>{5.0});
        f.launch(op::sum_squares{.result = result, .in = f.tensor(values)});
        const double sum = f.template read<double>(result)[0];
        CHECK(std::abs(static_cast<long double>(sum) - expected) <= 1e-13L * expected);
        if (run == 0) first = sum;
        CHECK(sum == first);
      }
    }
  }
}

TEST_CASE("a float sum of squares does not lose what single precision would") {
  device_fixture f{cpu_device{}};
  const tensor_view x = f.tensor(dtype::f32, {1 << 20});
  f.launch(op::fill{.out = x, .value = 1e-3});
  f.launch(op::fill{.out = x.flat(0, 1), .value = 1e4});
  const tensor_view result = f.tensor(std::vector<double>{0.0});
  f.launch(op::sum_squares{.result = result, .in = x});
  CHECK(f.read<double>(result)[0] - 1e8 == Approx(1.048575).epsilon(1e-3));
}

TEMPLATE_TEST_CASE("the largest magnitude: any sign, any place, NaN and infinity", "", float, double) {
  using T = TestType;
  for (const std::size_t threads : {1, 2}) {
    device_fixture f{cpu_device{{.threads = threads, .team = {}}}};
    constexpr std::size_t count = 40009;
    const auto largest = [&](std::size_t place, T value, double before) {
      auto values = random_values<T>(count, 1);
      values[place] = value;
      const tensor_view result = f.tensor(std::vector<double>{before});
      f.launch(op::max_abs{.result = result, .in = f.tensor(values)});
      return f.template read<double>(result)[0];
    };
    for (const std::size_t place : {std::size_t{0}, std::size_t{20004}, count - 1}) {
      CHECK(largest(place, T(-3), 0) == 3);
      CHECK(largest(place, T(3), 4) == 4);
      CHECK(largest(place, -std::numeric_limits<T>::infinity(), 0) == std::numeric_limits<double>::infinity());
      CHECK(std::isnan(largest(place, std::numeric_limits<T>::quiet_NaN(), 100)));
    }
    CHECK(std::isnan(largest(0, T(1), std::nan(""))));  // a NaN found earlier stays
  }
}

TEMPLATE_TEST_CASE("fixed-point terms are core's at every exponent", "", float, double) {
  using T = TestType;
  for (const double magnitude : {1e-300, 1e-30, 1.0, 1e30}) {
    if (std::is_same_v<T, float> && magnitude < 1e-38) continue;
    const fixed_point scale{magnitude, 1000};
    const auto values = random_values<T>(20003, 1, magnitude);
    std::vector<std::int64_t> expected(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) expected[i] = scale.encode(static_cast<double>(values[i])) * 2;
    device_fixture f{cpu_device{{.threads = 2, .team = {}}}};
    const tensor_view sum = f.tensor(std::vector<std::int64_t>(values.size(), 0));
    const tensor_view in = f.tensor(values);
    for (int i = 0; i < 2; ++i) {
      f.launch(op::fixed_point_accumulate{.into = sum, .in = in, .exponent = scale.exponent()});
    }
    CHECK(f.template read<std::int64_t>(sum) == expected);
    const tensor_view out = f.tensor(dtype_of<T>, {values.size()});
    f.launch(op::fixed_point_decode{.out = out, .in = sum, .exponent = scale.exponent()});
    const auto decoded = f.template read<T>(out);
    bool close = true;
    for (std::size_t i = 0; i < values.size(); ++i) {
      close =
          close && std::abs(static_cast<double>(decoded[i]) - 2 * static_cast<double>(values[i])) <= magnitude * 1e-6;
      if (std::is_same_v<T, double>) close = close && static_cast<double>(decoded[i]) == scale.decode(expected[i]);
    }
    CHECK(close);
  }
}

TEST_CASE("ties of a fixed-point term go to even, and sums wrap instead of trapping") {
  device_fixture f{cpu_device{}};
  const tensor_view sum = f.tensor(std::vector<std::int64_t>{0, 0, 0, std::numeric_limits<std::int64_t>::max()});
  f.launch(op::fixed_point_accumulate{.into = sum, .in = f.tensor(std::vector<float>{0.5F, 1.5F, -2.5F, 1.0F})});
  CHECK(f.read<std::int64_t>(sum) == std::vector<std::int64_t>{0, 2, -2, std::numeric_limits<std::int64_t>::min()});
}

TEST_CASE("decoding to float rounds once") {
  device_fixture f{cpu_device{}};
  // Just above the middle of two floats; by way of double it would become the middle itself and go down to even.
  const std::int64_t sum = (std::int64_t{1} << 62) + (std::int64_t{1} << 38) + 1;
  const tensor_view out = f.tensor(dtype::f32, {1});
  f.launch(op::fixed_point_decode{.out = out, .in = f.tensor(std::vector<std::int64_t>{sum}), .exponent = 62});
  CHECK(f.read<float>(out)[0] == 1.0F + std::numeric_limits<float>::epsilon());
  CHECK(static_cast<float>(static_cast<double>(sum)) == 0x1p62F);  // the control
}

TEST_CASE("reductions refuse results and operands of other shapes and types") {
  device_fixture f{cpu_device{}};
  const tensor_view x = f.tensor(std::vector<float>(8, 1.0F));
  const tensor_view one = f.tensor(std::vector<double>{0.0});
  const tensor_view single = f.tensor(std::vector<float>{0.0F});
  const tensor_view integers = f.tensor(std::vector<std::int64_t>(8, 1));
  f.run(op::sum_squares{.result = one, .in = x});  // the control
  CHECK(code_of([&] { f.run(op::sum_squares{.result = single, .in = x}); }) == errc::invalid_shape);
  CHECK(code_of([&] { f.run(op::max_abs{.result = x, .in = x}); }) == errc::invalid_shape);
  CHECK(code_of([&] { f.run(op::max_abs{.result = one, .in = integers}); }) == errc::unsupported);
  CHECK(code_of([&] { f.run(op::fixed_point_accumulate{.into = x, .in = x}); }) == errc::invalid_shape);
  CHECK(code_of([&] { f.run(op::fixed_point_decode{.out = x, .in = integers.flat(0, 7)}); }) == errc::invalid_shape);
}
