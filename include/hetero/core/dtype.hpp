// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

/// @file
/// Element types, and the two 16-bit floating-point formats that C++20 has no name for.
namespace hetero {

/// Element type of a tensor.
enum class dtype : std::uint8_t { f64, f32, bf16, f16, i64, i32, i8, u8 };

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(dtype type) noexcept {
  switch (type) {
    case dtype::f64:
    case dtype::i64: return 8;
    case dtype::f32:
    case dtype::i32: return 4;
    case dtype::bf16:
    case dtype::f16: return 2;
    case dtype::i8:
    case dtype::u8: return 1;
  }
  return 0;
}

/// "f32" and so on, as written in plans, reports and error texts.
[[nodiscard]] constexpr const char* to_string(dtype type) noexcept {
  constexpr const char* names[] = {"f64", "f32", "bf16", "f16", "i64", "i32", "i8", "u8"};
  return names[static_cast<std::size_t>(type)];
}

/// True for the four floating-point formats.
[[nodiscard]] constexpr bool is_floating(dtype type) noexcept { return type <= dtype::f16; }

/// bfloat16: the upper half of a binary32. Storage only; arithmetic happens in float.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;

  /// Rounds to nearest, ties to even; NaN stays NaN.
  constexpr explicit bfloat16(float value) noexcept {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    if ((raw & 0x7fffffffU) > 0x7f800000U) {
      bits = static_cast<std::uint16_t>((raw >> 16U) | 0x0040U);
    } else {
      bits = static_cast<std::uint16_t>((raw + 0x7fffU + ((raw >> 16U) & 1U)) >> 16U);
    }
  }

  constexpr explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }

  friend constexpr bool operator==(bfloat16, bfloat16) = default;
};

/// IEEE binary16. Storage only; arithmetic happens in float.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;

  /// Rounds to nearest, ties to even; overflow becomes infinity, NaN stays NaN.
  constexpr explicit float16(float value) noexcept {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((raw >> 16U) & 0x8000U);
    const std::uint32_t magnitude = raw & 0x7fffffffU;
    if (magnitude > 0x7f800000U) {
      bits = static_cast<std::uint16_t>(sign | 0x7e00U);
    } else if (magnitude >= 0x477ff000U) {  // 65520 and above round to infinity
      bits = static_cast<std::uint16_t>(sign | 0x7c00U);
    } else if (magnitude >= 0x38800000U) {  // normal in binary16
      const std::uint32_t rounded = magnitude + 0x0fffU + ((magnitude >> 13U) & 1U);
      bits = static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13U));
    } else {  // subnormal: adding 0.5 shifts the mantissa into place and lets the FPU round
      const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
      bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
    }
  }

  constexpr explicit operator float() const noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16U;
    const std::uint32_t magnitude = bits & 0x7fffU;
    if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13U));
    if (magnitude >= 0x0400U) return std::bit_cast<float>(sign | ((magnitude << 13U) + 0x38000000U));
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }

  friend constexpr bool operator==(float16, float16) = default;
};

namespace detail {
template <class T>
struct dtype_tag;
template <>
struct dtype_tag<double> { static constexpr dtype value = dtype::f64; };
template <>
struct dtype_tag<float> { static constexpr dtype value = dtype::f32; };
template <>
struct dtype_tag<bfloat16> { static constexpr dtype value = dtype::bf16; };
template <>
struct dtype_tag<float16> { static constexpr dtype value = dtype::f16; };
template <>
struct dtype_tag<std::int64_t> { static constexpr dtype value = dtype::i64; };
template <>
struct dtype_tag<std::int32_t> { static constexpr dtype value = dtype::i32; };
template <>
struct dtype_tag<std::int8_t> { static constexpr dtype value = dtype::i8; };
template <>
struct dtype_tag<std::uint8_t> { static constexpr dtype value = dtype::u8; };
}  // namespace detail

/// The dtype of a C++ element type.
template <class T>
inline constexpr dtype dtype_of = detail::dtype_tag<T>::value;

}  // namespace hetero
