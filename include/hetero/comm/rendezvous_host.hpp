// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <string_view>

#include <hetero/core/hash.hpp>

namespace hetero::detail {

[[nodiscard]] inline std::uint64_t random_number() {
  std::random_device random;
  return (std::uint64_t{random()} << 32U) | random();
}

/// A number that two processes have in common where they run on one kernel and see the same shared memory: the same
/// boot, and the same namespaces for interprocess objects and for mounts (/dev/shm). Never 0. Where the system does not
/// tell, it is a number that nobody else has, so that nobody shares memory by mistake.
[[nodiscard]] inline std::uint64_t host_id() {
  std::string boot;
  std::ifstream{"/proc/sys/kernel/random/boot_id"} >> boot;
  stable_hash hash;
  hash.add(boot);
  bool known = !boot.empty();
  for (const char* name : {"/proc/self/ns/ipc", "/proc/self/ns/mnt"}) {
    std::array<char, 64> target{};
    const auto length = ::readlink(name, target.data(), target.size());
    known = known && length > 0;
    if (length > 0) hash.add(std::string_view{target.data(), static_cast<std::size_t>(length)});
  }
  const std::uint64_t value = known ? hash.value() : random_number();
  return value == 0 ? 1 : value;
}

}  // namespace hetero::detail
