// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <hetero/core/config.hpp>

/// @file
/// Transcendental functions without branches, calls or tables. One source serves scalars (host and device; compilers
/// vectorise loops over them) and `detail::simd` values.
namespace hetero::functor {

namespace detail {

/// A pack of lanes made of machine registers, such as hetero::detail::simd.
template <class V>
concept lane_pack = requires(V v) {
  typename V::native;
  v.part[0];
};

/// The unsigned integer, or vector of them, with the bits of F.
template <class F>
struct bits_of {
  typedef std::uint32_t type __attribute__((vector_size(sizeof(F))));
};
template <>
struct bits_of<float> {
  using type = std::uint32_t;
};

/// f on each register of a pack, without a loop: compilers keep an indexed array of vectors in memory.
template <lane_pack V, class Function, class... Values>
inline V by_part(Function f, const V& x, const Values&... others) noexcept {
  V result;
  result.part[0] = f(x.part[0], others.part[0]...);
  if constexpr (V::parts > 1) result.part[1] = f(x.part[1], others.part[1]...);
  if constexpr (V::parts > 2) {
    result.part[2] = f(x.part[2], others.part[2]...);
    result.part[3] = f(x.part[3], others.part[3]...);
  }
  return result;
}

/// f on each lane of one register: for the functions that the standard library has for scalars only.
template <class Native, class Function>
inline Native by_lane(Function f, Native x) noexcept {
  for (std::size_t i = 0; i < sizeof(x) / sizeof(x[0]); ++i) x[i] = f(x[i]);
  return x;
}

/// F is float or a machine vector of floats.
template <class F>
HETERO_HOST_DEVICE inline F exp_f32(F x) noexcept {
  using bits = typename bits_of<F>::type;
  // Both ends are cut by integers: after a comparison of floats g++ branches around the arithmetic and then does not
  // vectorise it. Among negative floats, larger bits are lower values; beyond -infinity come the negative NaNs.
  const bits x_bits = __builtin_bit_cast(bits, x);
  const bits lowest = bits{} + 0xC2AE999AU;  // -87.3, where n = -126 and `half_power` is 0: no slow subnormals
  const bits cut = x_bits < lowest ? x_bits : lowest;
  const F clamped = __builtin_bit_cast(F, static_cast<bits>(x_bits > 0xFF800000U ? x_bits : cut));
  // Adding 1.5 * 2^23 leaves x / ln 2, rounded to an integer n, in the lowest bits of the sum; n stops at 128, where
  // e^x is infinite.
  const bits sum_bits = __builtin_bit_cast(bits, static_cast<F>(clamped * 1.44269504F + 12582912.0F));
  const bits most = bits{} + (0x4B400000U + 128U);
  const bits n_bits = sum_bits < most ? sum_bits : most;
  const F n = __builtin_bit_cast(F, n_bits) - 12582912.0F;
  // x - n ln 2 in two steps: the first product is exact.
  const F r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  F p = r * 1.39262508e-3F + 8.36323288e-3F;  // Chebyshev fit of (e^r - 1 - r) / r^2, error below 8e-9
  p = p * r + 4.16665542e-2F;
  p = p * r + 1.66665767e-1F;
  p = p * r + 0.5F;
  p = p * (r * r) + r + 1.0F;
  // 2^(n - 1), and p doubled: n reaches 128, and 2^128 is no float.
  const F half_power = __builtin_bit_cast(F, static_cast<bits>((n_bits << 23U) + (126U << 23U)));
  return (p + p) * half_power;
}

/// F is float or a machine vector of floats.
template <class F>
HETERO_HOST_DEVICE inline F tanh_f32(F x) noexcept {
  using bits = typename bits_of<F>::type;
  constexpr std::uint32_t sign_bit = 0x80000000U;
  const bits x_bits = __builtin_bit_cast(bits, x);
  const F magnitude = __builtin_bit_cast(F, static_cast<bits>(x_bits & ~sign_bit));
  // Far from zero: 1 - 2 / (e^2|x| + 1).
  const F far = 1.0F - 2.0F / (exp_f32<F>(magnitude + magnitude) + 1.0F);
  const bits far_bits = __builtin_bit_cast(bits, far);
  // Near zero that difference would cancel: an odd polynomial, fitted for |x| <= 0.65 with relative error below 2e-9.
  const F square = magnitude * magnitude;
  F p = square * 2.21490274e-3F - 8.27245673e-3F;
  p = p * square + 2.17461871e-2F;
  p = p * square - 5.39563494e-2F;
  p = p * square + 1.33332907e-1F;
  p = p * square - 3.33333331e-1F;
  const bits near_bits = __builtin_bit_cast(bits, static_cast<F>(magnitude + magnitude * (square * p)));
  // All ones for |x| < 0.625 = 0x3f200000, by integers: a comparison of floats would let compilers move the arithmetic
  // above behind a branch, and then not vectorise it.
  const bits choose_near = bits{} - (((x_bits & ~sign_bit) - 0x3f200000U) >> 31U);
  return __builtin_bit_cast(
      F, static_cast<bits>((near_bits & choose_near) | (far_bits & ~choose_near) | (x_bits & sign_bit)));
}

}  // namespace detail

/// e^x. In float within 2 units of the last place; 0 below -86.99 (no subnormal results), infinity above 88.72, NaN
/// stays NaN. In double the standard library's.
struct fast_exp {
  HETERO_HOST_DEVICE float operator()(float x) const noexcept { return detail::exp_f32<float>(x); }
  HETERO_HOST_DEVICE double operator()(double x) const noexcept { return std::exp(x); }
  template <detail::lane_pack V>
  V operator()(const V& x) const noexcept {
    return detail::by_part(
        []<class Native>(Native part) {
          if constexpr (sizeof(part[0]) == sizeof(float)) {
            return detail::exp_f32<Native>(part);
          } else {
            return detail::by_lane([](double lane) { return std::exp(lane); }, part);
          }
        },
        x);
  }
};

/// tanh x. In float within 4 units of the last place, NaN stays NaN. In double the standard library's.
struct fast_tanh {
  HETERO_HOST_DEVICE float operator()(float x) const noexcept { return detail::tanh_f32<float>(x); }
  HETERO_HOST_DEVICE double operator()(double x) const noexcept { return std::tanh(x); }
  template <detail::lane_pack V>
  V operator()(const V& x) const noexcept {
    return detail::by_part(
        []<class Native>(Native part) {
          if constexpr (sizeof(part[0]) == sizeof(float)) {
            return detail::tanh_f32<Native>(part);
          } else {
            return detail::by_lane([](double lane) { return std::tanh(lane); }, part);
          }
        },
        x);
  }
};

}  // namespace hetero::functor
