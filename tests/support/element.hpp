// SPDX-License-Identifier: Apache-2.0
// One element of a host tensor as a double, whatever its type and strides: slow and obvious.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hetero/core/tensor_view.hpp>

namespace hetero::test {

/// Element `i` in row-major order, strides honoured.
[[nodiscard]] inline std::byte* address(const tensor_view& v, std::size_t i) {
  std::size_t offset = 0;
  for (std::size_t d = v.dims(); d-- > 0;) {
    offset += i % v.extent(d) * v.stride(d);
    i /= v.extent(d);
  }
  return static_cast<std::byte*>(v.data()) + offset * size_of(v.type());
}

[[nodiscard]] inline double get(const tensor_view& v, std::size_t i) {
  const std::byte* p = address(v, i);
  switch (v.type()) {
    case dtype::f64:
      return *reinterpret_cast<const double*>(p);
    case dtype::f32:
      return *reinterpret_cast<const float*>(p);
    case dtype::bf16:
      return static_cast<float>(*reinterpret_cast<const bfloat16*>(p));
    case dtype::f16:
      return static_cast<float>(*reinterpret_cast<const float16*>(p));
    case dtype::i64:
      return static_cast<double>(*reinterpret_cast<const std::int64_t*>(p));
    case dtype::i32:
      return *reinterpret_cast<const std::int32_t*>(p);
    case dtype::i8:
      return *reinterpret_cast<const std::int8_t*>(p);
    case dtype::u8:
      return *reinterpret_cast<const std::uint8_t*>(p);
  }
  return 0;
}

inline void set(const tensor_view& v, std::size_t i, double value) {
  std::byte* p = address(v, i);
  switch (v.type()) {
    case dtype::f64:
      *reinterpret_cast<double*>(p) = value;
      return;
    case dtype::f32:
      *reinterpret_cast<float*>(p) = static_cast<float>(value);
      return;
    case dtype::bf16:
      *reinterpret_cast<bfloat16*>(p) = bfloat16{static_cast<float>(value)};
      return;
    case dtype::f16:
      *reinterpret_cast<float16*>(p) = float16{static_cast<float>(value)};
      return;
    case dtype::i64:
      *reinterpret_cast<std::int64_t*>(p) = static_cast<std::int64_t>(value);
      return;
    case dtype::i32:
      *reinterpret_cast<std::int32_t*>(p) = static_cast<std::int32_t>(value);
      return;
    case dtype::i8:
      *reinterpret_cast<std::int8_t*>(p) = static_cast<std::int8_t>(value);
      return;
    case dtype::u8:
      *reinterpret_cast<std::uint8_t*>(p) = static_cast<std::uint8_t>(value);
      return;
  }
}

}  // namespace hetero::test
