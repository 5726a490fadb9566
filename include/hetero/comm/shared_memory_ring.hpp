// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace hetero::detail {

/// The part of a ring that lies in shared memory, in front of its bytes. One process writes, one reads.
struct shared_ring_header {
  alignas(64) std::atomic<std::uint64_t> written{0};
  alignas(64) std::atomic<std::uint64_t> consumed{0};
  /// Set by a side before it sleeps; whoever moves the other counter and finds it set rings the bell.
  alignas(64) std::atomic<std::uint32_t> reader_sleeps{0};
  alignas(64) std::atomic<std::uint32_t> writer_sleeps{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(shared_ring_header) == 256,
              "both processes must agree on the layout, and no lock may be hidden in it");

/// One side of a ring of bytes between two processes. Not thread-safe. Positions only grow; the place of a position is
/// its remainder by the capacity, a power of two and a multiple of the frame header.
class shared_ring {
 public:
  static constexpr std::size_t line = 64;  ///< every frame begins at a multiple of it

  shared_ring() = default;
  shared_ring(void* memory, std::size_t capacity) noexcept
      : header_{static_cast<shared_ring_header*>(memory)},
        bytes_{static_cast<std::byte*>(memory) + sizeof(shared_ring_header)},
        capacity_{capacity} {}

  [[nodiscard]] static std::size_t memory_for(std::size_t capacity) noexcept {
    return sizeof(shared_ring_header) + capacity;
  }
  /// Puts an empty ring into fresh memory.
  static void create(void* memory) noexcept { ::new (memory) shared_ring_header; }

  // --- the writer's side
  [[nodiscard]] std::size_t room() noexcept {
    if (seen_ + capacity_ - position_ < capacity_ / 2) seen_ = header_->consumed.load(std::memory_order_acquire);
    return static_cast<std::size_t>(seen_ + capacity_ - position_);
  }
  /// Where the next byte goes, and how many follow without a wrap.
  [[nodiscard]] std::byte* place() const noexcept { return bytes_ + (position_ & (capacity_ - 1)); }
  [[nodiscard]] std::size_t until_wrap() const noexcept {
    return capacity_ - static_cast<std::size_t>(position_ & (capacity_ - 1));
  }
  void advance(std::size_t bytes) noexcept { position_ += bytes; }
  /// Lets the reader see what was written. Returns true when it sleeps and must be woken.
  [[nodiscard]] bool publish() noexcept {
    header_->written.store(position_, std::memory_order_seq_cst);
    return wakes(header_->reader_sleeps);
  }

  // --- the reader's side
  [[nodiscard]] std::size_t available() noexcept {
    if (seen_ == position_) seen_ = header_->written.load(std::memory_order_acquire);
    return static_cast<std::size_t>(seen_ - position_);
  }
  /// Lets the writer reuse what was read. Returns true when it sleeps and must be woken.
  [[nodiscard]] bool release() noexcept {
    header_->consumed.store(position_, std::memory_order_seq_cst);
    return wakes(header_->writer_sleeps);
  }

  // --- before and after a sleep; the counters must be looked at once more in between
  void reader_sleeps(bool sleeps) noexcept { header_->reader_sleeps.store(sleeps, std::memory_order_seq_cst); }
  void writer_sleeps(bool sleeps) noexcept { header_->writer_sleeps.store(sleeps, std::memory_order_seq_cst); }
  [[nodiscard]] bool has_news() const noexcept { return header_->written.load(std::memory_order_seq_cst) != position_; }
  [[nodiscard]] bool has_room() const noexcept {
    return header_->consumed.load(std::memory_order_seq_cst) + capacity_ - position_ >= line;
  }

  /// How far this side has come.
  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

 private:
  static bool wakes(std::atomic<std::uint32_t>& sleeps) noexcept {
    return sleeps.load(std::memory_order_seq_cst) != 0 && sleeps.exchange(0, std::memory_order_seq_cst) != 0;
  }

  shared_ring_header* header_ = nullptr;
  std::byte* bytes_ = nullptr;
  std::size_t capacity_ = 0;
  std::uint64_t position_ = 0;  ///< of this side
  std::uint64_t seen_ = 0;      ///< of the other side, when last looked at
};

}  // namespace hetero::detail
