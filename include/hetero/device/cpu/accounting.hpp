// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include <hetero/core/error.hpp>
#include <hetero/device/concepts.hpp>

namespace hetero::detail::cpu {

/// `device_counters` that several threads may count in, with the budget they are held to.
class accounting {
 public:
  explicit accounting(std::size_t budget_bytes) noexcept : budget_bytes_{budget_bytes} {}

  [[nodiscard]] std::size_t budget_bytes() const noexcept { return budget_bytes_; }

  /// Takes `bytes` from the budget, before memory is asked for.
  /// @throws error out_of_memory naming the bytes asked for, in use and allowed
  void reserve(std::size_t bytes, device_id device) {
    std::uint64_t used = in_use_.load(std::memory_order_relaxed);
    do {
      if (bytes > budget_bytes_ || used > budget_bytes_ - bytes) {
        throw error{errc::out_of_memory,
                    "asked for " + std::to_string(bytes) + " bytes with " + std::to_string(used) + " in use; " +
                        to_string(device) + " has a budget of " + std::to_string(budget_bytes_) + " bytes",
                    {.rank = {}, .device = device}};
      }
    } while (!in_use_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    std::uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (peak < used + bytes && !peak_.compare_exchange_weak(peak, used + bytes, std::memory_order_relaxed)) {}
  }

  void release(std::size_t bytes) noexcept { in_use_.fetch_sub(bytes, std::memory_order_relaxed); }

  void count_allocation(std::size_t bytes) noexcept {
    allocations_.fetch_add(1, std::memory_order_relaxed);
    allocated_.fetch_add(bytes, std::memory_order_relaxed);
  }
  void count_copy(std::size_t bytes, double seconds) noexcept {
    copies_.fetch_add(1, std::memory_order_relaxed);
    copied_.fetch_add(bytes, std::memory_order_relaxed);
    busy_s_.fetch_add(seconds, std::memory_order_relaxed);
  }
  void count_launch(double seconds) noexcept {
    launches_.fetch_add(1, std::memory_order_relaxed);
    busy_s_.fetch_add(seconds, std::memory_order_relaxed);
  }

  [[nodiscard]] device_counters counters() const noexcept {
    return {.allocations = allocations_.load(std::memory_order_relaxed),
            .bytes_allocated = allocated_.load(std::memory_order_relaxed),
            .bytes_in_use = in_use_.load(std::memory_order_relaxed),
            .peak_bytes_in_use = peak_.load(std::memory_order_relaxed),
            .copies = copies_.load(std::memory_order_relaxed),
            .bytes_copied = copied_.load(std::memory_order_relaxed),
            .launches = launches_.load(std::memory_order_relaxed),
            .busy_s = busy_s_.load(std::memory_order_relaxed)};
  }

 private:
  const std::size_t budget_bytes_;
  std::atomic<std::uint64_t> allocations_{0}, allocated_{0}, in_use_{0}, peak_{0}, copies_{0}, copied_{0}, launches_{0};
  std::atomic<double> busy_s_{0};
};

}  // namespace hetero::detail::cpu
