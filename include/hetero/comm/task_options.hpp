// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <hetero/comm/traffic.hpp>

namespace hetero {

/// What an asynchronous operation is for, told to whoever decides its turn.
struct task_options {
  static constexpr std::uint64_t in_order = ~std::uint64_t{0};

  traffic_class traffic = traffic_class::other;
  int priority = 0;             ///< higher goes first
  std::uint64_t needed_by = 0;  ///< step that needs the result; among equal priorities the smaller goes first
  /// Which operation of the other ranks this one meets when ranks start theirs in different orders: equal ids meet, the
  /// second use of an id the second. `in_order` meets what they started as the same one in number.
  std::uint64_t id = in_order;
};

/// In which order a handle runs its asynchronous operations: as started, which costs no message, or the most urgent
/// chunk next, which costs a small broadcast of rank 0's choice for each.
enum class queue_order : std::uint8_t { fifo, priority };

/// "fifo", "priority".
[[nodiscard]] constexpr const char* to_string(queue_order order) noexcept {
  constexpr const char* names[] = {"fifo", "priority"};
  return names[static_cast<std::size_t>(order)];
}

/// How a handle runs its asynchronous operations; equal on all ranks. Chunk borders decide in which order the ranks'
/// floats are added, so equal `chunk_bytes` give equal bits, whatever the order of the queue.
struct queue_settings {
  queue_order order = queue_order::fifo;
  std::size_t chunk_bytes = 0;  ///< cut operations into pieces of so many bytes; 0 for whole ones

  friend constexpr bool operator==(const queue_settings&, const queue_settings&) = default;
};

inline constexpr std::size_t default_chunk_bytes = std::size_t{1} << 20U;

}  // namespace hetero
