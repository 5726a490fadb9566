// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hetero/comm/mailbox.hpp>
#include <hetero/comm/transfer_queue.hpp>
#include <hetero/comm/transport.hpp>
#include <hetero/mpi/mpi_message.hpp>

namespace hetero::detail {

/// Waits without a file descriptor to sleep on: yields at first, then sleeps longer and longer, up to half a
/// millisecond.
class mpi_backoff {
 public:
  void pause() {
    if (++turns_ <= 300) return std::this_thread::yield();
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, std::chrono::microseconds{500});
  }

 private:
  int turns_ = 0;
  std::chrono::microseconds pause_{10};
};

/// Messages as MPI messages on a communicator of its own, cut into pieces that are copied through memory of the
/// transport on both sides. Between two ranks they keep their order. There is no thread of its own: whoever waits moves
/// MPI along for all.
class mpi_transport final : public transport {
 public:
  /// Collective over `parent`. @throws error unsupported, timeout, network
  mpi_transport(MPI_Comm parent, std::chrono::milliseconds timeout) {
    require(mpi_is_up(), errc::unsupported,
            "MPI is not initialised; call MPI_Init_thread or keep a hetero::mpi_session in main");
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    require(level >= MPI_THREAD_SERIALIZED, errc::unsupported,
            "MPI was initialised for one thread and hetero's ranks have several; ask MPI_Init_thread for "
            "MPI_THREAD_MULTIPLE");
    const std::lock_guard lock{mutex()};
    duplicate(parent, clock::now() + timeout);
    int number = 0;
    MPI_Comm_rank(comm_, &number);
    rank_ = static_cast<std::uint32_t>(number);
    MPI_Comm_size(comm_, &number);
    for (std::uint32_t r = 0; r < static_cast<std::uint32_t>(number); ++r) {
      links_.push_back(r == rank_ ? nullptr : std::make_unique<link>(rank_));
      if (r != rank_) {
        for (mpi_slot& s : links_[r]->receives) s.receive(static_cast<int>(r), comm_);
      }
    }
  }

  ~mpi_transport() override {
    mpi_transport::goodbye();
    const std::lock_guard lock{mutex()};
    if (!mpi_is_up()) return;
    // The communicator goes back only when nothing can be under way on it any more; a next one would get its messages.
    // Otherwise MPI keeps it until it is finalised.
    bool quiet = move_until(std::chrono::milliseconds{200}, [&] {
      return failure_ || std::all_of(links_.begin(), links_.end(), [](const auto& l) { return !l || l->left; });
    });
    for (const auto& l : links_) {
      if (!l) continue;
      for (mpi_slot& s : l->receives) s.cancel();
    }
    quiet = settle(std::chrono::milliseconds{failure_ ? 20 : 200}) && quiet && !failure_;
    if (quiet) MPI_Comm_free(&comm_);
  }

  [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t world_size() const noexcept override { return static_cast<std::uint32_t>(links_.size()); }

  [[nodiscard]] std::string path_to(std::uint32_t) const override { return "MPI"; }
  void post(transfer& t) override {
    const std::lock_guard lock{mutex()};
    if (failure_) return;
    guarded([&] {
      link& l = *links_[t.peer];
      if (t.direction == transfer::way::send) {
        l.sends.push(t);
        pump(t.peer);
      } else {
        l.mail.post(t);
        if (l.mail.failure()) fail(*l.mail.failure());
      }
    });
  }

  [[nodiscard]] status wait(std::span<transfer* const> transfers, clock::time_point deadline) override {
    mpi_backoff backoff;
    while (true) {
      {
        const std::lock_guard lock{mutex()};
        move();
        if (failure_) return status::failed;
        const transfer* lost = nullptr;
        bool open = false;
        for (const transfer* t : transfers) {
          if (t->done) continue;
          open = true;
          if (links_[t->peer]->left) lost = t;
        }
        if (!open) return status::done;
        if (lost != nullptr) {
          fail(lost_failure(*lost, rank_, "left the world"));
          return status::failed;
        }
      }
      if (clock::now() >= deadline) return status::timeout;
      backoff.pause();
    }
  }

  void cancel(transfer& t) noexcept override {
    const std::lock_guard lock{mutex()};
    link& l = *links_[t.peer];
    if (t.direction == transfer::way::recv) return l.mail.cancel(t);
    if (l.sends.remove(t) && t.moved != 0) l.cut = true;
  }

  void abort(world_failure why) noexcept override {
    const std::lock_guard lock{mutex()};
    fail(std::move(why));
    // A peer that listens gets the news while we are here.
    (void)move_until(std::chrono::milliseconds{100}, [&] { return news_.empty(); });
  }

  [[nodiscard]] world_failure failure() const override {
    const std::lock_guard lock{mutex()};
    return failure_.value_or(world_failure{});
  }

  void goodbye() noexcept override {
    const std::lock_guard lock{mutex()};
    if (std::exchange(said_goodbye_, true) || !mpi_is_up()) return;
    if (!failure_) tell_all(mpi_message_type::goodbye, {});
    (void)move_until(std::chrono::seconds{1}, [&] {
      return news_.empty() && std::all_of(links_.begin(), links_.end(), [](const auto& l) { return !l || l->idle(); });
    });
  }

 private:
  struct link {
    explicit link(std::uint32_t self) : mail{self} {}
    [[nodiscard]] bool idle() const noexcept {
      return std::all_of(pieces.begin(), pieces.end(), [](const mpi_slot& s) { return s.idle(); });
    }

    mailbox mail;
    std::array<mpi_slot, 2> receives;  ///< posted in turn; MPI fills them in the order of posting
    std::size_t next_receive = 0;
    arrival_part part;  ///< of the message that is coming in
    bool in_part = false;
    transfer_queue sends;
    std::array<mpi_slot, 4> pieces;  ///< on their way out
    std::size_t next_piece = 0;
    bool cut = false;   ///< a message was taken back half sent: nothing may follow it
    bool left = false;  ///< the peer said goodbye
  };

  /// One for all transports of the process: MPI may have been started for one thread at a time.
  [[nodiscard]] static std::mutex& mutex() noexcept {
    static std::mutex one;
    return one;
  }

  void duplicate(MPI_Comm parent, clock::time_point deadline) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Comm_idup(parent, &comm_, &request), "MPI_Comm_idup");
    mpi_backoff backoff;
    for (int ended = 0; ended == 0; backoff.pause()) {
      check_mpi(MPI_Test(&request, &ended, MPI_STATUS_IGNORE), "MPI_Test");
      require(ended != 0 || clock::now() < deadline, errc::timeout,
              "not every rank of the MPI communicator called mpi_communicator before the deadline");
    }
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }

  /// An error of MPI ends the world.
  template <class Body> void guarded(Body&& body) noexcept {
    try {
      body();
    } catch (const error& e) {
      fail({e.code(), rank_, "rank " + std::to_string(rank_) + ": " + e.message()});
    } catch (const std::exception& e) {
      fail({errc::aborted, rank_, "rank " + std::to_string(rank_) + ": " + e.what()});
    }
  }

  /// One turn: takes what has come, sends what there is room for.
  void move() noexcept {
    guarded([&] {
      while (!news_.empty() && news_.front().test()) news_.pop_front();
      for (std::uint32_t r = 0; r < links_.size(); ++r) {
        if (!links_[r]) continue;
        take(r);
        pump(r);
      }
    });
  }

  template <class Done> bool move_until(std::chrono::milliseconds limit, Done&& done) noexcept {
    const auto deadline = clock::now() + limit;
    mpi_backoff backoff;
    for (move(); !done(); move()) {
      if (clock::now() >= deadline) return false;
      backoff.pause();
    }
    return true;
  }

  void take(std::uint32_t peer) {
    link& l = *links_[peer];
    while (l.receives[l.next_receive].test()) {
      mpi_slot& slot = l.receives[l.next_receive];
      mpi_header header;
      std::span<const std::byte> payload;
      require(slot.read(header, payload), errc::mismatch,
              [&] { return "rank " + std::to_string(peer) + " sent what is no message of this version of hetero"; });
      if (!put(peer, header, payload)) return;
      slot.receive(static_cast<int>(peer), comm_);
      l.next_receive = (l.next_receive + 1) % l.receives.size();
    }
  }

  /// False when the message must stay where it is because too much is here already.
  bool put(std::uint32_t peer, const mpi_header& header, std::span<const std::byte> payload) {
    link& l = *links_[peer];
    if (header.type == mpi_message_type::goodbye) {
      l.left = true;
      return true;
    }
    if (header.type == mpi_message_type::abort) {
      const auto* const text = reinterpret_cast<const char*>(payload.data());
      fail({header.code, header.origin, std::string{text, payload.size()}});
      return true;
    }
    if (failure_) return true;
    if (header.type == mpi_message_type::data) {
      arrival* const a = l.mail.announce(header.what, header.bytes, 1);
      if (l.mail.failure()) return fail(*l.mail.failure()), true;
      if (a == nullptr) return false;
      l.part.begin(a, 0, header.bytes);
      l.in_part = true;
    }
    require(l.in_part && payload.size() <= l.part.missing(), errc::mismatch,
            [&] { return "rank " + std::to_string(peer) + " sent a piece of no message"; });
    l.part.put(payload.data(), payload.size());
    if (l.part.missing() != 0) return true;
    l.in_part = false;
    l.mail.part_ended(l.part.message());
    return true;
  }

  void pump(std::uint32_t peer) {
    link& l = *links_[peer];
    for (mpi_slot& s : l.pieces) (void)s.test();
    while (!l.sends.empty() && !l.cut && !failure_ && l.pieces[l.next_piece].idle()) {
      transfer& t = *l.sends.front();
      mpi_header header;
      header.type = t.moved == 0 ? mpi_message_type::data : mpi_message_type::more;
      header.what = t.what;
      header.bytes = t.bytes;
      const std::size_t bytes = std::min(mpi_piece_bytes, t.bytes - t.moved);
      l.pieces[l.next_piece].send(header, {t.data + t.moved, bytes}, static_cast<int>(peer), comm_);
      l.next_piece = (l.next_piece + 1) % l.pieces.size();
      t.moved += bytes;
      if (t.moved != t.bytes) continue;
      l.sends.pop();
      t.done = true;
    }
  }

  /// The first failure ends the world here and is told to every peer, whoever found it.
  void fail(world_failure why) noexcept {
    if (failure_) return;
    failure_ = std::move(why);
    tell_all(mpi_message_type::abort, *failure_);
  }

  void tell_all(mpi_message_type type, const world_failure& why) noexcept {
    mpi_header header;
    header.type = type;
    header.origin = why.origin;
    header.code = why.code;
    const auto text = std::as_bytes(std::span{why.message.data(), std::min<std::size_t>(why.message.size(), 4000)});
    for (std::uint32_t r = 0; r < links_.size(); ++r) {
      if (!links_[r]) continue;
      try {
        news_.emplace_back().send(header, text, static_cast<int>(r), comm_);
      } catch (const std::exception&) {
        news_.pop_back();  // this peer cannot be reached, and learns by its own deadline
      }
    }
  }

  /// Waits for what was cancelled and for what is on its way out. True when MPI works on nothing of ours any more.
  bool settle(std::chrono::milliseconds limit) noexcept {
    const auto deadline = clock::now() + limit;
    mpi_backoff backoff;
    while (true) {
      bool busy = false;
      try {
        for (mpi_slot& s : news_) busy = !s.test() || busy;
        for (const auto& l : links_) {
          if (!l) continue;
          for (mpi_slot& s : l->receives) busy = !s.test() || busy;
          for (mpi_slot& s : l->pieces) busy = !s.test() || busy;
        }
      } catch (const std::exception&) {
        return false;
      }
      if (!busy) return true;
      if (clock::now() >= deadline) return false;
      backoff.pause();
    }
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::uint32_t rank_ = 0;
  std::vector<std::unique_ptr<link>> links_;  // by rank; the own place is empty
  std::deque<mpi_slot> news_;                 // aborts and goodbyes on their way
  bool said_goodbye_ = false;
  std::optional<world_failure> failure_;
};

}  // namespace hetero::detail
