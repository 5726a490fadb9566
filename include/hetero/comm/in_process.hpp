// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <hetero/comm/transfer_queue.hpp>
#include <hetero/comm/transport.hpp>

namespace hetero {

namespace detail {

/// The meeting place of ranks that are threads of one process. Whoever comes second, sender or receiver, copies
/// straight from the one buffer into the other.
class in_process_hub {
 public:
  explicit in_process_hub(std::uint32_t ranks) {
    for (std::uint32_t r = 0; r < ranks; ++r) ranks_.push_back(std::make_unique<endpoint>());
  }

  [[nodiscard]] std::uint32_t world_size() const noexcept { return static_cast<std::uint32_t>(ranks_.size()); }

  void post(std::uint32_t self, transfer& t) {
    const bool sending = t.direction == transfer::way::send;
    const std::uint32_t from = sending ? self : t.peer;
    endpoint& meeting = *ranks_[sending ? t.peer : self];
    transfer* partner = nullptr;
    {
      const std::lock_guard lock{meeting.mutex};
      lane& l = meeting.lanes[{from, t.what.channel}];
      partner = (sending ? l.receives : l.sends).pop();
      if (partner == nullptr) (sending ? l.sends : l.receives).push(t);
    }
    if (partner == nullptr) {
      if (sending) find_crossing(self, t);
      return;
    }
    transfer& send = sending ? t : *partner;
    transfer& receive = sending ? *partner : t;
    if (send.what != receive.what || send.bytes != receive.bytes) {
      abort(mismatch_failure(t, self, partner->what, partner->bytes));
    } else {
      deliver(receive, send.data, 0, send.bytes);
    }
    finish(*ranks_[self], t);
    finish(*ranks_[t.peer], *partner);
  }

  [[nodiscard]] transport::status wait(std::uint32_t self, std::span<transfer* const> transfers,
                                       transport::clock::time_point deadline) {
    endpoint& own = *ranks_[self];
    std::unique_lock lock{own.mutex};
    while (true) {
      if (failed_.load()) return transport::status::failed;
      const transfer* waiting = nullptr;
      const transfer* orphan = nullptr;
      for (const transfer* t : transfers) {
        if (t->done) continue;
        waiting = t;
        if (ranks_[t->peer]->left.load()) orphan = t;
      }
      if (waiting == nullptr) return transport::status::done;
      if (orphan != nullptr) {
        const world_failure why = lost_failure(*orphan, self, "left the world");
        lock.unlock();
        abort(why);
        return transport::status::failed;
      }
      if (own.changed.wait_until(lock, deadline) == std::cv_status::timeout && transport::clock::now() >= deadline) {
        const bool all = std::all_of(transfers.begin(), transfers.end(), [](const transfer* t) { return t->done; });
        return all ? transport::status::done : transport::status::timeout;
      }
    }
  }

  void cancel(std::uint32_t self, transfer& t) noexcept {
    const bool sending = t.direction == transfer::way::send;
    endpoint& meeting = *ranks_[sending ? t.peer : self];
    {
      const std::lock_guard lock{meeting.mutex};
      const auto found = meeting.lanes.find({sending ? self : t.peer, t.what.channel});
      if (found != meeting.lanes.end() && (sending ? found->second.sends : found->second.receives).remove(t)) return;
    }
    // Taken by its partner, whose copy ends soon.
    endpoint& own = *ranks_[self];
    std::unique_lock lock{own.mutex};
    own.changed.wait(lock, [&] { return t.done; });
  }

  void abort(world_failure why) noexcept {
    {
      const std::lock_guard lock{failure_mutex_};
      if (failed_.load()) return;
      failure_ = std::move(why);
      failed_.store(true);
    }
    wake_all();
  }

  [[nodiscard]] world_failure failure() const {
    const std::lock_guard lock{failure_mutex_};
    return failure_;
  }

  void leave(std::uint32_t self) noexcept {
    ranks_[self]->left.store(true);
    wake_all();
  }

 private:
  /// Two ranks that send to each other in different collectives would wait for each other until the deadline. In the
  /// same collective, one of them has always taken what the other sent for an earlier one.
  void find_crossing(std::uint32_t self, const transfer& t) {
    if (t.what.kind == operation_kind::message) return;
    std::optional<world_failure> why;
    {
      endpoint& own = *ranks_[self];
      const std::lock_guard lock{own.mutex};
      const auto found = own.lanes.find({t.peer, t.what.channel});
      const transfer* const theirs = found == own.lanes.end() ? nullptr : found->second.sends.front();
      if (theirs == nullptr || theirs->what.kind == operation_kind::message || theirs->what == t.what) return;
      why = mismatch_failure(t, self, theirs->what, theirs->bytes);
    }
    {
      // Ours may have been taken in between, and then theirs is simply the next one.
      endpoint& meeting = *ranks_[t.peer];
      const std::lock_guard lock{meeting.mutex};
      if (!meeting.lanes[{self, t.what.channel}].sends.contains(t)) return;
    }
    abort(std::move(*why));
  }

  struct lane {
    transfer_queue sends, receives;  // at most one of them holds something
  };
  struct endpoint {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::pair<std::uint32_t, std::uint64_t>, lane> lanes;  // messages to this rank, by sender and channel
    std::atomic<bool> left{false};
  };

  static void finish(endpoint& owner, transfer& t) noexcept {
    const std::lock_guard lock{owner.mutex};
    t.done = true;
    owner.changed.notify_all();
  }

  void wake_all() noexcept {
    for (const auto& e : ranks_) {
      const std::lock_guard lock{e->mutex};
      e->changed.notify_all();
    }
  }

  std::vector<std::unique_ptr<endpoint>> ranks_;
  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;
  world_failure failure_;
};

/// One rank's side of a hub.
class in_process_transport final : public transport {
 public:
  in_process_transport(std::shared_ptr<in_process_hub> hub, std::uint32_t rank) : hub_{std::move(hub)}, rank_{rank} {}
  ~in_process_transport() override { in_process_transport::goodbye(); }

  [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t world_size() const noexcept override { return hub_->world_size(); }
  [[nodiscard]] std::string path_to(std::uint32_t) const override { return "memory of one process"; }
  void post(transfer& t) override { hub_->post(rank_, t); }
  [[nodiscard]] status wait(std::span<transfer* const> transfers, clock::time_point deadline) override {
    return hub_->wait(rank_, transfers, deadline);
  }
  void cancel(transfer& t) noexcept override { hub_->cancel(rank_, t); }
  void abort(world_failure why) noexcept override { hub_->abort(std::move(why)); }
  [[nodiscard]] world_failure failure() const override { return hub_->failure(); }
  void goodbye() noexcept override { hub_->leave(rank_); }

 private:
  std::shared_ptr<in_process_hub> hub_;
  std::uint32_t rank_;
};

}  // namespace detail

/// The transports of `ranks` threads of this process, in rank order. Messages cost one copy from memory to memory.
/// A send waits for its receive at every size.
/// @throws error invalid_argument when `ranks` is 0
[[nodiscard]] inline std::vector<std::shared_ptr<transport>> in_process_transports(std::uint32_t ranks) {
  require(ranks > 0, errc::invalid_argument, "a world has at least one rank");
  const auto hub = std::make_shared<detail::in_process_hub>(ranks);
  std::vector<std::shared_ptr<transport>> out;
  for (std::uint32_t r = 0; r < ranks; ++r) out.push_back(std::make_shared<detail::in_process_transport>(hub, r));
  return out;
}

}  // namespace hetero
