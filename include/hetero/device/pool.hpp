// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/device/device_spec.hpp>
#include <hetero/device/registry.hpp>

/// @file
/// The text a user writes for a mixed set of devices: "cuda:0,cpu:2,cpu:1@0.33".
namespace hetero {

/// The devices of one job on this host, in the order of their ranks.
using device_pool = std::vector<device_spec>;

namespace detail {

inline constexpr std::uint32_t most_threads = 1024;

[[noreturn]] inline void refuse_device(std::string_view item, const std::string& reason) {
  throw error{errc::invalid_argument, "device \"" + std::string{item} + "\": " + reason};
}

[[nodiscard]] inline std::string_view trimmed(std::string_view text) noexcept {
  const auto begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view{}
                                         : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

template <class Number> [[nodiscard]] inline bool parse_number(std::string_view text, Number& number) noexcept {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc{} && end == text.data() + text.size();
}

[[nodiscard]] inline device_spec parse_device(std::string_view item) {
  device_spec spec;
  std::string_view rest = item;
  if (const auto at = rest.find('@'); at != std::string_view::npos) {
    const std::string_view speed = rest.substr(at + 1);
    if (!parse_number(speed, spec.speed)) {
      refuse_device(item, "the speed \"" + std::string{speed} + "\" is not a number; write 0.5 for half the speed");
    }
    if (!(spec.speed > 0 && spec.speed <= 1)) {
      refuse_device(item,
                    "the speed " + std::string{speed} + " is outside what can be emulated: above 0 and at most 1");
    }
    rest = rest.substr(0, at);
  }
  const auto colon = rest.find(':');
  const std::string_view kind = rest.substr(0, colon);
  if (kind == to_string(device_kind::cpu)) {
    spec.kind = device_kind::cpu;
  } else if (kind == to_string(device_kind::cuda)) {
    spec.kind = device_kind::cuda;
    spec.index_or_threads = 0;
  } else {
    refuse_device(item,
                  "\"" + std::string{kind} +
                      "\" is no device kind; known are cpu (cpu:2 is two threads) and cuda (cuda:0 is the first GPU)");
  }
  if (colon == std::string_view::npos) return spec;
  const std::string_view number = rest.substr(colon + 1);
  const bool is_cpu = spec.kind == device_kind::cpu;
  const std::string what = is_cpu ? "the number of threads" : "the index";
  if (!parse_number(number, spec.index_or_threads)) {
    refuse_device(item, what + " \"" + std::string{number} + "\" is not a whole number");
  }
  if (is_cpu && (spec.index_or_threads == 0 || spec.index_or_threads > most_threads)) {
    refuse_device(item, what + " must be 1 to " + std::to_string(most_threads) + "; this machine offers " +
                            std::to_string(usable_cores()));
  }
  return spec;
}

}  // namespace detail

/// Reads "kind[:number][@speed]" items separated by commas. Without a number a CPU has one thread and any other kind
/// means its first device. Whether the devices exist is seen when they are made.
/// @throws error invalid_argument that names the item and what would work
[[nodiscard]] inline device_pool parse_pool(std::string_view text) {
  device_pool pool;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto comma = std::min(text.find(',', begin), text.size());
    const std::string_view item = detail::trimmed(text.substr(begin, comma - begin));
    require(!item.empty(), errc::invalid_argument, [&] {
      return "the pool \"" + std::string{text} + "\" has an empty item; write devices such as cpu:1,cpu:1@0.33";
    });
    pool.push_back(detail::parse_device(item));
    begin = comma + 1;
  }
  return pool;
}

/// The text that `parse_pool` reads back as an equal pool.
[[nodiscard]] inline std::string to_string(const device_pool& pool) {
  std::string text;
  for (const device_spec& spec : pool) {
    if (!text.empty()) text += ',';
    text += to_string(spec);
  }
  return text;
}

/// All devices found; the CPU, with all usable cores, only when there is no other.
[[nodiscard]] inline device_pool default_pool(const device_registry& registry = device_registry::instance()) {
  device_pool others;
  device_pool cpus;
  for (const device_spec& spec : registry.available()) (spec.kind == device_kind::cpu ? cpus : others).push_back(spec);
  return others.empty() ? cpus : others;
}

/// Makes the device at position `index` of a pool: CPU devices are numbered in the order in which they appear.
/// @throws error invalid_argument beyond the pool; as make_device
[[nodiscard]] inline any_device make_device(const device_pool& pool, std::size_t index, device_options options = {}) {
  require(index < pool.size(), errc::invalid_argument, [&] {
    return "device " + std::to_string(index) + " of a pool of " + std::to_string(pool.size()) + " (" + to_string(pool) +
           ')';
  });
  options.ordinal = 0;
  for (std::size_t i = 0; i < index; ++i) {
    if (pool[i].kind == device_kind::cpu) ++options.ordinal;
  }
  return make_device(pool[index], options);
}

}  // namespace hetero
