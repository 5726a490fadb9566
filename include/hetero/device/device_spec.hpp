// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include <hetero/core/ids.hpp>
#include <hetero/device/throttled_device.hpp>

namespace hetero {

/// One device as a user asks for it: "cpu:2" is two threads, "cuda:0" the first GPU, "@0.5" emulates half the speed.
struct device_spec {
  device_kind kind = device_kind::cpu;
  std::uint32_t index_or_threads = 1;  ///< threads of a CPU device, index of any other
  double speed = 1;                    ///< share of the real speed; below 1 the device is emulated

  friend bool operator==(const device_spec&, const device_spec&) = default;
};

/// "cpu:1@0.33": what `parse_pool` reads back as an equal value.
[[nodiscard]] inline std::string to_string(const device_spec& spec) {
  std::string text = std::string{to_string(spec.kind)} + ':' + std::to_string(spec.index_or_threads);
  if (spec.speed != 1) {
    char digits[32];
    for (int precision = 6; precision <= 17; ++precision) {  // as short as gives back the same double
      std::snprintf(digits, sizeof digits, "%.*g", precision, spec.speed);
      if (std::strtod(digits, nullptr) == spec.speed) break;
    }
    text += std::string{'@'} + digits;
  }
  return text;
}

/// What is decided when a device is made, beyond what the user names.
struct device_options {
  std::uint16_t ordinal = 0;                   ///< index among the CPU devices of the process; others use their own
  std::size_t budget_bytes = 0;                ///< 0: what the device has
  std::optional<throttle_control> throttle{};  ///< emulates with this handle's speed instead of the spec's
};

}  // namespace hetero
