// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <hetero/checkpoint/safetensors.hpp>
#include <hetero/checkpoint/stored_type.hpp>
#include <hetero/core/error.hpp>
#include <hetero/core/shape.hpp>

/// @file
/// The header of a safetensors file. It comes from anywhere, so it is checked whole before any number in it is used.
namespace hetero {

/// A tensor in a file: what it is and which bytes it has.
struct stored_tensor {
  std::string name;
  stored_type type = stored_type::f32;
  shape extents;
  std::uint64_t begin = 0;  ///< of its bytes in the file
  std::uint64_t end = 0;
};

namespace detail {

/// The refusal of a file that is not what it claims to be.
[[nodiscard]] inline error bad_safetensors(const std::string& path, const std::string& what,
                                           std::source_location location = std::source_location::current()) {
  return error{errc::bad_file, "'" + path + "' is not a sound safetensors file: " + what, {}, location};
}

struct safetensors_content {
  std::vector<stored_tensor> tensors;  ///< sorted by name, tiling the data exactly
  file_metadata metadata;
};

class safetensors_header_parser {
 public:
  /// @throws error bad_file for anything that does not hold together; unsupported for more than six dimensions
  safetensors_header_parser(const std::string& path, const std::string& text, std::uint64_t data_begin,
                            std::uint64_t data_bytes)
      : path_{path}, data_begin_{data_begin}, data_bytes_{data_bytes} {
    if (text.empty() || text.front() != '{') throw bad("byte 8 does not open a JSON object");
    // The JSON parser takes a zero byte for the end and would not look at what stands behind it.
    if (const auto zero = text.find('\0'); zero != std::string::npos) {
      throw bad("its header is not JSON: a zero byte at byte " + std::to_string(8 + zero));
    }
    const json header = parse(text);
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        read_metadata(value);
      } else {
        content_.tensors.push_back(read_entry(name, value));
      }
    }
    check_layout();
    std::sort(content_.tensors.begin(), content_.tensors.end(),
              [](const stored_tensor& a, const stored_tensor& b) { return a.name < b.name; });
  }

  [[nodiscard]] safetensors_content take() && { return std::move(content_); }

 private:
  using json = nlohmann::json;

  [[nodiscard]] error bad(const std::string& what,
                          std::source_location location = std::source_location::current()) const {
    return bad_safetensors(path_, what, location);
  }

  // A hostile header must not fill the screen with its own text.
  [[nodiscard]] static std::string shown_text(const std::string& text) {
    constexpr std::size_t most = 120;
    return text.size() <= most ? text : text.substr(0, most) + "...";
  }
  [[nodiscard]] static std::string shown(const json& value) {
    return shown_text(value.dump(-1, ' ', true, json::error_handler_t::replace));
  }

  [[nodiscard]] json parse(const std::string& text) const {
    std::vector<std::set<std::string>> keys;  // of the objects that are open; the library itself keeps the last of two
    const auto watch = [&](int depth, json::parse_event_t event, json& value) {
      if (depth > 4) throw bad("its header nests deeper than a safetensors header does");
      if (event == json::parse_event_t::object_start) keys.emplace_back();
      if (event == json::parse_event_t::object_end) keys.pop_back();
      if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
        throw bad("its header holds the key '" + shown_text(value.get<std::string>()) + "' twice");
      }
      return true;
    };
    try {
      return json::parse(text, watch);
    } catch (const json::exception& problem) {
      throw bad(std::string{"its header is not JSON ("} + problem.what() + ", counted from byte 8 of the file)");
    }
  }

  void read_metadata(const json& value) {
    if (!value.is_object()) throw bad("its __metadata__ is not an object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) throw bad("its __metadata__ entry '" + shown_text(key) + "' is not a string");
      content_.metadata.emplace(key, text.get<std::string>());
    }
  }

  [[nodiscard]] stored_tensor read_entry(const std::string& name, const json& value) const {
    const std::string who = "tensor '" + shown_text(name) + "' ";
    const auto natural = [](const json& number) { return number.is_number_unsigned(); };
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets")) {
      throw bad(who + "lacks one of dtype, shape and data_offsets");
    }
    const json& type = value["dtype"];
    const json& extents = value["shape"];
    const json& offsets = value["data_offsets"];
    stored_tensor entry;
    entry.name = name;
    const std::optional<stored_type> known =
        type.is_string() ? stored_type_named(type.get_ref<const std::string&>()) : std::nullopt;
    if (!known) throw bad(who + "has the unknown dtype " + shown(type));
    entry.type = *known;
    if (!extents.is_array() || !std::all_of(extents.begin(), extents.end(), natural)) {
      throw bad(who + "has the shape " + shown(extents) + ", which is not a list of whole numbers");
    }
    if (!offsets.is_array() || offsets.size() != 2 || !std::all_of(offsets.begin(), offsets.end(), natural)) {
      throw bad(who + "has data_offsets " + shown(offsets) + ", which are not two whole numbers");
    }
    require(extents.size() <= shape::max_dims, errc::unsupported, [&] {
      return "'" + path_ + "': " + who + "has " + std::to_string(extents.size()) + " dimensions; at most " +
             std::to_string(shape::max_dims) + " are supported";
    });
    const auto begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    if (begin > end || end > data_bytes_) {
      throw bad(who + "claims data bytes " + std::to_string(begin) + " to " + std::to_string(end) + " of " +
                std::to_string(data_bytes_) + "; the file is cut off or damaged");
    }
    std::vector<std::size_t> list;
    std::uint64_t bytes = size_of(entry.type);
    const bool none =
        std::any_of(extents.begin(), extents.end(), [](const json& e) { return e.get<std::uint64_t>() == 0; });
    for (const json& number : extents) {
      const auto extent = number.get<std::uint64_t>();
      list.push_back(static_cast<std::size_t>(extent));
      if (none) continue;
      if (bytes > std::numeric_limits<std::uint64_t>::max() / extent)
        throw bad(who + "has the impossible shape " + shown(extents));
      bytes *= extent;
    }
    if (none) bytes = 0;
    if (bytes != end - begin) {
      throw bad(who + "of " + std::string{to_string(entry.type)} + ' ' + shown(extents) + " needs " +
                std::to_string(bytes) + " bytes and its data_offsets hold " + std::to_string(end - begin));
    }
    entry.extents = shape{std::span<const std::size_t>{list}};
    entry.begin = data_begin_ + begin;
    entry.end = data_begin_ + end;
    return entry;
  }

  // Tensors must tile the data exactly: an overlap or a hole can hide content or mean a damaged header.
  void check_layout() {
    std::sort(content_.tensors.begin(), content_.tensors.end(), [](const stored_tensor& a, const stored_tensor& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    std::uint64_t at = data_begin_;
    for (const stored_tensor& tensor : content_.tensors) {
      if (tensor.begin != at) {
        throw bad("tensor '" + shown_text(tensor.name) + "' begins at byte " + std::to_string(tensor.begin) +
                  " of the file and byte " + std::to_string(at) +
                  " is next: " + (tensor.begin < at ? "an overlap" : "a hole"));
      }
      at = tensor.end;
    }
    if (at != data_begin_ + data_bytes_) {
      throw bad("its tensors end at byte " + std::to_string(at) + " and the file at " +
                std::to_string(data_begin_ + data_bytes_) + "; bytes were appended, or the header is of another file");
    }
  }

  std::string path_;
  std::uint64_t data_begin_;
  std::uint64_t data_bytes_;
  safetensors_content content_;
};

}  // namespace detail

}  // namespace hetero
