// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hetero/core/error.hpp>

namespace hetero {

/// What one token of a text is.
enum class text_unit : std::uint8_t {
  characters,  ///< a Unicode code point of UTF-8 text; the vocabulary is what the text holds
  bytes,       ///< a byte; the vocabulary has 256 entries and any file will do
};

namespace detail {

/// A decoded code point and its bytes; length 0 where the bytes are not UTF-8.
struct code_point {
  char32_t value = 0;
  std::size_t length = 0;
};

/// The code point at `position`, refusing overlong forms, surrogates and values past U+10FFFF.
inline code_point decode_utf8(std::string_view text, std::size_t position) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[position + i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || position + length > text.size()) return {};
  char32_t value = first & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return {};
    value = (value << 6U) | (byte(i) & 0x3fU);
  }
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < least[length] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return {};
  return {value, length};
}

inline void append_utf8(std::string& text, char32_t value) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(static_cast<std::uint8_t>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xc0U | (value >> 6U));
    put(0x80U | (value & 0x3fU));
  } else if (value < 0x10000) {
    put(0xe0U | (value >> 12U));
    put(0x80U | ((value >> 6U) & 0x3fU));
    put(0x80U | (value & 0x3fU));
  } else {
    put(0xf0U | (value >> 18U));
    put(0x80U | ((value >> 12U) & 0x3fU));
    put(0x80U | ((value >> 6U) & 0x3fU));
    put(0x80U | (value & 0x3fU));
  }
}

}  // namespace detail

/// The tokens of a text and their numbers: code points in ascending order, or all bytes.
class vocabulary {
 public:
  /// The vocabulary of `text`.
  /// @throws error bad_file when `unit` is characters and `text` is not UTF-8; `name` says where the text is from
  vocabulary(std::string_view text, text_unit unit, std::string_view name) : unit_{unit} {
    if (unit == text_unit::bytes) {
      for (char32_t byte = 0; byte < 256; ++byte) tokens_.push_back(byte);
    } else {
      std::vector<bool> seen(0x110000);
      for_each(text, name, errc::bad_file, [&](char32_t value) { seen[value] = true; });
      for (char32_t value = 0; value < 0x110000; ++value) {
        if (seen[value]) tokens_.push_back(value);
      }
    }
    std::fill(std::begin(low_), std::end(low_), -1);
    for (std::size_t i = 0; i < tokens_.size() && tokens_[i] < 256; ++i) {
      low_[static_cast<std::size_t>(tokens_[i])] = static_cast<std::int32_t>(i);
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return tokens_.size(); }
  [[nodiscard]] text_unit unit() const noexcept { return unit_; }

  /// Token numbers of `text`.
  /// @throws error invalid_argument for a character that the vocabulary lacks
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size());
    for_each(text, "the text", errc::invalid_argument, [&](char32_t value) {
      const std::int32_t id = find(value);
      require(id >= 0, errc::invalid_argument, [&] {
        return "the character " + printed(value) + " is not among the " + std::to_string(size()) +
               " of the training text; use characters that occur there, or text_unit::bytes";
      });
      ids.push_back(id);
    });
    return ids;
  }

  /// The text of token numbers.
  /// @throws error invalid_argument for a number outside the vocabulary
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const {
    std::string text;
    text.reserve(ids.size());
    for (const std::int32_t id : ids) {
      require(id >= 0 && static_cast<std::size_t>(id) < size(), errc::invalid_argument,
              [&] { return "token " + std::to_string(id) + " is outside a vocabulary of " + std::to_string(size()); });
      const char32_t value = tokens_[static_cast<std::size_t>(id)];
      if (unit_ == text_unit::bytes) {
        text += static_cast<char>(static_cast<std::uint8_t>(value));
      } else {
        detail::append_utf8(text, value);
      }
    }
    return text;
  }

 private:
  template <class Visit>
  void for_each(std::string_view text, std::string_view name, errc code, const Visit& visit) const {
    if (unit_ == text_unit::bytes) {
      for (const char c : text) visit(static_cast<std::uint8_t>(c));
      return;
    }
    for (std::size_t i = 0; i < text.size();) {
      const detail::code_point point = detail::decode_utf8(text, i);
      require(point.length != 0, code, [&] {
        return std::string{name} + " is not UTF-8 at byte " + std::to_string(i) +
               "; convert it, or read it with text_unit::bytes";
      });
      visit(point.value);
      i += point.length;
    }
  }

  [[nodiscard]] std::int32_t find(char32_t value) const noexcept {
    if (value < 256) return low_[static_cast<std::size_t>(value)];
    const auto place = std::lower_bound(tokens_.begin(), tokens_.end(), value);
    return place != tokens_.end() && *place == value ? static_cast<std::int32_t>(place - tokens_.begin()) : -1;
  }

  [[nodiscard]] static std::string printed(char32_t value) {
    std::string hex;
    for (int shift = value > 0xffff ? 20 : 12; shift >= 0; shift -= 4)
      hex += "0123456789ABCDEF"[(value >> shift) & 15U];
    std::string text = "U+" + hex;
    if (value >= 0x20 && value != 0x7f) {
      text += " '";
      detail::append_utf8(text, value);
      text += '\'';
    }
    return text;
  }

  text_unit unit_;
  std::vector<char32_t> tokens_;
  std::int32_t low_[256] = {};
};

}  // namespace hetero
