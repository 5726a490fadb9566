// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <hetero/comm/concepts.hpp>
#include <hetero/comm/pending.hpp>
#include <hetero/comm/task_options.hpp>
#include <hetero/core/error.hpp>

namespace hetero::detail {

template <class C> void end_world(const C& c, const error& why) noexcept {
  if constexpr (requires { c.abort(why.message(), why.code()); }) {
    c.abort(why.message(), why.code());
  } else {
    c.abort(why.message());
  }
}

template <class C> inline constexpr bool has_timeout = requires(C& c, std::chrono::milliseconds t) {
  c.set_timeout(t);
  t = c.timeout();
};

/// What the handle itself moved, or what its rank did when the communicator cannot tell.
template <class C> [[nodiscard]] traffic_counters handle_counters_of(const C& c) noexcept {
  if constexpr (requires { c.handle_counters(); }) {
    return c.handle_counters();
  } else {
    return c.counters();
  }
}

/// The thread that runs the asynchronous all_reduces of one handle, on a channel of their own. The destructor finishes
/// them all.
///
/// In priority order rank 0 names each chunk before it runs, on the same channel, so that all ranks run the same ones.
/// A rank listens while it has something outstanding, and waits for its own start of an operation that rank 0 chose.
template <class C> class async_lane {
 public:
  async_lane(C channel, queue_settings settings)
      : channel_{std::move(channel)}, settings_{settings}, thread_{[this] { loop(); }} {}
  async_lane(const async_lane&) = delete;
  async_lane& operator=(const async_lane&) = delete;
  ~async_lane() {
    {
      const std::lock_guard lock{mutex_};
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  [[nodiscard]] pending submit(const tensor_view& view, reduce_op op, const task_options& options,
                               std::chrono::milliseconds timeout) {
    auto handle = std::make_shared<async_task>();
    {
      const std::lock_guard lock{mutex_};
      const std::uint64_t turn = started_[options.id]++;
      tasks_.push_back({view, op, options, turn, timeout, 0, handle});
    }
    changed_.notify_all();
    return pending{std::move(handle)};
  }

  /// What its operations have moved. Any thread.
  [[nodiscard]] traffic_counters counters() const noexcept { return handle_counters_of(channel_); }

 private:
  struct task {
    tensor_view view;
    reduce_op op;
    task_options options;
    std::uint64_t turn;  ///< how many of its id came before
    std::chrono::milliseconds timeout;
    std::size_t moved;  ///< elements whose chunks are done
    std::shared_ptr<async_task> handle;
  };
  using place = typename std::list<task>::iterator;  // stays valid while others join the list

  void loop() {
    std::unique_lock lock{mutex_};
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      std::optional<error> failed;
      try {
        settings_.order == queue_order::fifo ? run_first(lock) : run_chunk(lock);
      } catch (const error& e) {
        failed.emplace(e);
      } catch (const std::exception& e) {
        failed.emplace(errc::aborted, e.what());
        end_world(channel_, *failed);  // it may be this rank's alone
      }
      if (!failed) continue;
      // A failure ends the whole world, so nothing that waits here could still succeed. Each reader gets an exception
      // of its own, which ends with it.
      if (!lock.owns_lock()) lock.lock();
      for (auto& t : std::exchange(tasks_, {})) t.handle->finish(std::make_exception_ptr(*failed));
    }
  }

  void set_timeout(std::chrono::milliseconds timeout) {
    if constexpr (has_timeout<C>) channel_.set_timeout(timeout);
  }

  [[nodiscard]] std::size_t next_border(const task& t) const {
    const std::size_t step = settings_.chunk_bytes == 0
                                 ? t.view.count()
                                 : std::max<std::size_t>(1, settings_.chunk_bytes / size_of(t.view.type()));
    return std::min(t.view.count(), t.moved + step);
  }

  /// The next chunk of a task; called without the lock.
  void advance(task& t) {
    const std::size_t end = next_border(t);
    channel_.all_reduce(t.view.flat(t.moved, end), t.op, t.options.traffic);
    t.moved = end;
  }

  void run_first(std::unique_lock<std::mutex>& lock) {
    const place t = tasks_.begin();
    lock.unlock();
    set_timeout(t->timeout);
    do advance(*t);
    while (t->moved < t->view.count());
    lock.lock();
    complete(t);
  }

  void complete(place t) {
    const auto handle = std::move(t->handle);
    tasks_.erase(t);
    handle->finish(nullptr);
  }

  /// What rank 0 tells: which task is next, and what it believes that task to be.
  using choice = std::array<std::int64_t, 6>;
  [[nodiscard]] static choice describe(const task& t) {
    return {static_cast<std::int64_t>(t.options.id),  static_cast<std::int64_t>(t.turn),
            static_cast<std::int64_t>(t.moved),       static_cast<std::int64_t>(t.view.count()),
            static_cast<std::int64_t>(t.view.type()), static_cast<std::int64_t>(t.op)};
  }
  [[nodiscard]] static std::string name_of(const choice& c) {
    return std::string{"all_reduce("} + hetero::to_string(static_cast<reduce_op>(c[5])) + ") of " +
           std::to_string(c[3]) + ' ' + hetero::to_string(static_cast<dtype>(c[4])) + " (asynchronous operation " +
           std::to_string(c[1]) +
           (static_cast<std::uint64_t>(c[0]) == task_options::in_order
                ? ""
                : " of id " + std::to_string(static_cast<std::uint64_t>(c[0]))) +
           ')';
  }

  [[nodiscard]] place most_urgent() {
    return std::min_element(tasks_.begin(), tasks_.end(), [](const task& a, const task& b) {
      if (a.options.priority != b.options.priority) return a.options.priority > b.options.priority;
      return a.options.needed_by < b.options.needed_by;  // equal ones stay in the order of their start
    });
  }

  void run_chunk(std::unique_lock<std::mutex>& lock) {
    set_timeout(tasks_.front().timeout);
    const bool chooses = channel_.rank() == rank_id{0};
    place t = chooses ? most_urgent() : tasks_.end();
    choice chosen = chooses ? describe(*t) : choice{};
    if (channel_.world_size() > 1) {
      lock.unlock();
      channel_.broadcast(tensor_view{std::span{chosen}}, rank_id{0}, traffic_class::control);
      lock.lock();
      if (!chooses) t = await(chosen, lock);
    }
    lock.unlock();
    set_timeout(t->timeout);
    advance(*t);
    lock.lock();
    if (t->moved >= t->view.count()) complete(t);
  }

  /// This rank's side of the task that rank 0 chose.
  /// @throws error mismatch, timeout, which also end the world
  [[nodiscard]] place await(const choice& chosen, std::unique_lock<std::mutex>& lock) {
    place t = tasks_.end();
    const auto find = [&] {
      t = std::find_if(tasks_.begin(), tasks_.end(), [&](const task& one) {
        return static_cast<std::int64_t>(one.options.id) == chosen[0] &&
               static_cast<std::int64_t>(one.turn) == chosen[1];
      });
      return t != tasks_.end() || stopping_;
    };
    const std::string who = "rank " + std::to_string(index_of(channel_.rank()));
    const auto timeout = tasks_.front().timeout;
    if (!changed_.wait_for(lock, timeout, find)) {
      fail(errc::timeout, who + " was told to run " + name_of(chosen) + " and did not start it within " +
                              std::to_string(timeout.count()) +
                              " ms; start every operation before waiting for one, or raise set_timeout");
    }
    if (t == tasks_.end()) {
      fail(errc::mismatch,
           who + " never started " + name_of(chosen) + ", which rank 0 did; all ranks must start the same operations");
    }
    if (const choice mine = describe(*t); mine != chosen) {
      fail(errc::mismatch, who + " is in " + name_of(mine) + " and rank 0 is in " + name_of(chosen) +
                               "; operations that meet must have equal counts, types and reductions");
    }
    return t;
  }

  [[noreturn]] void fail(errc code, std::string text) {
    const error why{code, std::move(text), {channel_.rank(), {}}};
    end_world(channel_, why);
    throw why;
  }

  C channel_;  // used by the thread alone
  const queue_settings settings_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<task> tasks_;
  std::map<std::uint64_t, std::uint64_t> started_;
  bool stopping_ = false;
  std::thread thread_;  // last: it starts with everything above in place
};

/// The lane of a handle, started when it is first needed, and how it works.
template <class C> class async_queue {
 public:
  explicit async_queue(queue_settings settings = {}) noexcept : settings_{settings} {}

  [[nodiscard]] queue_settings settings() const noexcept { return settings_; }
  /// Waits for what was started.
  void reset(queue_settings settings) {
    if (lane_) retired_ = retired_ + lane_->counters();
    lane_.reset();
    settings_ = settings;
  }

  /// `owner` gives the lane its channel and the operation its timeout.
  [[nodiscard]] pending submit(const C& owner, const tensor_view& view, reduce_op op, const task_options& options) {
    if (!lane_) lane_ = std::make_unique<async_lane<C>>(owner.channel("async"), settings_);
    std::chrono::milliseconds timeout{30'000};
    if constexpr (has_timeout<C>) timeout = owner.timeout();
    return lane_->submit(view, op, options, timeout);
  }

  [[nodiscard]] traffic_counters counters() const noexcept { return lane_ ? retired_ + lane_->counters() : retired_; }

 private:
  queue_settings settings_;
  traffic_counters retired_;
  std::unique_ptr<async_lane<C>> lane_;
};

}  // namespace hetero::detail
