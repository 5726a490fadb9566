// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace hetero {

/// A 64-bit FNV-1a hash over explicitly fed values; equal on every machine, so ranks can compare it. Not for security.
class stable_hash {
 public:
  constexpr stable_hash& add(std::string_view text) noexcept {
    for (const char c : text) add_byte(static_cast<std::uint8_t>(c));
    add_byte(0xff);  // a terminator no UTF-8 text holds, so "ab","c" and "a","bc" differ
    return *this;
  }
  constexpr stable_hash& add(std::uint64_t value) noexcept {
    for (int i = 0; i < 8; ++i) add_byte(static_cast<std::uint8_t>(value >> (8 * i)));
    return *this;
  }
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return state_; }

 private:
  constexpr void add_byte(std::uint8_t byte) noexcept { state_ = (state_ ^ byte) * 0x100000001b3ULL; }
  std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

/// 16 hexadecimal digits, as printed in plans and error texts.
[[nodiscard]] inline std::string to_hex(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4U) text[i] = "0123456789abcdef"[value & 15U];
  return text;
}

}  // namespace hetero
