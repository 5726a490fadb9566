// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

/// @file
/// 64 bytes of lanes as one value, in terms of the compiler's vector extension: one source for every instruction set.
///
/// The lane count does not depend on the instruction set, so a lane-split sum adds in the same order on all of them.
/// The vectors themselves have the width of the machine's registers: compilers keep wider ones in memory.
namespace hetero::detail {

#if defined(__AVX512F__)
inline constexpr std::size_t vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr std::size_t vector_bytes = 32;
#else
inline constexpr std::size_t vector_bytes = 16;
#endif

template <class T> struct native_vector;
template <> struct native_vector<float> { typedef float type __attribute__((vector_size(vector_bytes))); };
template <> struct native_vector<double> { typedef double type __attribute__((vector_size(vector_bytes))); };

/// Correctly rounded square roots of a vector. The built-in function would set errno and stay scalar.
template <class V> [[nodiscard]] inline V sqrt_vector(V x) noexcept {
#if defined(__AVX__)
  if constexpr (sizeof(x[0]) == 4) {
    asm("vsqrtps %1, %0" : "=v"(x) : "v"(x));
  } else {
    asm("vsqrtpd %1, %0" : "=v"(x) : "v"(x));
  }
#elif defined(__SSE2__)
  if constexpr (sizeof(x[0]) == 4) {
    asm("sqrtps %1, %0" : "=x"(x) : "x"(x));
  } else {
    asm("sqrtpd %1, %0" : "=x"(x) : "x"(x));
  }
#else
  for (std::size_t i = 0; i < sizeof(x) / sizeof(x[0]); ++i) x[i] = std::sqrt(x[i]);
#endif
  return x;
}

/// 64 bytes of float or double lanes.
template <class T>
requires std::is_same_v<T, float> || std::is_same_v<T, double>
struct simd {
  using native = typename native_vector<T>::type;
  static constexpr std::size_t lanes = 64 / sizeof(T);
  static constexpr std::size_t parts = 64 / vector_bytes;
  static constexpr std::size_t lanes_per_part = lanes / parts;

  native part[parts];

  simd() = default;
  /// The value in every lane.
  simd(T value) noexcept {  // implicit, so that formulas read alike for T and simd<T>
    each([&](std::size_t p) { part[p] = value - native{}; });
  }

  [[nodiscard]] static simd load(const T* from) noexcept {
    simd result;
    each([&](std::size_t p) { std::memcpy(&result.part[p], from + p * lanes_per_part, sizeof(native)); });
    return result;
  }
  void store(T* to) const noexcept {
    each([&](std::size_t p) { std::memcpy(to + p * lanes_per_part, &part[p], sizeof(native)); });
  }

  /// The first `count` lanes from memory, the rest zero; nothing beyond is read.
  [[nodiscard]] static simd load_partial(const T* from, std::size_t count) noexcept {
    alignas(64) T lane[lanes] = {};
    if (count > 0) std::memcpy(lane, from, std::min(count, lanes) * sizeof(T));
    return load(lane);
  }
  /// Writes the first `count` lanes only.
  void store_partial(T* to, std::size_t count) const noexcept {
    alignas(64) T lane[lanes];
    store(lane);
    if (count > 0) std::memcpy(to, lane, std::min(count, lanes) * sizeof(T));
  }

  [[nodiscard]] T operator[](std::size_t lane) const noexcept {
    return part[lane / lanes_per_part][lane % lanes_per_part];
  }

  friend simd operator+(simd a, const simd& b) noexcept {
    each([&](std::size_t p) { a.part[p] += b.part[p]; });
    return a;
  }
  friend simd operator-(simd a, const simd& b) noexcept {
    each([&](std::size_t p) { a.part[p] -= b.part[p]; });
    return a;
  }
  friend simd operator*(simd a, const simd& b) noexcept {
    each([&](std::size_t p) { a.part[p] *= b.part[p]; });
    return a;
  }
  friend simd operator/(simd a, const simd& b) noexcept {
    each([&](std::size_t p) { a.part[p] /= b.part[p]; });
    return a;
  }
  simd& operator+=(const simd& b) noexcept { return *this = *this + b; }
  simd& operator-=(const simd& b) noexcept { return *this = *this - b; }
  simd& operator*=(const simd& b) noexcept { return *this = *this * b; }

  /// a * b + c; one rounding where the machine fuses, two where it does not.
  friend simd fma(const simd& a, const simd& b, const simd& c) noexcept {
    simd r;
    each([&](std::size_t p) { r.part[p] = a.part[p] * b.part[p] + c.part[p]; });
    return r;
  }
  friend simd sqrt(simd a) noexcept {
    each([&](std::size_t p) { a.part[p] = sqrt_vector(a.part[p]); });
    return a;
  }
  /// a < b ? b : a in each lane; a NaN in a stays.
  friend simd max(const simd& a, const simd& b) noexcept {
    simd r;
    each([&](std::size_t p) { r.part[p] = a.part[p] < b.part[p] ? b.part[p] : a.part[p]; });
    return r;
  }
  /// b < a ? b : a in each lane; a NaN in a stays.
  friend simd min(const simd& a, const simd& b) noexcept {
    simd r;
    each([&](std::size_t p) { r.part[p] = b.part[p] < a.part[p] ? b.part[p] : a.part[p]; });
    return r;
  }
  friend simd abs(const simd& a) noexcept {
    simd r;
    each([&](std::size_t p) { r.part[p] = a.part[p] < 0 ? -a.part[p] : a.part[p]; });
    return r;
  }
  /// b where it is NaN, else a: remembers a NaN that `max` passed over.
  friend simd keep_nan(const simd& a, const simd& b) noexcept {
    simd r;
    each([&](std::size_t p) { r.part[p] = b.part[p] == b.part[p] ? a.part[p] : b.part[p]; });
    return r;
  }
  /// a > 0 ? b : c in each lane.
  friend simd if_positive(const simd& a, const simd& b, const simd& c) noexcept {
    simd r;
    each([&](std::size_t p) { r.part[p] = a.part[p] > 0 ? b.part[p] : c.part[p]; });
    return r;
  }

  /// Sum of all lanes by halving: lane i takes lane i + lanes / 2, then i + lanes / 4, and so on.
  [[nodiscard]] T sum() const noexcept {
    return fold([](auto a, auto b) { return a + b; });
  }
  /// Largest lane, in the order of `sum`.
  [[nodiscard]] T maximum() const noexcept {
    return fold([](auto a, auto b) { return a < b ? b : a; });
  }

 private:
  /// Unrolled by hand (a loop over `part` would keep the vectors in memory).
  template <class F> static void each(F f) noexcept {
    f(0);
    if constexpr (parts > 1) f(1);
    if constexpr (parts > 2) f(2), f(3);
  }

  template <class F> [[nodiscard]] T fold(F f) const noexcept {
    native v = part[0];
    if constexpr (parts == 2) v = f(part[0], part[1]);
    if constexpr (parts == 4) v = f(f(part[0], part[2]), f(part[1], part[3]));
    [&]<int... Lane>(std::integer_sequence<int, Lane...>) {
      constexpr int n = static_cast<int>(lanes_per_part);
      if constexpr (n >= 16) v = f(v, __builtin_shufflevector(v, v, (Lane + 8) % n...));
      if constexpr (n >= 8) v = f(v, __builtin_shufflevector(v, v, (Lane + 4) % n...));
      if constexpr (n >= 4) v = f(v, __builtin_shufflevector(v, v, (Lane + 2) % n...));
      v = f(v, __builtin_shufflevector(v, v, (Lane + 1) % n...));
    }
    (std::make_integer_sequence<int, static_cast<int>(lanes_per_part)>{});
    return v[0];
  }
};

/// Eight floats of a 16-lane vector as doubles: `half` 0 or 1.
[[nodiscard]] inline simd<double> widen(const simd<float>& x, std::size_t half) noexcept {
  alignas(64) float lane[16];
  alignas(64) double wide[8];
  x.store(lane);
  for (std::size_t i = 0; i < 8; ++i) wide[i] = static_cast<double>(lane[8 * half + i]);
  return simd<double>::load(wide);
}

/// Eight floats from memory as doubles.
[[nodiscard]] inline simd<double> load_widened(const float* from) noexcept {
  typedef float narrow __attribute__((vector_size(vector_bytes / 2)));
  constexpr std::size_t step = simd<double>::lanes_per_part;
  simd<double> result;
  const auto part = [&](std::size_t p) {
    narrow values;
    std::memcpy(&values, from + p * step, sizeof values);
    result.part[p] = __builtin_convertvector(values, typename simd<double>::native);
  };
  part(0);
  if constexpr (simd<double>::parts > 1) part(1);
  if constexpr (simd<double>::parts > 2) part(2), part(3);
  return result;
}
/// Eight doubles from memory.
[[nodiscard]] inline simd<double> load_widened(const double* from) noexcept { return simd<double>::load(from); }

/// Calls body(i, lanes) for each group of `simd<T>::lanes` elements in [begin, end); the last may be partial.
///
/// The body must do its arithmetic on whole vectors even for a partial group (`load_partial`, `store_partial`), so that
/// the bits of an element do not depend on where a range or a shard happens to end.
template <class T, class Body> inline void for_lanes(std::size_t begin, std::size_t end, Body&& body) {
  constexpr std::size_t lanes = simd<T>::lanes;
  std::size_t i = begin;
  for (; i + lanes <= end; i += lanes) body(i, std::integral_constant<std::size_t, lanes>{});
  if (i < end) body(i, end - i);
}

/// Loads a whole or a partial group, by the type that `for_lanes` passes.
template <class T, class Count> [[nodiscard]] inline simd<T> load_lanes(const T* from, Count count) noexcept {
  if constexpr (std::is_same_v<Count, std::size_t>)
    return simd<T>::load_partial(from, count);
  else
    return simd<T>::load(from);
}

template <class T, class Count> inline void store_lanes(const simd<T>& value, T* to, Count count) noexcept {
  if constexpr (std::is_same_v<Count, std::size_t>)
    value.store_partial(to, count);
  else
    value.store(to);
}

}  // namespace hetero::detail
