// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace hetero {

/// How much the library verifies while it runs. Each level includes the ones before it.
enum class check_level : std::uint8_t {
  off,         ///< only what memory safety at the public surface needs
  cheap,       ///< shapes and ranges at each call; the default
  full,        ///< also scans of data, such as finite gradients
  collective,  ///< also exchanges: ranks compare plan and parameter hashes before they rely on them
};

namespace detail {
inline std::atomic<check_level>& check_level_setting() noexcept {
  static std::atomic<check_level> level{check_level::cheap};
  return level;
}
}  // namespace detail

/// The level in force in this process. Must be equal on all ranks at `collective`. Thread-safe.
[[nodiscard]] inline check_level checks() noexcept {
  return detail::check_level_setting().load(std::memory_order_relaxed);
}

/// Sets the level for this process. Thread-safe.
inline void set_checks(check_level level) noexcept {
  detail::check_level_setting().store(level, std::memory_order_relaxed);
}

/// True when checks of `level` should run.
[[nodiscard]] inline bool checking(check_level level) noexcept { return checks() >= level; }

}  // namespace hetero
