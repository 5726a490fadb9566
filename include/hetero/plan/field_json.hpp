// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include <nlohmann/json.hpp>

#include <hetero/core/error.hpp>

/// @file
/// Reading a field of a JSON object so that a wrong one is a typed error with its path, whatever it holds.
namespace hetero::detail {

[[noreturn]] inline void refuse_json(const std::string& path, const std::string& found) {
  throw error{errc::bad_file, '"' + path + "\" " + found};
}

/// Parses `text`. @throws error bad_file saying where it stops being JSON
[[nodiscard]] inline nlohmann::json parse_json(std::string_view text, const std::string& what) {
  try {
    return nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& failure) {
    throw error{errc::bad_file,
                what + " is not JSON: it breaks off or goes wrong at byte " + std::to_string(failure.byte)};
  }
}

/// The member `key` of `object`, whose own path is `path`. @throws error bad_file when it is missing
[[nodiscard]] inline const nlohmann::json& json_member(const nlohmann::json& object, const std::string& key,
                                                       const std::string& path) {
  if (!object.is_object()) refuse_json(path, std::string{"is "} + object.type_name() + ", an object is needed");
  const auto found = object.find(key);
  if (found == object.end()) refuse_json(path + '.' + key, "is missing");
  return *found;
}

/// True for a number from 0 up without a fraction; text gives unsigned numbers, a C++ literal signed ones.
[[nodiscard]] inline bool is_whole(const nlohmann::json& value) {
  return value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() >= 0);
}

/// The member as a number, text, boolean. @throws error bad_file when it has another type or does not fit
template <class T>
[[nodiscard]] T json_field(const nlohmann::json& object, const std::string& key, const std::string& path) {
  const nlohmann::json& value = json_member(object, key, path);
  if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_boolean()) refuse_json(path + '.' + key, "is " + value.dump() + ", true or false is needed");
    return value.get<bool>();
  } else if constexpr (std::is_unsigned_v<T>) {
    if (!is_whole(value) || value.get<std::uint64_t>() > std::numeric_limits<T>::max()) {
      refuse_json(path + '.' + key, "is " + value.dump() + ", a whole number from 0 to " +
                                        std::to_string(std::numeric_limits<T>::max()) + " is needed");
    }
    return static_cast<T>(value.get<std::uint64_t>());
  } else {
    static_assert(std::is_same_v<T, std::string>);
    if (!value.is_string()) refuse_json(path + '.' + key, "is " + value.dump() + ", text is needed");
    return value.get<std::string>();
  }
}

/// The member as an array. @throws error bad_file
[[nodiscard]] inline const nlohmann::json& json_array(const nlohmann::json& object, const std::string& key,
                                                      const std::string& path) {
  const nlohmann::json& value = json_member(object, key, path);
  if (!value.is_array()) refuse_json(path + '.' + key, std::string{"is "} + value.type_name() + ", a list is needed");
  return value;
}

/// The value of an enumeration of `count` names that `to_string` knows. @throws error bad_file
template <class Enum>
[[nodiscard]] Enum json_enum(const std::string& name, std::size_t count, const std::string& path) {
  std::string known;
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<Enum>(i);
    if (name == to_string(value)) return value;
    known += (i == 0 ? "" : ", ") + std::string{to_string(value)};
  }
  refuse_json(path, "is \"" + name + "\"; known are " + known);
}

}  // namespace hetero::detail
