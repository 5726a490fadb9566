// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include <hetero/core/error.hpp>
#include <hetero/core/ids.hpp>

namespace hetero::detail::cpu {

/// The streams of one CPU device. Ids are unique in the process, so one of another device, or a destroyed one, is
/// known to be foreign; a check is one load. Thread-safe.
class stream_table {
 public:
  static constexpr std::size_t capacity = 1024;

  /// @throws error out_of_memory when `capacity` streams exist
  [[nodiscard]] stream_id create() {
    static std::atomic<std::uint64_t> next{1};
    for (std::size_t slot = 0; slot < capacity; ++slot) {
      std::uint64_t empty = 0;
      if (live_[slot].load(std::memory_order_relaxed) != 0) continue;
      const std::uint64_t id = next.fetch_add(1, std::memory_order_relaxed) * capacity + slot;
      if (live_[slot].compare_exchange_strong(empty, id, std::memory_order_acq_rel)) return stream_id{id};
    }
    throw error{errc::out_of_memory,
                "a CPU device has at most " + std::to_string(capacity) + " streams at a time; destroy some"};
  }

  /// Ignores ids that are not alive.
  void destroy(stream_id stream) noexcept {
    std::uint64_t id = index_of(stream);
    if (id != 0) live_[id % capacity].compare_exchange_strong(id, 0, std::memory_order_acq_rel);
  }

  [[nodiscard]] bool alive(stream_id stream) const noexcept {
    const std::uint64_t id = index_of(stream);
    return id != 0 && live_[id % capacity].load(std::memory_order_acquire) == id;
  }

  /// @throws error invalid_argument unless the stream is alive here
  void expect_alive(stream_id stream, device_id device, const char* call) const {
    if (!alive(stream)) [[unlikely]] {
      throw error{errc::invalid_argument,
                  std::string{call} + ": stream " + std::to_string(index_of(stream)) + " is not one of " +
                      to_string(device) + " (never created here, or destroyed); use what create_stream() returned",
                  {.rank = {}, .device = device}};
    }
  }

 private:
  std::array<std::atomic<std::uint64_t>, capacity> live_{};
};

}  // namespace hetero::detail::cpu
