// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <hetero/comm/operation.hpp>
#include <hetero/comm/reduce_op.hpp>
#include <hetero/core/dtype.hpp>
#include <hetero/core/error.hpp>

/// @file
/// The arithmetic of reductions: `into[i] = into[i] op from[i]`.
namespace hetero::detail {

/// Calls `f(T{})` with the C++ type of a dtype.
template <class F> decltype(auto) visit_dtype(dtype type, F&& f) {
  switch (type) {
    case dtype::f64:
      return f(double{});
    case dtype::f32:
      return f(float{});
    case dtype::bf16:
      return f(bfloat16{});
    case dtype::f16:
      return f(float16{});
    case dtype::i64:
      return f(std::int64_t{});
    case dtype::i32:
      return f(std::int32_t{});
    case dtype::i8:
      return f(std::int8_t{});
    case dtype::u8:
      break;
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

template <reduce_op Op, class T> [[nodiscard]] inline T reduce_pair(T a, T b) noexcept {
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

/// One operation, fixed at compile time; `Swapped` makes what arrives the first operand. Narrow types are computed in
/// their accumulator and rounded. Returns false when an integer sum left its type.
/// The inner loop has a constant length so that compilers vectorise it at -O2 as well.
template <reduce_op Op, bool Swapped = false, class Into, class From>
[[nodiscard]] bool reduce_loop(Into* __restrict into, const From* __restrict from, std::size_t count) noexcept {
  using wide = accumulator_of<Into>;
  constexpr std::size_t block = 16;
  wide overflow{};
  const auto one = [&](std::size_t i) {
    const auto a = static_cast<wide>(into[i]);
    From arrived;  // may lie anywhere: out of a stream's buffer, say
    std::memcpy(&arrived, reinterpret_cast<const std::byte*>(from) + i * sizeof(From), sizeof(From));
    const auto b = static_cast<wide>(arrived);
    const wide result = Swapped ? reduce_pair<Op>(b, a) : reduce_pair<Op>(a, b);
    into[i] = static_cast<Into>(result);
    if constexpr (Op == reduce_op::sum && std::is_integral_v<Into>) {
      if constexpr (std::is_same_v<wide, Into>) {
        overflow = static_cast<wide>(overflow | ((a ^ result) & (b ^ result)));
      } else {
        overflow |= static_cast<wide>(into[i]) == result ? 0 : std::numeric_limits<wide>::min();
      }
    }
  };
  std::size_t i = 0;
  for (; i + block <= count; i += block) {
    for (std::size_t k = 0; k < block; ++k) one(i + k);
  }
  for (; i < count; ++i) one(i);
  if constexpr (std::is_integral_v<Into>) return overflow >= 0;
  return true;
}

/// `into[i] = into[i] op from[i]`, where `Into` is the accumulator of `From`.
/// @throws error invalid_argument when an integer sum overflows
template <class Into, class From> void reduce_into(Into* into, const From* from, std::size_t count, reduce_op op) {
  bool fits = true;
  switch (op) {
    case reduce_op::sum:
      fits = reduce_loop<reduce_op::sum>(into, from, count);
      break;
    case reduce_op::max:
      fits = reduce_loop<reduce_op::max>(into, from, count);
      break;
    case reduce_op::min:
      fits = reduce_loop<reduce_op::min>(into, from, count);
      break;
  }
  if (!fits) throw_overflow(dtype_of<From>);
}

template <reduce_op Op, bool Swapped, class Into, class From>
bool combine_elements(std::byte* into, const std::byte* from, std::size_t count) noexcept {
  return reduce_loop<Op, Swapped>(reinterpret_cast<Into*>(into), reinterpret_cast<const From*>(from), count);
}

/// The combiner of messages of `From` into elements of `Into`. `swapped`: what arrives is the first operand, which
/// matters to the sign of a zero.
template <class Into, class From = Into>
[[nodiscard]] constexpr combiner combiner_of(reduce_op op, bool swapped = false) noexcept {
  combiner c{nullptr, sizeof(From), sizeof(Into)};
  switch (op) {
    case reduce_op::sum:
      c.apply = combine_elements<reduce_op::sum, false, Into, From>;
      break;
    case reduce_op::max:
      c.apply = swapped ? combine_elements<reduce_op::max, true, Into, From>
                        : combine_elements<reduce_op::max, false, Into, From>;
      break;
    case reduce_op::min:
      c.apply = swapped ? combine_elements<reduce_op::min, true, Into, From>
                        : combine_elements<reduce_op::min, false, Into, From>;
      break;
  }
  return c;
}

}  // namespace hetero::detail
