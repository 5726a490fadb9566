// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/rendezvous_address.hpp>
#include <hetero/comm/rendezvous_link.hpp>
#include <hetero/comm/rendezvous_message.hpp>
#include <hetero/comm/rendezvous_peers.hpp>
#include <hetero/comm/rendezvous_socket.hpp>

namespace hetero::detail {

/// Connects a worker to every other rank: calls the lower ones, all at once, and is called by the higher ones.
class rendezvous_mesh {
 public:
  /// `leader` is where the leader was reached. `deadline` bounds every attempt.
  rendezvous_mesh(boost::asio::io_context& context, std::uint32_t own_rank, const welcome_message& table,
                  const tcp::endpoint& leader, rendezvous_clock::time_point deadline)
      : context_{context},
        own_rank_{own_rank},
        table_{table},
        deadline_{deadline},
        strangers_{table.places.size() * std::max(table.streams, table.local_streams)} {
    peers_.expect(table, own_rank);
    for (std::uint32_t r = 0; r < own_rank; ++r) {
      const std::vector<tcp::endpoint> at = r == 0 ? std::vector{leader} : endpoints(table.places[r], leader);
      // The first connection to the leader is there already.
      for (std::uint32_t s = r == 0 ? 1 : 0; s < peers_.streams(r); ++s) calls_.push_back({r, s, at, {}, {}, 0, {}});
    }
  }

  /// Blocks until every connection but the first to the leader is there. `watch_leader` is called when the leader says
  /// something meanwhile. Nothing when it worked, else why not.
  [[nodiscard]] std::string run(std::vector<tcp_listener>& listeners, int leader_fd,
                                const std::function<void()>& watch_leader) {
    for (call& c : calls_) {
      if (!c.at.empty()) start(c);
    }
    while (true) {
      std::erase_if(calls_, [&](call& c) { return advance(c); });
      if (!failure_.empty() || peers_.missing() == 1) return failure_;
      if (rendezvous_clock::now() >= deadline_) return absent_text();
      std::vector<pollfd> polled{{leader_fd, POLLIN, 0}};
      for (call& c : calls_) polled.push_back({c.dial->fd(), POLLOUT, 0});
      for (tcp_listener& l : listeners) polled.push_back({l.fd(), POLLIN, 0});
      strangers_.poll_for(polled);
      ::poll(polled.data(), polled.size(), poll_timeout(next_deadline(), std::chrono::milliseconds{500}));
      if (polled[0].revents != 0) watch_leader();
      for (std::size_t i = 0; i < calls_.size(); ++i) {
        if (polled[i + 1].revents != 0) calls_[i].dial->look();
      }
      strangers_.turn(listeners, [this](rendezvous_link& link) {
        if (link.kind() == rendezvous_kind::peer_hello) peers_.put(link);
      });
    }
  }

  /// The connections, once `run` has succeeded; `leader` is the first to rank 0.
  [[nodiscard]] rendezvous_result take(tcp_socket leader) {
    peers_.put(0, 0, std::move(leader));
    return peers_.take(table_);
  }

 private:
  struct call {
    std::uint32_t rank = 0;
    std::uint32_t stream = 0;
    std::vector<tcp::endpoint> at;
    std::optional<tcp_dial> dial;
    rendezvous_clock::time_point until;
    std::size_t next = 0;  // address to try after this one
    std::string tried;     // and why that did not work
  };

  [[nodiscard]] static std::vector<tcp::endpoint> endpoints(const welcome_message::place& place,
                                                            const tcp::endpoint& leader) {
    std::vector<tcp::endpoint> at;
    for (const std::string& text : place.addresses) {
      boost::system::error_code ec;
      auto address = boost::asio::ip::make_address(text, ec);
      if (ec) continue;
      if (address.is_v6() && address.to_v6().is_link_local() && leader.address().is_v6()) {
        address = boost::asio::ip::address_v6{address.to_v6().to_bytes(), leader.address().to_v6().scope_id()};
      }
      at.push_back({address, place.port});
    }
    return at;
  }

  /// Tries the next address; every address gets its share of the time that is left.
  void start(call& c) {
    const auto left = (deadline_ - rendezvous_clock::now()) / static_cast<int>(2 * (c.at.size() - c.next) + 1);
    c.until = rendezvous_clock::now() + std::min<rendezvous_clock::duration>(left, std::chrono::seconds{10});
    c.dial.emplace(context_, c.at[c.next++]);
  }

  /// True when the call is done.
  bool advance(call& c) {
    while (failure_.empty()) {
      if (c.at.empty()) {
        failure_ = "the leader told no address of rank " + std::to_string(c.rank);
        break;
      }
      if (c.dial->pending()) {
        if (rendezvous_clock::now() < c.until) return false;
        c.dial->give_up();
      }
      if (auto socket = c.dial->take()) {
        rendezvous_link link{std::move(*socket)};
        link.send(rendezvous_kind::peer_hello, peer_hello_message{table_.token, own_rank_, c.stream}.encode(),
                  deadline_);
        peers_.put(c.rank, c.stream, link.release());
        return true;
      }
      c.tried += (c.tried.empty() ? "" : "; ") + endpoint_text(c.dial->to()) + ": " + c.dial->reason() + " (" +
                 route_text(context_, c.dial->to().address()) + ')';
      if (c.next < c.at.size()) {
        start(c);
        continue;
      }
      failure_ = "rank " + std::to_string(own_rank_) + " cannot connect to rank " + std::to_string(c.rank) + " at " +
                 c.tried +
                 "; let the hosts of all ranks reach each other on every port, or choose a MASTER_ADDR in the "
                 "network that joins them";
    }
    return true;
  }

  [[nodiscard]] rendezvous_clock::time_point next_deadline() const {
    auto next = deadline_;
    for (const call& c : calls_) next = std::min(next, c.until);
    return next;
  }

  [[nodiscard]] std::string absent_text() const {
    std::string ranks;
    for (std::uint32_t r = 1; r < table_.places.size(); ++r) {
      if (r != own_rank_ && peers_.lacks(r)) ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
    }
    return "these ranks did not connect to rank " + std::to_string(own_rank_) + " in time: " + ranks;
  }

  boost::asio::io_context& context_;
  std::uint32_t own_rank_;
  const welcome_message& table_;
  rendezvous_clock::time_point deadline_;
  stranger_queue strangers_;
  peer_table peers_;
  std::vector<call> calls_;
  std::string failure_;
};

}  // namespace hetero::detail
