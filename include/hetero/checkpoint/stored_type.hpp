// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include <hetero/core/dtype.hpp>

/// @file
/// Element types that files hold, some of which no tensor here has, and the conversions that change no value.
namespace hetero {

/// Element type of a tensor in a file.
enum class stored_type : std::uint8_t {
  f64,
  f32,
  bf16,
  f16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  f8_e4m3,
  f8_e5m2
};

/// The name that safetensors files write.
[[nodiscard]] constexpr std::string_view to_string(stored_type type) noexcept {
  constexpr std::string_view names[] = {"F64", "F32", "BF16", "F16", "I64",  "I32",     "I16",    "I8",
                                        "U64", "U32", "U16",  "U8",  "BOOL", "F8_E4M3", "F8_E5M2"};
  return names[static_cast<std::size_t>(type)];
}

/// The type of that name, if there is one.
[[nodiscard]] constexpr std::optional<stored_type> stored_type_named(std::string_view name) noexcept {
  for (int i = 0; i <= static_cast<int>(stored_type::f8_e5m2); ++i) {
    if (to_string(static_cast<stored_type>(i)) == name) return static_cast<stored_type>(i);
  }
  return std::nullopt;
}

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(stored_type type) noexcept {
  constexpr std::size_t bytes[] = {8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1, 1, 1};
  return bytes[static_cast<std::size_t>(type)];
}

/// The tensor type with the same elements, if there is one.
[[nodiscard]] constexpr std::optional<dtype> native_dtype(stored_type type) noexcept {
  switch (type) {
    case stored_type::f64:
      return dtype::f64;
    case stored_type::f32:
      return dtype::f32;
    case stored_type::bf16:
      return dtype::bf16;
    case stored_type::f16:
      return dtype::f16;
    case stored_type::i64:
      return dtype::i64;
    case stored_type::i32:
      return dtype::i32;
    case stored_type::i8:
      return dtype::i8;
    case stored_type::u8:
      return dtype::u8;
    default:
      return std::nullopt;
  }
}

namespace detail {
/// Calls `visit` with a value of the C++ type that holds `type`; false for those that have none.
template <class Visit> constexpr bool with_stored(stored_type type, const Visit& visit) {
  switch (type) {
    case stored_type::f64:
      visit(double{});
      return true;
    case stored_type::f32:
      visit(float{});
      return true;
    case stored_type::bf16:
      visit(bfloat16{});
      return true;
    case stored_type::f16:
      visit(float16{});
      return true;
    case stored_type::i64:
      visit(std::int64_t{});
      return true;
    case stored_type::i32:
      visit(std::int32_t{});
      return true;
    case stored_type::i16:
      visit(std::int16_t{});
      return true;
    case stored_type::i8:
      visit(std::int8_t{});
      return true;
    case stored_type::u64:
      visit(std::uint64_t{});
      return true;
    case stored_type::u32:
      visit(std::uint32_t{});
      return true;
    case stored_type::u16:
      visit(std::uint16_t{});
      return true;
    case stored_type::u8:
    case stored_type::boolean:
      visit(std::uint8_t{});
      return true;
    default:
      return false;
  }
}

template <class T> inline constexpr bool is_half = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

/// True when every value of From is a value of To, and To is a wider type of the same family.
template <class From, class To>
inline constexpr bool keeps_values = [] {
  if constexpr (std::is_same_v<To, double>) {
    return is_half<From> || std::is_same_v<From, float>;
  } else if constexpr (std::is_same_v<To, float>) {
    return is_half<From>;
  } else if constexpr (std::is_same_v<To, std::int64_t> || std::is_same_v<To, std::int32_t>) {
    return std::is_integral_v<From> && sizeof(From) < sizeof(To);
  } else {
    return false;
  }
}();

template <class Visit> constexpr void with_wide(dtype type, const Visit& visit) {
  switch (type) {
    case dtype::f64:
      visit(double{});
      break;
    case dtype::f32:
      visit(float{});
      break;
    case dtype::i64:
      visit(std::int64_t{});
      break;
    case dtype::i32:
      visit(std::int32_t{});
      break;
    default:
      break;
  }
}
}  // namespace detail

/// True when stored elements of `from` can become `to` without changing a value; false also where they are `to`
/// already.
[[nodiscard]] constexpr bool widens(stored_type from, dtype to) noexcept {
  bool answer = from == stored_type::boolean && to == dtype::u8;
  detail::with_stored(from, [&](auto source) {
    detail::with_wide(to, [&](auto target) { answer = detail::keeps_values<decltype(source), decltype(target)>; });
  });
  return answer;
}

/// A type that `from` can be read as, for error texts.
[[nodiscard]] constexpr const char* suggested_type(stored_type from) noexcept {
  if (const auto native = native_dtype(from)) return to_string(*native);
  for (const dtype candidate : {dtype::u8, dtype::i32, dtype::i64}) {
    if (widens(from, candidate)) return to_string(candidate);
  }
  return "nothing: no type here holds all its values; convert the file first";
}

/// Converts stored elements into tensor elements at `out`.
/// @pre `widens(from, to)`
inline void widen(stored_type from, std::span<const std::byte> in, dtype to, std::byte* out) noexcept {
  if (from == stored_type::boolean && to == dtype::u8) {
    std::memcpy(out, in.data(), in.size());
    return;
  }
  detail::with_stored(from, [&](auto source) {
    detail::with_wide(to, [&](auto target) {
      using from_type = decltype(source);
      using to_type = decltype(target);
      if constexpr (detail::keeps_values<from_type, to_type>) {
        for (std::size_t i = 0; i < in.size() / sizeof(from_type); ++i) {
          std::memcpy(&source, in.data() + i * sizeof(from_type), sizeof(from_type));
          if constexpr (detail::is_half<from_type>) {
            target = static_cast<to_type>(static_cast<float>(source));
          } else {
            target = static_cast<to_type>(source);
          }
          std::memcpy(out + i * sizeof(to_type), &target, sizeof(to_type));
        }
      }
    });
  });
}

}  // namespace hetero
