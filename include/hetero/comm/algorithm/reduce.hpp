// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include <hetero/comm/reduce_op.hpp>
#include <hetero/core/dtype.hpp>
#include <hetero/core/error.hpp>

/// @file
/// The arithmetic of reductions: `into[i] = into[i] op from[i]`.
namespace hetero::detail {

/// Calls `f(T{})` with the C++ type of a dtype.
template <class F>
decltype(auto) visit_dtype(dtype type, F&& f) {
  switch (type) {
    case dtype::f64: return f(double{});
    case dtype::f32: return f(float{});
    case dtype::bf16: return f(bfloat16{});
    case dtype::f16: return f(float16{});
    case dtype::i64: return f(std::int64_t{});
    case dtype::i32: return f(std::int32_t{});
    case dtype::i8: return f(std::int8_t{});
    case dtype::u8: break;
  }
  return f(std::uint8_t{});
}

/// True for types whose sums must not be kept in the type itself: they are summed in 32 bits by the rank that owns the
/// segment and rounded once.
[[nodiscard]] constexpr bool is_narrow(dtype type) noexcept { return size_of(type) <= 2; }

/// The type in which elements of T are added.
template <class T>
using accumulator_of =
    std::conditional_t<sizeof(T) >= 4, T, std::conditional_t<std::is_integral_v<T>, std::int32_t, float>>;

template <reduce_op Op, class T>
[[nodiscard]] inline T reduce_pair(T a, T b) noexcept {
  if constexpr (Op == reduce_op::sum) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));  // overflow is found by the caller, not undefined
    } else {
      return a + b;
    }
  } else if constexpr (Op == reduce_op::max) {
    return (b > a || b != b) ? b : a;  // a NaN on either side stays
  } else {
    return (b < a || b != b) ? b : a;
  }
}

/// One operation, fixed at compile time. Returns false when an integer sum left its type.
/// The inner loop has a constant length so that compilers vectorise it at -O2 as well.
template <reduce_op Op, class Into, class From>
[[nodiscard]] bool reduce_loop(Into* __restrict into, const From* __restrict from, std::size_t count) noexcept {
  constexpr std::size_t block = 16;
  Into overflow{};
  const auto one = [&](std::size_t i) {
    const Into a = into[i];
    const auto b = static_cast<Into>(from[i]);
    const Into result = reduce_pair<Op>(a, b);
    if constexpr (Op == reduce_op::sum && std::is_integral_v<Into>) {
      overflow = static_cast<Into>(overflow | ((a ^ result) & (b ^ result)));
    }
    into[i] = result;
  };
  std::size_t i = 0;
  for (; i + block <= count; i += block) {
    for (std::size_t k = 0; k < block; ++k) one(i + k);
  }
  for (; i < count; ++i) one(i);
  if constexpr (std::is_integral_v<Into>) return overflow >= 0;
  return true;
}

[[noreturn]] inline void throw_overflow(dtype type) {
  throw error{errc::invalid_argument, std::string{"the sum over the ranks does not fit "} + to_string(type) +
                                          "; reduce in a wider type, such as i64"};
}

/// `into[i] = into[i] op from[i]`, where `Into` is the accumulator of `From`.
/// @throws error invalid_argument when an integer sum overflows
template <class Into, class From>
void reduce_into(Into* into, const From* from, std::size_t count, reduce_op op) {
  bool fits = true;
  switch (op) {
    case reduce_op::sum: fits = reduce_loop<reduce_op::sum>(into, from, count); break;
    case reduce_op::max: fits = reduce_loop<reduce_op::max>(into, from, count); break;
    case reduce_op::min: fits = reduce_loop<reduce_op::min>(into, from, count); break;
  }
  if (!fits) throw_overflow(dtype_of<From>);
}

}  // namespace hetero::detail
