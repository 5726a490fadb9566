// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include <hetero/core/error.hpp>
#include <hetero/core/tensor_view.hpp>

/// @file
/// What every CPU kernel asks of its operands before it touches memory, and the step from a dtype to a C++ type.
namespace hetero::detail::cpu {

/// A view with its name in the op, for error texts.
struct operand {
  const char* name;
  const tensor_view& view;
};

/// "out f32 [4, 64] (strided)".
[[nodiscard]] inline std::string describe(const operand& o) {
  return std::string{o.name} + ' ' + to_string(o.view.type()) + ' ' + to_string(o.view.extents()) +
         (o.view.contiguous() ? "" : " (strided)");
}

[[nodiscard]] inline std::string describe(std::initializer_list<operand> operands) {
  std::string text;
  for (const operand& o : operands) text += (text.empty() ? "" : ", ") + describe(o);
  return text;
}

/// @throws error invalid_shape "matmul: <rule>; got a f32 [2, 3], b f32 [4, 5]" unless `holds`
inline void expect(bool holds, const char* op, const char* rule, std::initializer_list<operand> operands) {
  if (!holds) [[unlikely]] {
    throw error{errc::invalid_shape, std::string{op} + ": " + rule + "; got " + describe(operands)};
  }
}

/// All views must have memory (unless they hold nothing), be dense, and have the count and the type of the first.
/// @throws error invalid_shape naming every operand
inline void expect_alike(const char* op, std::initializer_list<operand> operands) {
  const tensor_view& first = operands.begin()->view;
  for (const operand& o : operands) {
    expect(o.view.count() == first.count() && o.view.type() == first.type(), op,
           "all operands need equal counts and one type", operands);
    expect(o.view.contiguous(), op, "operands must be contiguous", operands);
    expect(o.view || o.view.count() == 0, op, "an operand has no memory", operands);
  }
}

/// A dense view with memory for `count` elements of `type`.
/// @throws error invalid_shape
inline void expect_dense(const char* op, const operand& o, std::size_t count, dtype type) {
  if (o.view.count() != count || o.view.type() != type || !o.view.contiguous() || (!o.view && count > 0)) [[unlikely]] {
    throw error{errc::invalid_shape, std::string{op} + ": " + o.name + " must be a contiguous " + to_string(type) +
                                         " tensor of " + std::to_string(count) + " elements; got " + describe(o)};
  }
}

/// Calls f.operator()<T>() for f32 and f64.
/// @throws error unsupported for other types, saying which work
template <class F> inline void for_float_type(const char* op, dtype type, F&& f) {
  switch (type) {
    case dtype::f32:
      return f.template operator()<float>();
    case dtype::f64:
      return f.template operator()<double>();
    default:
      throw error{errc::unsupported, std::string{op} + " on a CPU device works in f32 and f64, not in " +
                                         to_string(type) + "; convert the tensor first"};
  }
}

/// Calls f.operator()<T>() for every dtype.
template <class F> inline void for_any_type(dtype type, F&& f) {
  switch (type) {
    case dtype::f64:
      return f.template operator()<double>();
    case dtype::f32:
      return f.template operator()<float>();
    case dtype::bf16:
      return f.template operator()<bfloat16>();
    case dtype::f16:
      return f.template operator()<float16>();
    case dtype::i64:
      return f.template operator()<std::int64_t>();
    case dtype::i32:
      return f.template operator()<std::int32_t>();
    case dtype::i8:
      return f.template operator()<std::int8_t>();
    case dtype::u8:
      return f.template operator()<std::uint8_t>();
  }
}

/// Elements per thread below which a loop is not worth sharing: about 10 us of streaming.
inline constexpr std::size_t elementwise_grain = 16384;

}  // namespace hetero::detail::cpu
