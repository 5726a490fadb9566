// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <hetero/core/dtype.hpp>
#include <hetero/core/tensor_view.hpp>
#include <hetero/device/cpu/dispatch.hpp>

/// @file
/// Conversion between the eight element types. Pairs that training uses are direct loops; the others pass through
/// double or int64 in blocks, which is 16 loops instead of 64.
namespace hetero::detail::cpu {

/// The value as `To`. Floating point rounds to nearest; a floating-point value becomes an integer towards zero,
/// saturated at the ends of the type, NaN as 0; integers keep their low bits.
template <class To, class From> [[nodiscard]] inline To convert_value(From value) noexcept {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, bfloat16> || std::is_same_v<From, float16>) {
    return convert_value<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bfloat16> || std::is_same_v<To, float16>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::integral<To> && std::floating_point<From>) {
    constexpr auto lowest = static_cast<From>(std::numeric_limits<To>::min());
    constexpr auto limit = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * 2;  // the first value too large
    if (std::isnan(value)) return 0;
    if (value < lowest) return std::numeric_limits<To>::min();
    return value >= limit ? std::numeric_limits<To>::max() : static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

/// out[i] = in[i] for i in [begin, end), as op::convert defines it.
inline void convert_elements(const tensor_view& out, const tensor_view& in, std::size_t begin, std::size_t end) {
  const auto direct = [&]<class To, class From>() {
    To* const to = out.as<To>();
    const From* const from = in.as<From>();
    for (std::size_t i = begin; i < end; ++i) to[i] = convert_value<To>(from[i]);
  };
  const auto through = [&]<class Middle>() {
    constexpr std::size_t block = 256;
    Middle middle[block];
    for (std::size_t first = begin; first < end; first += block) {
      const std::size_t count = std::min(block, end - first);
      for_any_type(in.type(), [&]<class From>() {
        const From* const from = in.as<From>() + first;
        for (std::size_t i = 0; i < count; ++i) middle[i] = convert_value<Middle>(from[i]);
      });
      for_any_type(out.type(), [&]<class To>() {
        To* const to = out.as<To>() + first;
        for (std::size_t i = 0; i < count; ++i) to[i] = convert_value<To>(middle[i]);
      });
    }
  };
  const auto is = [&](dtype to, dtype from) { return out.type() == to && in.type() == from; };
  if (out.type() == in.type()) {
    const std::size_t element = size_of(in.type());
    if (begin < end) {
      std::memmove(static_cast<std::byte*>(out.data()) + begin * element,
                   static_cast<const std::byte*>(in.data()) + begin * element, (end - begin) * element);
    }
  } else if (is(dtype::f32, dtype::f64)) {
    direct.operator()<float, double>();
  } else if (is(dtype::f64, dtype::f32)) {
    direct.operator()<double, float>();
  } else if (is(dtype::bf16, dtype::f32)) {
    direct.operator()<bfloat16, float>();
  } else if (is(dtype::f32, dtype::bf16)) {
    direct.operator()<float, bfloat16>();
  } else if (is(dtype::f16, dtype::f32)) {
    direct.operator()<float16, float>();
  } else if (is(dtype::f32, dtype::f16)) {
    direct.operator()<float, float16>();
  } else if (is_floating(out.type()) || is_floating(in.type())) {
    through.operator()<double>();
  } else {
    through.operator()<std::int64_t>();
  }
}

}  // namespace hetero::detail::cpu
