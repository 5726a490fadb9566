// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <hetero/comm/frame.hpp>
#include <hetero/comm/mailbox.hpp>
#include <hetero/comm/shared_memory_ring.hpp>

namespace hetero::detail {

/// The messages between this rank and one other of the same host: a ring each way. What arrives is copied or combined
/// straight out of the ring. Not thread-safe; the engine's lock guards it.
class shared_memory_link {
 public:
  /// `own` keeps the memory of both rings mapped.
  shared_memory_link(std::uint32_t self, shared_ring out, shared_ring in, std::shared_ptr<void> own)
      : inbox_{self}, memory_{std::move(own)}, out_{out}, in_{in} {}

  /// Starts a transfer; what can move at once does. Returns true when a thread that sleeps must look here anew.
  bool post(transfer& t) {
    if (t.direction == transfer::way::recv) {
      inbox_.post(t);
      if (std::exchange(held_, false)) read_some();
      return false;
    }
    const bool first = outgoing_.empty();
    outgoing_.push(t);
    if (first) write_some();
    return !t.done;
  }

  void cancel(transfer& t) noexcept {
    if (t.done) return;
    if (t.direction == transfer::way::recv) return inbox_.cancel(t);
    if (t.moved != 0 && outgoing_.front() == &t) {
      // The peer waits for all of it, so the rest goes on from a copy.
      rest_ = std::make_unique_for_overwrite<std::byte[]>(t.bytes);
      std::memcpy(rest_.get(), t.data, t.bytes);
      orphan_.data = rest_.get();
      orphan_.bytes = t.bytes;
      orphan_.moved = t.moved;
    }
    outgoing_.remove(t);
  }

  /// Moves what can be moved both ways. Returns true when any byte was.
  bool progress() {
    const std::uint64_t before = out_.position() + in_.position();
    write_some();
    read_some();
    return out_.position() + in_.position() != before;
  }

  [[nodiscard]] bool active() const noexcept { return inbox_.expects() || wants_write(); }
  [[nodiscard]] const std::optional<world_failure>& failure() const noexcept { return inbox_.failure(); }
  [[nodiscard]] const std::string& broken() const noexcept { return broken_; }
  /// True once after the peer was found asleep.
  [[nodiscard]] bool take_bell() noexcept { return std::exchange(bell_, false); }

  /// Announces that this side will sleep; false when there is something to do first.
  [[nodiscard]] bool fall_asleep() noexcept {
    in_.reader_sleeps(true);
    if (wants_write()) out_.writer_sleeps(true);
    const bool idle = (held_ || !in_.has_news()) && !(wants_write() && out_.has_room());
    if (!idle) wake_up();
    return idle;
  }
  void wake_up() noexcept {
    in_.reader_sleeps(false);
    out_.writer_sleeps(false);
  }

 private:
  /// Moved in one go before the other side is told: small enough that both sides work at once, large enough that
  /// telling costs nothing.
  static constexpr std::size_t step_bytes = std::size_t{32} << 10U;

  [[nodiscard]] static constexpr std::size_t padded(std::size_t bytes) noexcept {
    return (bytes + shared_ring::line - 1) / shared_ring::line * shared_ring::line;
  }
  [[nodiscard]] bool wants_write() const noexcept { return orphan_.data != nullptr || !outgoing_.empty(); }

  void write_some() {
    if (orphan_.data != nullptr) {
      if (!write(orphan_)) return;
      orphan_.data = nullptr;
      rest_.reset();
    }
    while (transfer* const t = outgoing_.front()) {
      if (!write(*t)) return;
      outgoing_.pop();
      t->done = true;
    }
  }

  /// Writes on from `t.moved`; true when all is in the ring.
  bool write(transfer& t) {
    bool first = true;
    if (t.moved == 0) {
      if (out_.room() < sizeof(frame_header)) return false;
      const frame_header h = header_of(t);
      std::memcpy(out_.place(), &h, sizeof h);
      out_.advance(sizeof h);
      t.moved = sizeof h;
    }
    while (true) {
      const std::size_t at = t.moved - sizeof(frame_header);
      const std::size_t left = t.bytes - at;
      const std::size_t n = std::min({left, out_.room(), out_.until_wrap(), step_bytes});
      if (n == 0 && left != 0) {
        if (first) bell_ |= out_.publish();  // the header alone
        return false;
      }
      first = false;
      if (n != 0) std::memcpy(out_.place(), t.data + at, n);
      t.moved += n;
      const bool ends = n == left;
      out_.advance(ends ? padded(n) : n);
      bell_ |= out_.publish();
      if (ends) return true;
    }
  }
  void read_some() {
    while (!held_ && !failure() && broken_.empty()) {
      const std::size_t here = in_.available();
      if (here == 0) return;
      if (!in_payload_) {
        frame_header h;
        std::memcpy(&h, in_.place(), sizeof h);
        if (const std::string fault = fault_of(h); !fault.empty() || h.type != frame_type::data || h.bytes != h.total) {
          broken_ =
              "wrote " + (fault.empty() ? std::string{"a frame of a wrong kind"} : fault) + " into the shared memory";
          return;
        }
        arrival* const a = inbox_.announce(h.what(), h.total, 1);
        if (a == nullptr) {
          held_ = !failure();
          return;
        }
        part_.begin(a, 0, h.total);
        in_.advance(sizeof h);
        in_payload_ = true;
        if (h.total != 0) continue;
      }
      const std::size_t n = std::min({part_.missing(), in_.available(), in_.until_wrap(), step_bytes});
      if (n == 0 && part_.missing() != 0) return;
      part_.put(in_.place(), n);
      const bool ends = part_.missing() == 0;
      in_.advance(ends ? padded(n) : n);
      bell_ |= in_.release();
      if (!ends) continue;
      in_payload_ = false;
      inbox_.part_ended(part_.message());
    }
  }

  mailbox inbox_;
  std::shared_ptr<void> memory_;
  shared_ring out_, in_;
  transfer_queue outgoing_;
  transfer orphan_;  ///< the rest of a message whose sender gave up in the middle
  std::unique_ptr<std::byte[]> rest_;
  arrival_part part_;
  bool in_payload_ = false;
  bool held_ = false;
  bool bell_ = false;
  std::string broken_;
};

}  // namespace hetero::detail
