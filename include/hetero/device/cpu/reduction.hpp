// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <hetero/device/cpu/dispatch.hpp>
#include <hetero/device/cpu/simd.hpp>
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/op/reduction.hpp>

namespace hetero::detail::cpu {

/// Sum of squares of `count` values in double. Four sums run side by side, because one would wait for each addition.
template <class T> [[nodiscard]] inline double sum_of_squares(const T* in, std::size_t count) noexcept {
  constexpr std::size_t lanes = simd<double>::lanes;
  const simd<double> zero{0.0};
  simd<double> sums[4] = {zero, zero, zero, zero};
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const simd<double> x0 = load_widened(in + i);
    const simd<double> x1 = load_widened(in + i + lanes);
    const simd<double> x2 = load_widened(in + i + 2 * lanes);
    const simd<double> x3 = load_widened(in + i + 3 * lanes);
    sums[0] = fma(x0, x0, sums[0]);
    sums[1] = fma(x1, x1, sums[1]);
    sums[2] = fma(x2, x2, sums[2]);
    sums[3] = fma(x3, x3, sums[3]);
  }
  double total = ((sums[0] + sums[2]) + (sums[1] + sums[3])).sum();
  for (; i < count; ++i) total += static_cast<double>(in[i]) * static_cast<double>(in[i]);
  return total;
}

/// Largest magnitude of `count` values, NaN if one is.
template <class T> [[nodiscard]] inline double largest_magnitude(const T* in, std::size_t count) noexcept {
  simd<T> largest{T{0}};
  simd<T> poison{T{0}};
  for_lanes<T>(0, count, [&](std::size_t i, auto lanes) {
    const simd<T> x = load_lanes(in + i, lanes);
    largest = max(largest, abs(x));
    poison = keep_nan(poison, x);
  });
  for (std::size_t lane = 0; lane < simd<T>::lanes; ++lane) {
    if (std::isnan(poison[lane])) return std::numeric_limits<double>::quiet_NaN();
  }
  return static_cast<double>(largest.maximum());
}

/// value * 2^exponent with one rounding, for exponents of fixed_point (|exponent| below 1200), where one factor might
/// overflow; the two factors are exact, so only a result below 2^-400 can lose bits, and that rounds to 0 anyway.
class power_of_two {
 public:
  explicit power_of_two(int exponent) noexcept
      : first_{std::ldexp(1.0, exponent / 2)}, second_{std::ldexp(1.0, exponent - exponent / 2)} {}
  [[nodiscard]] double times(double value) const noexcept { return value * first_ * second_; }

 private:
  double first_;
  double second_;
};

/// @throws error invalid_shape, unsupported
inline void run(const op::sum_squares& o, thread_team& team) {
  constexpr const char* name = "sum_squares";
  expect_dense(name, {"result", o.result}, 1, dtype::f64);
  expect_alike(name, {{"in", o.in}});
  for_float_type(name, o.in.type(), [&]<class T>() {
    const T* const in = o.in.as<T>();
    std::vector<double> partial(team.ranges(o.in.count(), elementwise_grain), 0.0);
    team.parallel(o.in.count(), elementwise_grain, [&](std::size_t begin, std::size_t end, std::size_t worker) {
      partial[worker] = sum_of_squares(in + begin, end - begin);
    });
    double total = 0;
    for (const double each : partial) total += each;
    *o.result.as<double>() += total;
  });
}

/// @throws error invalid_shape, unsupported
inline void run(const op::max_abs& o, thread_team& team) {
  constexpr const char* name = "max_abs";
  expect_dense(name, {"result", o.result}, 1, dtype::f64);
  expect_alike(name, {{"in", o.in}});
  for_float_type(name, o.in.type(), [&]<class T>() {
    const T* const in = o.in.as<T>();
    std::vector<double> partial(team.ranges(o.in.count(), elementwise_grain), 0.0);
    team.parallel(o.in.count(), elementwise_grain, [&](std::size_t begin, std::size_t end, std::size_t worker) {
      partial[worker] = largest_magnitude(in + begin, end - begin);
    });
    double& result = *o.result.as<double>();
    for (const double each : partial) {
      if (!(each <= result)) result = std::isnan(result) ? result : each;
    }
  });
}

/// @throws error invalid_shape, unsupported
inline void run(const op::fixed_point_accumulate& o, thread_team& team) {
  constexpr const char* name = "fixed_point_accumulate";
  expect_alike(name, {{"in", o.in}});
  expect_dense(name, {"into", o.into}, o.in.count(), dtype::i64);
  for_float_type(name, o.in.type(), [&]<class T>() {
    const T* const in = o.in.as<T>();
    std::int64_t* const into = o.into.as<std::int64_t>();
    const power_of_two scale{o.exponent};
    team.parallel(o.in.count(), elementwise_grain / 4, [&](std::size_t begin, std::size_t end, std::size_t) {
      for (std::size_t i = begin; i < end; ++i) {
        const auto term = static_cast<std::int64_t>(std::nearbyint(scale.times(static_cast<double>(in[i]))));
        into[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(into[i]) + static_cast<std::uint64_t>(term));
      }
    });
  });
}

/// @throws error invalid_shape, unsupported
inline void run(const op::fixed_point_decode& o, thread_team& team) {
  constexpr const char* name = "fixed_point_decode";
  expect_alike(name, {{"out", o.out}});
  expect_dense(name, {"in", o.in}, o.out.count(), dtype::i64);
  for_float_type(name, o.out.type(), [&]<class T>() {
    const std::int64_t* const in = o.in.as<std::int64_t>();
    T* const out = o.out.as<T>();
    const power_of_two scale{-o.exponent};
    team.parallel(o.out.count(), elementwise_grain / 4, [&](std::size_t begin, std::size_t end, std::size_t) {
      // The integer is rounded to T itself, not by way of double: one rounding.
      for (std::size_t i = begin; i < end; ++i) {
        out[i] = static_cast<T>(scale.times(static_cast<double>(static_cast<T>(in[i]))));
      }
    });
  });
}

}  // namespace hetero::detail::cpu
