// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include <hetero/device/cpu/activation.hpp>
#include <hetero/device/cpu/convert.hpp>
#include <hetero/device/cpu/dispatch.hpp>
#include <hetero/device/cpu/simd.hpp>
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/op/elementwise.hpp>

/// @file
/// Fill, conversion and the linear element-wise ops; activation.hpp has the others.
namespace hetero::detail::cpu {

/// @throws error invalid_shape
inline void run(const op::fill& o, thread_team& team) {
  expect_alike("fill", {{"out", o.out}});
  for_any_type(o.out.type(), [&]<class T>() {
    T* const out = o.out.as<T>();
    const T value = convert_value<T>(o.value);
    team.parallel(o.out.count(), 4 * elementwise_grain, [&](std::size_t begin, std::size_t end, std::size_t) {
      for (std::size_t i = begin; i < end; ++i) out[i] = value;
    });
  });
}

/// @throws error invalid_shape
inline void run(const op::convert& o, thread_team& team) {
  constexpr const char* name = "convert";
  expect(o.out.count() == o.in.count(), name, "both operands need equal counts", {{"out", o.out}, {"in", o.in}});
  expect_alike(name, {{"out", o.out}});
  expect_alike(name, {{"in", o.in}});
  team.parallel(o.out.count(), elementwise_grain,
                [&](std::size_t begin, std::size_t end, std::size_t) { convert_elements(o.out, o.in, begin, end); });
}

/// @throws error invalid_shape, unsupported for integers
inline void run(const op::accumulate& o, thread_team& team) {
  constexpr const char* name = "accumulate";
  expect_alike(name, {{"into", o.into}, {"from", o.from}});
  const dtype type = o.into.type();
  if (type == dtype::bf16 || type == dtype::f16) {
    const auto halves = [&]<class T>() {
      T* const into = o.into.as<T>();
      const T* const from = o.from.as<T>();
      const auto factor = static_cast<float>(o.factor);
      team.parallel(o.into.count(), elementwise_grain, [&](std::size_t begin, std::size_t end, std::size_t) {
        for (std::size_t i = begin; i < end; ++i) {
          into[i] = T(static_cast<float>(into[i]) + factor * static_cast<float>(from[i]));
        }
      });
    };
    if (type == dtype::bf16) return halves.operator()<bfloat16>();
    return halves.operator()<float16>();
  }
  require(is_floating(type), errc::unsupported, [&] {
    return std::string{name} + " on a CPU device works in f64, f32, bf16 and f16, not in " + to_string(type);
  });
  for_float_type(name, type, [&]<class T>() {
    T* const into = o.into.as<T>();
    const simd<T> factor{static_cast<T>(o.factor)};
    const auto add_scaled = [factor](const simd<T>& x, const simd<T>& y) { return fma(factor, y, x); };
    map_lanes<T>(team, add_scaled, o.into.count(), into, into, o.from.as<T>());
  });
}

/// @throws error invalid_shape, unsupported
inline void run(const op::scale& o, thread_team& team) {
  expect_alike("scale", {{"values", o.values}});
  for_float_type("scale", o.values.type(), [&]<class T>() {
    T* const values = o.values.as<T>();
    const simd<T> factor{static_cast<T>(o.factor)};
    map_lanes<T>(
        team, [factor](const simd<T>& x) { return x * factor; }, o.values.count(), values, values);
  });
}

/// @throws error invalid_shape, unsupported
inline void run(const op::add& o, thread_team& team) {
  expect_alike("add", {{"out", o.out}, {"a", o.a}, {"b", o.b}});
  for_float_type("add", o.out.type(), [&]<class T>() {
    map_lanes<T>(
        team, [](const simd<T>& a, const simd<T>& b) { return a + b; }, o.out.count(), o.out.as<T>(), o.a.as<T>(),
        o.b.as<T>());
  });
}

}  // namespace hetero::detail::cpu
