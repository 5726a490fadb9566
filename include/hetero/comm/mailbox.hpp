// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <hetero/comm/transfer_queue.hpp>
#include <hetero/comm/transport.hpp>

namespace hetero::detail {

/// A message on its way in. It may arrive in several parts, over several streams.
struct arrival {
  transfer* to = nullptr;              ///< null: it is early, or nobody wants it any more
  std::unique_ptr<std::byte[]> early;  ///< where it waits for its receive
  fingerprint what;
  std::size_t bytes = 0;
  std::uint32_t parts = 1;  ///< that have not ended
};

/// What came from one peer and what is expected from it: matches arriving messages with receives, per channel in the
/// order in which they were sent, and keeps early ones. Guarded by its owner.
class mailbox {
 public:
  /// Early messages are kept up to this size in all; beyond it the link is left unread until someone receives, so that
  /// the sender waits.
  static constexpr std::size_t stash_limit_bytes = std::size_t{64} << 20U;

  explicit mailbox(std::uint32_t self) noexcept : self_{self} {}

  /// A receive; an early message that waits for it is handed over at once.
  void post(transfer& t) {
    lane& l = at(t.what.channel);
    if (l.stash.empty()) {
      l.receives.push(t);
      ++expected_;
      return;
    }
    arrival* const a = l.stash.front();
    l.stash.pop_front();
    if (t.what != a->what || t.bytes != a->bytes) {
      failure_ = mismatch_failure(t, self_, a->what, a->bytes);
      return;
    }
    a->to = &t;
    if (a->parts == 0) conclude(a);
  }

  void cancel(transfer& t) noexcept {
    for (const auto& a : arrivals_) {
      if (a->to == &t) a->to = nullptr;  // the rest is read and dropped
    }
    const auto found = lanes_.find(t.what.channel);
    if (found != lanes_.end() && found->second.receives.remove(t)) --expected_;
  }

  /// A message of `parts` parts begins. Null when it must wait because too much is here already, or when it is not what
  /// the receiver expects: then `failure` says so.
  [[nodiscard]] arrival* announce(const fingerprint& what, std::size_t bytes, std::uint32_t parts) {
    lane& l = at(what.channel);
    transfer* const waiting = l.receives.front();
    if (waiting != nullptr) {
      if (waiting->what != what || waiting->bytes != bytes) {
        failure_ = mismatch_failure(*waiting, self_, what, bytes);
        return nullptr;
      }
      l.receives.pop();
      --expected_;
    } else if (stash_bytes_ + bytes > stash_limit_bytes) {
      return nullptr;
    }
    arrival* const a = take_arrival();
    a->to = waiting;
    a->what = what;
    a->bytes = bytes;
    a->parts = parts;
    if (waiting == nullptr) {
      a->early = std::make_unique_for_overwrite<std::byte[]>(bytes);
      stash_bytes_ += bytes;
      l.stash.push_back(a);
    }
    return a;
  }

  /// One part of a message is complete.
  void part_ended(arrival* a) {
    if (--a->parts != 0) return;
    --unfinished_;
    if (a->to == nullptr && a->early != nullptr && is_stashed(a)) return;
    conclude(a);
  }

  /// Whether a receive waits for a message that has not begun, or for the rest of one.
  [[nodiscard]] bool expects() const noexcept { return expected_ != 0 || unfinished_ != 0; }
  /// Whether the rest of a message is still to come.
  [[nodiscard]] bool incomplete() const noexcept { return unfinished_ != 0; }
  /// Whether a transfer was completed since `take_completed`.
  [[nodiscard]] bool completed() const noexcept { return completed_; }
  [[nodiscard]] bool take_completed() noexcept { return std::exchange(completed_, false); }
  [[nodiscard]] const std::optional<world_failure>& failure() const noexcept { return failure_; }
  void fail(world_failure why) { failure_ = std::move(why); }

 private:
  struct lane {
    transfer_queue receives;
    std::deque<arrival*> stash;  ///< in the order in which they began; some may be incomplete
  };

  lane& at(std::uint64_t channel) {
    if (recent_ == nullptr || recent_channel_ != channel) {
      recent_ = &lanes_[channel];
      recent_channel_ = channel;
    }
    return *recent_;
  }

  [[nodiscard]] bool is_stashed(const arrival* a) {
    for (const arrival* other : at(a->what.channel).stash) {
      if (other == a) return true;
    }
    return false;
  }

  void conclude(arrival* a) {
    if (a->early != nullptr) {
      stash_bytes_ -= a->bytes;
      if (a->to != nullptr) deliver(*a->to, a->early.get(), 0, a->bytes);
      a->early.reset();
    }
    if (a->to != nullptr) {
      a->to->done = true;
      a->to = nullptr;
      completed_ = true;
    }
    free_.push_back(a);
  }

  arrival* take_arrival() {
    ++unfinished_;
    if (free_.empty()) {
      arrivals_.push_back(std::make_unique<arrival>());
      free_.reserve(arrivals_.size());
      return arrivals_.back().get();
    }
    arrival* const a = free_.back();
    free_.pop_back();
    return a;
  }

  std::uint32_t self_;
  std::map<std::uint64_t, lane> lanes_;
  lane* recent_ = nullptr;
  std::uint64_t recent_channel_ = 0;
  std::vector<std::unique_ptr<arrival>> arrivals_;
  std::vector<arrival*> free_;
  std::size_t stash_bytes_ = 0;
  std::size_t expected_ = 0;
  std::size_t unfinished_ = 0;
  bool completed_ = false;
  std::optional<world_failure> failure_;
};

/// Where the bytes of one part of a message go. Bytes that are combined are taken in whole elements.
class arrival_part {
 public:
  void begin(arrival* a, std::size_t at, std::size_t bytes) noexcept {
    arrival_ = a;
    at_ = at;
    end_ = at + bytes;
    held_ = 0;
  }
  [[nodiscard]] std::size_t missing() const noexcept { return end_ - at_; }
  [[nodiscard]] arrival* message() const noexcept { return arrival_; }

  /// Room for the next bytes, at most what is missing: their final place where they are copied, scratch where they are
  /// combined or dropped.
  [[nodiscard]] std::span<std::byte> room() {
    if (std::byte* const place = final_place(); place != nullptr) return {place + at_, missing()};
    if (scratch_ == nullptr) scratch_ = std::make_unique_for_overwrite<std::byte[]>(scratch_bytes);
    return {scratch_.get() + held_, std::min(missing(), scratch_bytes - held_)};
  }

  /// `bytes` were written to `room()`.
  void filled(std::size_t bytes) {
    if (final_place() == nullptr) combine(scratch_.get(), bytes);
    at_ += bytes;
  }

  /// The next bytes, wherever they are.
  void put(const std::byte* from, std::size_t bytes) {
    if (bytes == 0) return;
    transfer* const t = arrival_->to;
    if (std::byte* const place = final_place(); place != nullptr) {
      std::memcpy(place + at_, from, bytes);
      at_ += bytes;
    } else if (t != nullptr && held_ == 0 && bytes % t->combine.from_bytes == 0) {
      deliver(*t, from, at_, bytes);
      at_ += bytes;
    } else if (t == nullptr) {
      at_ += bytes;
    } else {
      while (bytes != 0) {
        const std::span<std::byte> to = room();
        const std::size_t n = std::min(bytes, to.size());
        std::memcpy(to.data(), from, n);
        filled(n);
        from += n;
        bytes -= n;
      }
    }
  }

 private:
  /// Fits the cache of a core, so that what is combined out of it was never far.
  static constexpr std::size_t scratch_bytes = std::size_t{64} << 10U;

  [[nodiscard]] std::byte* final_place() const noexcept {
    if (arrival_->early != nullptr) return arrival_->early.get();
    const transfer* const t = arrival_->to;
    return t == nullptr || t->combine.apply != nullptr ? nullptr : t->data;
  }

  void combine(std::byte* scratch, std::size_t fresh) {
    transfer* const t = arrival_->to;
    const std::size_t size = t == nullptr ? 1 : t->combine.from_bytes;
    const std::size_t whole = (held_ + fresh) / size * size;
    if (t != nullptr) deliver(*t, scratch, at_ - held_, whole);
    held_ = held_ + fresh - whole;
    if (held_ != 0) std::memmove(scratch, scratch + whole, held_);
  }

  arrival* arrival_ = nullptr;
  std::size_t at_ = 0, end_ = 0;
  std::size_t held_ = 0;  ///< bytes of an element whose rest has not come
  std::unique_ptr<std::byte[]> scratch_;
};

}  // namespace hetero::detail
