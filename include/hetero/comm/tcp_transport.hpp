// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hetero/comm/shared_memory_link.hpp>
#include <hetero/comm/tcp_connection.hpp>
#include <hetero/comm/tcp_interface.hpp>
#include <hetero/comm/tcp_socket.hpp>
#include <hetero/comm/transport.hpp>

namespace hetero::detail {

/// Ranks as processes: a connection to each, and shared memory beside it where both are on one host.
///
/// There is no thread of its own: whoever waits first moves the messages of all, the others sleep until theirs are done
/// or the mover leaves. The mover looks again and again for a moment, which saves the kernel's wake-up, and then sleeps
/// in poll(); a writer into the shared memory finds out and rings through the connection.
class tcp_transport final : public transport {
 public:
  /// How long to look before sleeping, where every rank of the host has a core: about what a wake-up costs twice over.
  static constexpr std::chrono::microseconds patience{60};

  /// `streams[r]` are connected to rank r; the own place is empty. `context` is what the sockets were made with.
  tcp_transport(std::shared_ptr<boost::asio::io_context> context, std::uint32_t rank,
                std::vector<std::vector<tcp_socket>> streams)
      : context_{std::move(context)}, rank_{rank}, wake_fd_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {
    require(wake_fd_ >= 0, errc::network, "no file descriptor is left for the communication engine; raise ulimit -n");
    peers_.resize(streams.size());
    for (std::size_t r = 0; r < streams.size(); ++r) {
      if (!streams[r].empty()) peers_[r].net = std::make_unique<tcp_connection>(std::move(streams[r]), rank);
    }
  }

  ~tcp_transport() override {
    tcp_transport::goodbye();
    for (const peer& p : peers_) {
      if (p.net) p.net->close();
    }
    ::close(wake_fd_);
  }

  [[nodiscard]] std::string path_to(std::uint32_t rank) const override {
    const std::lock_guard lock{mutex_};
    const peer& p = peers_[rank];
    if (p.memory) return "shared memory";
    return p.net ? interface_of(p.net->socket()) + (p.net->streams().size() == 1
                                                        ? std::string{}
                                                        : ", " + std::to_string(p.net->streams().size()) + " streams")
                 : std::string{};
  }

  /// From here on messages to `rank` go through shared memory. Both sides do this between two messages.
  void attach(std::uint32_t rank, std::unique_ptr<shared_memory_link> link) {
    const std::lock_guard lock{mutex_};
    peers_[rank].memory = std::move(link);
  }
  /// How long a waiting thread may keep its core busy before it sleeps; zero where ranks share cores.
  void set_patience(std::chrono::nanoseconds p) {
    const std::lock_guard lock{mutex_};
    patience_ = p;
  }

  [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t world_size() const noexcept override { return static_cast<std::uint32_t>(peers_.size()); }

  void post(transfer& t) override {
    const std::lock_guard lock{mutex_};
    if (failure_) return;
    peer& p = peers_[t.peer];
    const bool look_again = p.memory ? p.memory->post(t) : p.net->post(t);
    ring_bell(p);
    if (const world_failure* const why = p.failure()) return fail(*why);
    if (look_again && polling_) wake();
  }

  [[nodiscard]] status wait(std::span<transfer* const> transfers, clock::time_point deadline) override {
    std::unique_lock lock{mutex_};
    clock::time_point patient_until{};
    unsigned looks = 0;
    while (true) {
      if (failure_) return status::failed;
      const auto open = std::find_if(transfers.begin(), transfers.end(), [](const transfer* t) { return !t->done; });
      if (open == transfers.end()) return status::done;
      if (polling_) {
        ++sleepers_;
        const bool late = changed_.wait_until(lock, deadline) == std::cv_status::timeout && clock::now() >= deadline;
        --sleepers_;
        if (late && !(*open)->done && !failure_) return status::timeout;
        continue;
      }
      if (progress(**open)) {
        if (sleepers_ != 0) changed_.notify_all();
        patient_until = {};
        continue;
      }
      find_lost(transfers);
      if (failure_) return status::failed;
      const auto now = clock::now();
      if (now >= deadline) return status::timeout;
      if (patient_until == clock::time_point{}) patient_until = now + patience_;
      const bool look_everywhere = now - looked_everywhere_ > std::chrono::milliseconds{1};
      if (now < patient_until && !look_everywhere) {
        lock.unlock();
        // The scheduler may have put the peer on this very core; then only giving way lets it answer.
        ++looks % 32 == 0 ? std::this_thread::yield() : pause();
        lock.lock();
        continue;
      }
      looked_everywhere_ = now;
      polling_ = true;
      poll_once(lock, now < patient_until ? now : deadline, **open);
      polling_ = false;
      if (sleepers_ != 0) changed_.notify_all();
    }
  }

  void cancel(transfer& t) noexcept override {
    const std::lock_guard lock{mutex_};
    peer& p = peers_[t.peer];
    p.memory ? p.memory->cancel(t) : p.net->cancel(t);
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
      for (const peer& p : peers_) {
        if (p.net) p.net->send_control(frame_type::goodbye, {});
      }
    }
    flush(lock, std::chrono::seconds{1});
    settle();
  }

 private:
  struct peer {
    std::unique_ptr<tcp_connection> net;  ///< also beside the memory: it tells of the peer's end
    std::unique_ptr<shared_memory_link> memory;

    [[nodiscard]] const world_failure* failure() const noexcept {
      if (net->failure()) return &*net->failure();
      return memory && memory->failure() ? &*memory->failure() : nullptr;
    }
    [[nodiscard]] const std::string& broken() const noexcept {
      return memory && !memory->broken().empty() ? memory->broken() : net->broken();
    }
  };

  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }

  static void ring_bell(peer& p) {
    if (p.memory && p.memory->take_bell()) p.net->ring_bell();
  }

  /// The first failure ends the world here and is told to every peer, whoever found it: a peer may hear it from us
  /// before it notices that others went away.
  void fail(world_failure why) {
    if (failure_) return;
    failure_ = std::move(why);
    for (const peer& p : peers_) {
      if (p.net) p.net->send_control(frame_type::abort, *failure_);
    }
    changed_.notify_all();
    if (polling_) wake();
  }

  void wake() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof one);  // full: a wake-up is already pending
  }

  /// Moves what somebody waits for, without waiting itself. Returns true when anything moved.
  bool progress(const transfer& waiting) {
    bool moved = false;
    for (std::uint32_t r = 0; r < peers_.size(); ++r) {
      peer& p = peers_[r];
      if (p.memory && p.memory->active()) {
        moved |= p.memory->progress();
        ring_bell(p);
      }
      if (p.net && (p.net->active() || p.net->stopped_early())) moved |= p.net->progress();
      if (p.net && found_failure(r, waiting)) return true;
    }
    return moved;
  }

  /// Waits for readiness of any socket without the lock, then moves what can be moved.
  void poll_once(std::unique_lock<std::mutex>& lock, clock::time_point deadline, const transfer& waiting) {
    bool asleep = true;
    for (std::uint32_t r = 0; r < peers_.size(); ++r) {
      peer& p = peers_[r];
      if (!p.memory || p.memory->fall_asleep()) continue;
      asleep = false;
      p.memory->progress();
      ring_bell(p);
      if (found_failure(r, waiting)) break;
    }
    if (asleep) poll_sockets(lock, deadline, waiting);
    for (peer& p : peers_) {
      if (p.memory) p.memory->wake_up();
    }
  }

  void poll_sockets(std::unique_lock<std::mutex>& lock, clock::time_point deadline, const transfer& waiting) {
    polled_.assign(1, {wake_fd_, POLLIN, 0});
    polled_ranks_.assign(1, rank_);
    for (std::uint32_t r = 0; r < peers_.size(); ++r) {
      if (!peers_[r].net) continue;
      for (tcp_stream& s : peers_[r].net->streams()) {
        if (!s.open()) continue;
        const int events = (s.wants_read() ? POLLIN : 0) | (s.wants_write() ? POLLOUT : 0);
        if (events == 0) continue;  // held back; a hang-up would wake the poller without end
        polled_.push_back({s.fd(), static_cast<short>(events), 0});
        polled_ranks_.push_back(r);
      }
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
      const std::uint32_t r = polled_ranks_[i];
      if (polled_[i].revents == 0 || (i > 1 && polled_[i - 1].revents != 0 && polled_ranks_[i - 1] == r)) continue;
      peers_[r].net->progress();
      if (found_failure(r, waiting)) return;
    }
  }

  bool found_failure(std::uint32_t rank, const transfer& waiting) {
    const peer& p = peers_[rank];
    if (const world_failure* const why = p.failure()) {
      fail(*why);
    } else if (!p.broken().empty()) {
      fail(lost(rank, waiting));
    }
    return failure_.has_value();
  }

  /// Fails the world when one of these can no longer happen.
  void find_lost(std::span<transfer* const> transfers) {
    for (const transfer* t : transfers) {
      if (t->done) continue;
      const peer& p = peers_[t->peer];
      if (!p.broken().empty()) return fail(lost(t->peer, *t));
      if (p.net->left()) return fail(lost_failure(*t, rank_, "left the world"));
    }
  }

  [[nodiscard]] world_failure lost(std::uint32_t rank, const transfer& waiting) const {
    const std::string how = peers_[rank].broken();
    world_failure why = lost_failure(waiting, rank_, how);
    if (rank != waiting.peer) {
      why.message = "rank " + std::to_string(rank) + ' ' + how + " while rank " + std::to_string(rank_) +
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
      for (const peer& p : peers_) {
        if (!p.net) continue;
        for (tcp_stream& s : p.net->streams()) {
          s.write_some();
          if (s.wants_write()) unfinished.push_back({s.fd(), POLLOUT, 0});
        }
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
    for (const peer& p : peers_) {
      if (!p.net) continue;
      for (tcp_stream& s : p.net->streams()) {
        if (!s.open()) continue;
        s.socket().shut_down_sending();
        while (s.socket().unacknowledged() > 0 && clock::now() < deadline) {
          pollfd readable{s.fd(), POLLIN, 0};
          ::poll(&readable, 1, 1);
          const io_result r = s.socket().read(dropped);
          if (r.ended()) break;
        }
        while (clock::now() < deadline) {
          const io_result r = s.socket().read(dropped);
          if (r.would_block || r.ended()) break;
        }
      }
    }
  }

  std::shared_ptr<boost::asio::io_context> context_;
  std::uint32_t rank_;
  int wake_fd_;
  std::vector<peer> peers_;

  mutable std::mutex mutex_;  // guards everything below and the peers
  std::condition_variable changed_;
  bool polling_ = false;
  unsigned sleepers_ = 0;
  bool said_goodbye_ = false;
  std::chrono::nanoseconds patience_{patience};
  clock::time_point looked_everywhere_{};
  std::optional<world_failure> failure_;
  std::vector<pollfd> polled_;  // the poller's
  std::vector<std::uint32_t> polled_ranks_;
};

}  // namespace hetero::detail
