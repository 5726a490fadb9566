// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <poll.h>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/rendezvous_address.hpp>
#include <hetero/comm/rendezvous_link.hpp>
#include <hetero/comm/rendezvous_message.hpp>
#include <hetero/comm/rendezvous_options.hpp>
#include <hetero/core/error.hpp>
#include <hetero/core/hash.hpp>

namespace hetero::detail {

/// Rank 0 of a rendezvous: hears every rank, compares what they say, and tells all of them the same outcome.
class rendezvous_leader {
 public:
  rendezvous_leader(std::vector<tcp_listener> listeners, const rendezvous_options& options)
      : listeners_{std::move(listeners)},
        options_{options},
        deadline_{rendezvous_clock::now() + options.timeout},
        members_(options.world_size) {}

  /// Blocks until every rank is connected to every other; the connections to this one, by rank.
  /// @throws error rendezvous or mismatch, the same on every rank
  [[nodiscard]] std::vector<std::optional<tcp_socket>> gather() {
    while (missing() != 0) {
      if (rendezvous_clock::now() >= deadline_) refuse({errc::rendezvous, missing_text()}, nullptr);
      turn(deadline_);
    }
    welcome();
    while (!std::all_of(members_.begin() + 1, members_.end(), [](const auto& m) { return m->ready; })) {
      if (rendezvous_clock::now() >= deadline_) refuse({errc::rendezvous, unready_text()}, nullptr);
      turn(deadline_);
    }
    std::vector<std::optional<tcp_socket>> sockets(members_.size());
    for (std::uint32_t r = 1; r < members_.size(); ++r) {
      members_[r]->link.send(rendezvous_kind::go, {}, deadline_);
      sockets[r] = members_[r]->link.release();
    }
    return sockets;
  }

 private:
  // Somebody who has not said who he is gets little memory and little time.
  static constexpr std::size_t max_strangers = 64;
  static constexpr std::chrono::seconds stranger_patience{2};
  static constexpr std::chrono::seconds farewell{1};

  struct stranger {
    rendezvous_link link;
    rendezvous_clock::time_point until;
  };
  struct member {
    rendezvous_link link;
    std::string address;
    std::uint16_t from_port = 0;
    std::uint16_t port = 0;
    bool ready = false;
  };

  [[nodiscard]] std::size_t missing() const {
    return static_cast<std::size_t>(
        std::count_if(members_.begin() + 1, members_.end(), [](const auto& m) { return !m.has_value(); }));
  }

  /// Waits for something to happen and deals with it.
  void turn(rendezvous_clock::time_point deadline) {
    std::vector<pollfd> polled;
    for (tcp_listener& l : listeners_) polled.push_back({l.fd(), POLLIN, 0});
    for (stranger& s : strangers_) polled.push_back({s.link.fd(), POLLIN, 0});
    for (auto& m : members_) {
      if (m) polled.push_back({m->link.fd(), POLLIN, 0});
    }
    ::poll(polled.data(), polled.size(), poll_timeout(deadline, std::chrono::milliseconds{500}));
    for (auto& m : members_) {
      if (m) hear(m, static_cast<std::uint32_t>(&m - members_.data()));
    }
    for (std::size_t i = 0; i < strangers_.size();) {
      if (meet(strangers_[i])) {
        ++i;
      } else {
        strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    for (tcp_listener& l : listeners_) {
      while (auto socket = l.accept()) {
        if (strangers_.size() == max_strangers) strangers_.pop_front();
        strangers_.push_back({rendezvous_link{std::move(*socket)}, rendezvous_clock::now() + stranger_patience});
      }
    }
  }

  /// A rank that is already noted.
  void hear(std::optional<member>& m, std::uint32_t rank) {
    const auto s = m->link.receive(max_stranger_bytes);
    if (s == rendezvous_link::state::partial) return;
    if (s == rendezvous_link::state::message && m->link.kind() == rendezvous_kind::ready) {
      m->ready = true;
      return;
    }
    if (s == rendezvous_link::state::message && m->link.kind() == rendezvous_kind::failed) {
      refuse(refusal_message::decode(m->link.body()), nullptr);
    }
    m.reset();  // gone; before the welcome another process may take its place
    if (welcomed_) {
      refuse({errc::peer_lost, "rank " + std::to_string(rank) + " ended while the ranks connected to each other"},
             nullptr);
    }
  }

  /// False when the stranger is dealt with.
  bool meet(stranger& s) {
    const auto state = s.link.receive(max_stranger_bytes);
    if (state == rendezvous_link::state::partial) return rendezvous_clock::now() < s.until;
    if (state != rendezvous_link::state::message || s.link.kind() != rendezvous_kind::hello) return false;
    if (verdict_) {
      s.link.send(rendezvous_kind::refused, verdict_->encode(), rendezvous_clock::now() + farewell);
      ++told_;
      return false;
    }
    if (s.link.version() != protocol_version) {
      refuse({errc::mismatch, "a rank at " + peer_text(s.link) + " speaks rendezvous protocol " +
                                  std::to_string(s.link.version()) + " and rank 0 protocol " +
                                  std::to_string(protocol_version) + "; run one version of hetero everywhere"},
             &s.link);
    }
    hello_message hello;
    if (!hello.decode(s.link.body())) return false;
    if (hello.job != options_.job) {
      s.link.send(rendezvous_kind::other_job, {}, rendezvous_clock::now() + farewell);
      return false;
    }
    if (const auto why = objection(hello, s.link)) refuse(*why, &s.link);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - rendezvous_clock::now());
    s.link.send(rendezvous_kind::registered, body_writer{}.add(std::int64_t{left.count()}).bytes(), deadline_);
    boost::system::error_code ec;
    const auto from = s.link.socket().get().remote_endpoint(ec);
    members_[hello.rank].emplace(member{std::move(s.link), from.address().to_string(), from.port(), hello.port, false});
    return false;
  }

  [[nodiscard]] std::optional<refusal_message> objection(const hello_message& hello, rendezvous_link& link) {
    const std::string who = "rank " + std::to_string(hello.rank);
    if (hello.world_size != options_.world_size) {
      return refusal_message{errc::mismatch, who + " was started with a world size of " +
                                                 std::to_string(hello.world_size) + " and rank 0 with " +
                                                 std::to_string(options_.world_size) +
                                                 "; set WORLD_SIZE to the same number on every rank"};
    }
    if (hello.rank >= options_.world_size) {
      return refusal_message{errc::rendezvous, who + " is outside a world of " + std::to_string(options_.world_size) +
                                                   "; ranks are 0 to " + std::to_string(options_.world_size - 1)};
    }
    if (hello.rank == 0 || members_[hello.rank]) {
      const std::string first = hello.rank == 0
                                    ? "the one that listens"
                                    : endpoint_text(members_[hello.rank]->address, members_[hello.rank]->from_port);
      return refusal_message{errc::rendezvous, "two processes claim " + who + ": " + first + " and " + peer_text(link) +
                                                   "; give every process its own RANK"};
    }
    if (hello.settings_hash != stable_hash{}.add(options_.settings).value()) {
      return refusal_message{errc::mismatch, "ranks were started with different settings: rank 0 with '" +
                                                 options_.settings.substr(0, hello_message::max_settings_text) +
                                                 "' and " + who + " with '" + hello.settings +
                                                 "'; start every rank with the same"};
    }
    return std::nullopt;
  }

  void welcome() {
    welcomed_ = true;
    std::random_device random;
    welcome_message m;
    m.token = (std::uint64_t{random()} << 32U) | random();
    m.places.resize(members_.size());
    for (std::uint32_t r = 1; r < members_.size(); ++r) m.places[r] = {members_[r]->address, members_[r]->port};
    const std::string body = m.encode();
    for (std::uint32_t r = 1; r < members_.size(); ++r)
      members_[r]->link.send(rendezvous_kind::welcome, body, deadline_);
  }

  /// Tells every process of the job, for a moment also those who are still on their way, and ends.
  [[noreturn]] void refuse(const refusal_message& why, rendezvous_link* offender) {
    const auto until = rendezvous_clock::now() + farewell;
    verdict_ = why;
    if (offender != nullptr) offender->send(rendezvous_kind::refused, why.encode(), until), ++told_;
    for (auto& m : members_) {
      if (!m) continue;
      m->link.send(rendezvous_kind::refused, why.encode(), until);
      m.reset();
      ++told_;
    }
    while (told_ + 1 < members_.size() && rendezvous_clock::now() < until) turn(until);
    throw error{why.code, why.text, {rank_id{0}, {}}};
  }

  [[nodiscard]] std::string missing_text() const {
    std::string ranks;
    for (std::uint32_t r = 1; r < members_.size(); ++r) {
      if (!members_[r]) ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
    }
    return "after " + std::to_string(options_.timeout.count()) + " ms rank" + (missing() == 1 ? " " : "s ") + ranks +
           " of " + std::to_string(options_.world_size) + (missing() == 1 ? " has" : " have") +
           " not come; start them, or raise the rendezvous timeout";
  }

  [[nodiscard]] std::string unready_text() const {
    std::string ranks;
    for (std::uint32_t r = 1; r < members_.size(); ++r) {
      if (!members_[r]->ready) ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
    }
    return "all ranks came, and these could not connect to the others in time: " + ranks;
  }

  [[nodiscard]] static std::string peer_text(rendezvous_link& link) {
    boost::system::error_code ec;
    const auto at = link.socket().get().remote_endpoint(ec);
    return endpoint_text(at.address().to_string(), at.port());
  }

  std::vector<tcp_listener> listeners_;
  const rendezvous_options& options_;
  rendezvous_clock::time_point deadline_;
  std::deque<stranger> strangers_;
  std::vector<std::optional<member>> members_;  // by rank; the own place stays empty
  std::optional<refusal_message> verdict_;
  std::size_t told_ = 0;  // processes that heard the verdict
  bool welcomed_ = false;
};

}  // namespace hetero::detail
