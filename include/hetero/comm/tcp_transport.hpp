// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <hetero/comm/tcp_connection.hpp>
#include <hetero/comm/tcp_socket.hpp>
#include <hetero/comm/transport.hpp>

namespace hetero::detail {

/// Ranks as processes, each connected to every other by one stream.
///
/// There is no thread of its own: whoever waits first polls the sockets for all, the others sleep until they are done
/// or the poller leaves.
class tcp_transport final : public transport {
 public:
  /// `sockets[r]` is connected to rank r; the own place is empty. `context` is what the sockets were made with.
  tcp_transport(std::shared_ptr<boost::asio::io_context> context, std::uint32_t rank,
                std::vector<std::optional<tcp_socket>> sockets)
      : context_{std::move(context)}, rank_{rank}, wake_fd_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {
    require(wake_fd_ >= 0, errc::network, "no file descriptor is left for the communication engine; raise ulimit -n");
    for (std::uint32_t r = 0; r < sockets.size(); ++r) {
      connections_.push_back(sockets[r] ? std::make_unique<tcp_connection>(std::move(*sockets[r]), rank) : nullptr);
    }
  }

  ~tcp_transport() override {
    tcp_transport::goodbye();
    for (const auto& c : connections_) {
      if (c) c->close();
    }
    ::close(wake_fd_);
  }

  [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t world_size() const noexcept override {
    return static_cast<std::uint32_t>(connections_.size());
  }

  void post(transfer& t) override {
    const std::lock_guard lock{mutex_};
    if (failure_) return;
    tcp_connection& c = *connections_[t.peer];
    const bool look_again = c.post(t);
    if (c.failure()) return fail(*c.failure());
    if (look_again && polling_) wake();
  }

  [[nodiscard]] status wait(std::span<transfer* const> transfers, clock::time_point deadline) override {
    std::unique_lock lock{mutex_};
    while (true) {
      const auto open = std::find_if(transfers.begin(), transfers.end(), [](const transfer* t) { return !t->done; });
      if (failure_) return status::failed;
      if (open == transfers.end()) return status::done;
      find_lost(transfers);
      if (failure_) return status::failed;
      if (clock::now() >= deadline) return status::timeout;
      if (polling_) {
        ++sleepers_;
        changed_.wait_until(lock, deadline);
        --sleepers_;
        continue;
      }
      polling_ = true;
      poll_once(lock, deadline, **open);
      polling_ = false;
      if (sleepers_ != 0) changed_.notify_all();
    }
  }

  void cancel(transfer& t) noexcept override {
    const std::lock_guard lock{mutex_};
    connections_[t.peer]->cancel(t);
  }

  void abort(world_failure why) noexcept override {
    std::unique_lock lock{mutex_};
    fail(std::move(why));
    // A peer whose buffers were full but who reads again gets the news while we are here.
    flush(lock, std::chrono::milliseconds{100});
  }

  [[nodiscard]] world_failure failure() const override {
    const std::lock_guard lock{mutex_};
    return failure_.value_or(world_failure{});
  }

  void goodbye() noexcept override {
    std::unique_lock lock{mutex_};
    if (std::exchange(said_goodbye_, true)) return;
    if (!failure_) {
      for (const auto& c : connections_) {
        if (c) c->send_control(frame_type::goodbye, {});
      }
    }
    flush(lock, std::chrono::seconds{1});
    settle();
  }

 private:
  /// The first failure ends the world here and is told to every peer, whoever found it: a peer may hear it from us
  /// before it notices that others went away.
  void fail(world_failure why) {
    if (failure_) return;
    failure_ = std::move(why);
    for (const auto& c : connections_) {
      if (c) c->send_control(frame_type::abort, *failure_);
    }
    changed_.notify_all();
    if (polling_) wake();
  }

  void wake() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof one);  // full: a wake-up is already pending
  }

  /// One turn of the sockets: waits for readiness without the lock, then moves what can be moved.
  void poll_once(std::unique_lock<std::mutex>& lock, clock::time_point deadline, const transfer& waiting) {
    bool read = false;
    for (std::uint32_t r = 0; r < connections_.size(); ++r) {
      if (connections_[r] == nullptr || !connections_[r]->stopped_early()) continue;
      connections_[r]->read_some();
      read = true;
      if (found_failure(r, waiting)) return;
    }
    if (read) return;

    polled_.assign(1, {wake_fd_, POLLIN, 0});
    polled_ranks_.assign(1, rank_);
    for (std::uint32_t r = 0; r < connections_.size(); ++r) {
      tcp_connection* const c = connections_[r].get();
      if (c == nullptr || !c->open()) continue;
      const int events = (c->wants_read() ? POLLIN : 0) | (c->wants_write() ? POLLOUT : 0);
      if (events == 0) continue;  // held back; a hang-up would wake the poller without end
      polled_.push_back({c->fd(), static_cast<short>(events), 0});
      polled_ranks_.push_back(r);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock::now());
    lock.unlock();
    const int ready = ::poll(polled_.data(), polled_.size(), static_cast<int>(std::max<std::int64_t>(0, left.count())));
    lock.lock();
    if (ready <= 0 || failure_) return;
    if (polled_[0].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(wake_fd_, &count, sizeof count);
    }
    for (std::size_t i = 1; i < polled_.size(); ++i) {
      if (polled_[i].revents == 0) continue;
      tcp_connection& c = *connections_[polled_ranks_[i]];
      if ((polled_[i].revents & POLLOUT) != 0) c.write_some();
      if ((polled_[i].revents & ~POLLOUT) != 0) c.read_some();
      if (found_failure(polled_ranks_[i], waiting)) return;
    }
  }

  bool found_failure(std::uint32_t peer, const transfer& waiting) {
    const tcp_connection& c = *connections_[peer];
    if (c.failure()) {
      fail(*c.failure());
    } else if (!c.broken().empty()) {
      fail(lost(peer, waiting));
    }
    return failure_.has_value();
  }

  /// Fails the world when one of these can no longer happen.
  void find_lost(std::span<transfer* const> transfers) {
    for (const transfer* t : transfers) {
      if (t->done) continue;
      const tcp_connection& c = *connections_[t->peer];
      if (!c.broken().empty()) return fail(lost(t->peer, *t));
      if (c.left()) return fail(lost_failure(*t, rank_, "left the world"));
    }
  }

  [[nodiscard]] world_failure lost(std::uint32_t peer, const transfer& waiting) const {
    const std::string how = connections_[peer]->broken();
    world_failure why = lost_failure(waiting, rank_, how);
    if (peer != waiting.peer) {
      why.message = "rank " + std::to_string(peer) + ' ' + how + " while rank " + std::to_string(rank_) +
                    " waited for rank " + std::to_string(waiting.peer) + " in " + to_string(waiting.what) +
                    " on channel '" + std::string{waiting.channel_name} + '\'';
    }
    return why;
  }

  /// Writes what is still queued, at most for `limit`.
  void flush(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds limit) noexcept {
    const auto deadline = clock::now() + limit;
    while (true) {
      std::vector<pollfd> unfinished;
      for (const auto& c : connections_) {
        if (!c) continue;
        c->write_some();
        if (c->wants_write()) unfinished.push_back({c->fd(), POLLOUT, 0});
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock::now()).count();
      if (unfinished.empty() || left <= 0) return;
      lock.unlock();
      ::poll(unfinished.data(), unfinished.size(), static_cast<int>(left));
      lock.lock();
    }
  }

  /// Ends each stream so that the peer can read all of it: closing a socket that still holds unread bytes would make
  /// the kernel throw away what the peer has not acknowledged.
  void settle() noexcept {
    const auto deadline = clock::now() + std::chrono::milliseconds{500};
    std::array<std::byte, 4096> dropped;
    for (const auto& c : connections_) {
      if (!c || !c->open()) continue;
      c->socket().shut_down_sending();
      while (c->socket().unacknowledged() > 0 && clock::now() < deadline) {
        pollfd readable{c->fd(), POLLIN, 0};
        ::poll(&readable, 1, 1);
        const io_result r = c->socket().read(dropped);
        if (r.ended()) break;
      }
      while (clock::now() < deadline) {
        const io_result r = c->socket().read(dropped);
        if (r.would_block || r.ended()) break;
      }
    }
  }

  std::shared_ptr<boost::asio::io_context> context_;
  std::uint32_t rank_;
  int wake_fd_;
  std::vector<std::unique_ptr<tcp_connection>> connections_;

  mutable std::mutex mutex_;  // guards everything below and the connections
  std::condition_variable changed_;
  bool polling_ = false;
  unsigned sleepers_ = 0;
  bool said_goodbye_ = false;
  std::optional<world_failure> failure_;
  std::vector<pollfd> polled_;  // the poller's
  std::vector<std::uint32_t> polled_ranks_;
};

}  // namespace hetero::detail
