// SPDX-License-Identifier: Apache-2.0
#include "conformance/device_backend.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include <hetero/device/cpu_device.hpp>

using namespace hetero;
using test::code_of;
using test::device_fixture;

namespace {

using all_types = std::tuple<double, float, bfloat16, float16, std::int64_t, std::int32_t, std::int8_t, std::uint8_t>;

template <class F> void for_all_types(F f) {
  std::apply([&](auto... each) { (f(each), ...); }, all_types{});
}

template <class T> double as_double(T value) {
  if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>)
    return static_cast<double>(static_cast<float>(value));
  else
    return static_cast<double>(value);
}

template <class T> T from_double(double value) {
  if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>)
    return T{static_cast<float>(value)};
  else
    return static_cast<T>(value);
}

template <class To, class From> std::vector<To> converted(const std::vector<From>& values) {
  device_fixture f{cpu_device{}};
  const tensor_view out = f.tensor(dtype_of<To>, {values.size()});
  f.launch(op::convert{.out = out, .in = f.tensor(values)});
  return f.template read<To>(out);
}

}  // namespace

TEST_CASE("small integers survive between all 64 pairs of types") {
  for_all_types([](auto from) {
    for_all_types([](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      std::vector<From> values;
      for (int i = 0; i < 700; ++i) values.push_back(from_double<From>(i % 128));
      const auto result = converted<To>(values);
      bool equal = true;
      for (std::size_t i = 0; i < values.size(); ++i)
        equal = equal && as_double(result[i]) == static_cast<double>(i % 128);
      INFO(to_string(dtype_of<From>) << " to " << to_string(dtype_of<To>));
      CHECK(equal);
    });
  });
}

TEST_CASE("floating point becomes an integer towards zero, saturated, NaN as 0") {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values{1.9, -1.9, 200.0, -200.0, 1e30, -infinity, std::nan("")};
  using i8 = std::int8_t;
  using u8 = std::uint8_t;
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  CHECK(converted<i8>(values) == std::vector<i8>{1, -1, 127, -128, 127, -128, 0});
  CHECK(converted<u8>(values) == std::vector<u8>{1, 0, 200, 0, 255, 0, 0});
  CHECK(converted<std::int64_t>(values) == std::vector<std::int64_t>{1, -1, 200, -200, most, least, 0});
  CHECK(converted<std::int64_t>(
            std::vector<double>{9223372036854775807.0, 9223372036854774784.0, -9223372036854775808.0}) ==
        std::vector<std::int64_t>{most, 9223372036854774784, least});
}

TEST_CASE("integers keep their low bits, and 64-bit ones stay exact") {
  const std::vector<std::int64_t> values{(std::int64_t{1} << 60) + 3, -2, 300};
  CHECK(converted<std::int64_t>(values) == values);
  CHECK(converted<std::int32_t>(values) == std::vector<std::int32_t>{3, -2, 300});
  CHECK(converted<std::uint8_t>(values) == std::vector<std::uint8_t>{3, 254, 44});
}

TEST_CASE("16-bit formats round as core defines them") {
  const auto values = test::random_values<float>(1000, 1, 100);
  std::vector<bfloat16> brain;
  std::vector<float16> half;
  for (const float each : values) {
    brain.push_back(bfloat16{each});
    half.push_back(float16{each});
  }
  CHECK(converted<bfloat16>(values) == brain);
  CHECK(converted<float16>(values) == half);
  const auto back = converted<float>(brain);
  for (std::size_t i = 0; i < back.size(); ++i) CHECK(back[i] == static_cast<float>(brain[i]));
}

TEST_CASE("a conversion refuses other counts and gaps") {
  device_fixture f{cpu_device{}};
  const tensor_view a = f.tensor(std::vector<float>(12, 1.0F), {3, 4});
  const tensor_view b = f.tensor(std::vector<double>(10, 1.0));
  CHECK(code_of([&] { f.run(op::convert{.out = a, .in = b}); }) == errc::invalid_shape);
  CHECK(code_of([&] { f.run(op::convert{.out = b.flat(0, 6), .in = a.slice(1, 0, 2)}); }) == errc::invalid_shape);
}
