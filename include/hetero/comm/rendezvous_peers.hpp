// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/rendezvous_link.hpp>
#include <hetero/comm/rendezvous_message.hpp>
#include <hetero/comm/rendezvous_result.hpp>
#include <hetero/comm/rendezvous_socket.hpp>

namespace hetero::detail {

/// The data connections of one rank, while they come.
class peer_table {
 public:
  /// Makes room for the connections to every other rank.
  void expect(const welcome_message& table, std::uint32_t own_rank) {
    token_ = table.token;
    streams_.resize(table.places.size());
    for (std::uint32_t r = 0; r < streams_.size(); ++r) {
      if (r != own_rank) streams_[r].resize(table.streams_between(own_rank, r));
      missing_ += streams_[r].size();
    }
  }

  /// False when nobody waits for this one.
  bool put(std::uint32_t rank, std::uint32_t stream, tcp_socket socket) {
    if (rank >= streams_.size() || stream >= streams_[rank].size() || streams_[rank][stream]) return false;
    streams_[rank][stream] = std::move(socket);
    --missing_;
    return true;
  }
  /// Takes the connection of whoever introduced himself in `link`; a stranger is turned away.
  void put(rendezvous_link& link) {
    peer_hello_message hello;
    if (hello.decode(link.body()) && hello.token == token_) put(hello.rank, hello.stream, link.release());
  }

  [[nodiscard]] std::size_t missing() const noexcept { return missing_; }
  [[nodiscard]] std::size_t streams(std::uint32_t rank) const { return streams_[rank].size(); }
  /// Whether a connection to this rank is missing.
  [[nodiscard]] bool lacks(std::uint32_t rank) const {
    return std::any_of(streams_[rank].begin(), streams_[rank].end(), [](const auto& s) { return !s.has_value(); });
  }

  [[nodiscard]] rendezvous_result take(const welcome_message& table) {
    rendezvous_result result;
    result.token = table.token;
    for (const auto& p : table.places) result.host_ids.push_back(p.host_id);
    result.streams.resize(streams_.size());
    for (std::size_t r = 0; r < streams_.size(); ++r) {
      for (auto& s : streams_[r]) result.streams[r].push_back(std::move(*s));
    }
    return result;
  }

 private:
  std::uint64_t token_ = 0;
  std::vector<std::vector<std::optional<tcp_socket>>> streams_;
  std::size_t missing_ = 0;
};

/// Connections of those who have not said who they are. They get little memory and little time.
class stranger_queue {
 public:
  /// `expected` is how many are welcome at once.
  explicit stranger_queue(std::size_t expected) : most_{expected + spare} {}

  void poll_for(std::vector<pollfd>& polled) {
    for (stranger& s : strangers_) polled.push_back({s.link.fd(), POLLIN, 0});
  }

  /// Takes in whoever waits and hands each complete first message to `meet`.
  template <class Meet> void turn(std::vector<tcp_listener>& listeners, Meet&& meet) {
    for (tcp_listener& l : listeners) {
      while (auto socket = l.accept()) {
        if (strangers_.size() == most_) strangers_.pop_front();
        strangers_.push_back({rendezvous_link{std::move(*socket)}, rendezvous_clock::now() + patience});
        if (strangers_.size() == most_) hear(meet);
      }
    }
    hear(meet);
  }

 private:
  static constexpr std::size_t spare = 64;
  static constexpr std::chrono::seconds patience{2};

  struct stranger {
    rendezvous_link link;
    rendezvous_clock::time_point until;
  };

  template <class Meet> void hear(Meet& meet) {
    for (std::size_t i = 0; i < strangers_.size();) {
      const auto state = strangers_[i].link.receive(max_stranger_bytes);
      if (state == rendezvous_link::state::partial && rendezvous_clock::now() < strangers_[i].until) {
        ++i;
        continue;
      }
      stranger s = std::move(strangers_[i]);
      strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
      if (state == rendezvous_link::state::message) meet(s.link);  // the leader may come back here, and then throws
    }
  }

  std::size_t most_;
  std::deque<stranger> strangers_;
};

}  // namespace hetero::detail
