// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace hetero {

/// Cores this process may run on, which is less than the machine has under a container or `taskset`.
[[nodiscard]] inline std::uint32_t usable_cores() noexcept {
#if defined(__linux__)
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) > 0) {
    return static_cast<std::uint32_t>(CPU_COUNT(&cores));
  }
#endif
  const unsigned cores_reported = std::thread::hardware_concurrency();
  return cores_reported == 0 ? 1 : cores_reported;
}

}  // namespace hetero
