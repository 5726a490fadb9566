// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

/// @file
/// Strong ids: one type per kind of number, so that two neighbouring arguments cannot change places by accident.
namespace hetero {

/// Index of a process (or thread acting as one) in a communicator, 0-based.
enum class rank_id : std::uint32_t {};

/// Index of a pipeline stage inside a replica, 0-based.
enum class stage_id : std::uint32_t {};

/// Index of one full model copy, 0-based.
enum class replica_id : std::uint32_t {};

/// Index of a micro-batch inside one step of one replica, 0-based.
enum class micro_batch_id : std::uint32_t {};

/// Handle of an ordered queue on a device; only the device that made it can interpret it.
enum class stream_id : std::uint64_t {};

/// The number behind a strong id.
template <class Id>
  requires std::is_enum_v<Id>
[[nodiscard]] constexpr auto index_of(Id id) noexcept {
  return static_cast<std::underlying_type_t<Id>>(id);
}

/// A family of devices that one backend drives.
enum class device_kind : std::uint8_t { cpu, cuda };

/// Name of a device kind as it is written in a pool: "cpu", "cuda".
[[nodiscard]] constexpr const char* to_string(device_kind kind) noexcept {
  return kind == device_kind::cpu ? "cpu" : "cuda";
}

/// One device of this process: its kind and its index within the kind.
struct device_id {
  device_kind kind = device_kind::cpu;
  std::uint16_t ordinal = 0;
  constexpr auto operator<=>(const device_id&) const = default;
};

/// "cpu:0", "cuda:1".
[[nodiscard]] inline std::string to_string(device_id id) {
  return std::string{to_string(id.kind)} + ':' + std::to_string(id.ordinal);
}

}  // namespace hetero
