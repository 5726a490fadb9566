// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <poll.h>
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

/// Every rank but 0: finds the leader, waits for the others and connects to them.
class rendezvous_worker {
 public:
  rendezvous_worker(boost::asio::io_context& context, const rendezvous_options& options)
      : context_{context}, options_{options}, deadline_{rendezvous_clock::now() + options.timeout} {}

  /// Blocks until this rank is connected to every other; the connections by rank.
  /// @throws error what the leader says; rendezvous when it does not answer in time
  [[nodiscard]] std::vector<std::optional<tcp_socket>> gather() {
    const auto addresses = resolve(context_, options_.host);
    check_reach(addresses, options_.host, options_.allow_unauthenticated);
    while (!leader_) {
      for (const std::uint16_t port : options_.ports) {
        for (const auto& a : addresses) {
          if (!leader_) introduce({a, port});
        }
      }
      if (leader_) break;
      require_time();
      ::poll(nullptr, 0, poll_timeout(deadline_, std::chrono::milliseconds{20}));  // until the leader is up
    }
    return mesh(expect(rendezvous_kind::welcome));
  }

  /// Only tells whoever listens there who this is; for a second rank 0, which the leader must hear of.
  /// @throws error what the leader says
  void introduce_to(const tcp::endpoint& at) { introduce(at); }
  [[nodiscard]] const std::string& last_failure() const noexcept { return why_; }

 private:
  static constexpr std::chrono::seconds answer_patience{2};

  /// Says hello to whatever listens at an address; keeps the link when it is our leader.
  void introduce(const tcp::endpoint& at) {
    auto socket = connect(context_, at, std::min(deadline_, rendezvous_clock::now() + answer_patience), why_);
    if (!socket) return;
    boost::system::error_code ec;
    const auto own_address = socket->get().local_endpoint(ec).address();
    bool in_use = false;
    // The address by which the leader is reached is the one by which others of the job reach us.
    if (!listener_) listener_ = tcp_listener::open(context_, {own_address, 0}, why_, in_use);
    require(listener_.has_value(), errc::network, [&] { return "no port to listen on is left at " + why_; });

    hello_message hello;
    hello.rank = options_.rank;
    hello.world_size = options_.world_size;
    hello.port = listener_->port();
    hello.settings_hash = stable_hash{}.add(options_.settings).value();
    hello.job = options_.job;
    hello.settings = options_.settings.substr(0, hello_message::max_settings_text);
    rendezvous_link link{std::move(*socket)};
    const auto patience = std::min(deadline_, rendezvous_clock::now() + answer_patience);
    const std::string where = endpoint_text(at.address().to_string(), at.port());
    if (!link.send(rendezvous_kind::hello, hello.encode(), patience) ||
        link.await(max_leader_bytes, patience) != rendezvous_link::state::message) {
      why_ = where + ": something listens there that is not a leader of this version";
      listener_.reset();
      return;
    }
    if (link.kind() == rendezvous_kind::refused) throw_refusal(link.body());
    if (link.kind() != rendezvous_kind::registered) {
      why_ = where + ": the leader of another job listens there";
      listener_.reset();
      return;
    }
    body_reader in{link.body()};
    // The leader's clock counts from here on; a little more, so that its reason arrives.
    const auto left = std::chrono::milliseconds{in.number<std::int64_t>()};
    deadline_ =
        rendezvous_clock::now() + std::min(left, std::chrono::milliseconds{options_.timeout}) + std::chrono::seconds{2};
    leader_ = std::move(link);
  }

  /// The next message of the leader, which must be of this kind.
  std::string expect(rendezvous_kind kind) {
    const auto s = leader_->await(max_leader_bytes, deadline_);
    if (s == rendezvous_link::state::message && leader_->kind() == rendezvous_kind::refused)
      throw_refusal(leader_->body());
    if (s == rendezvous_link::state::message && leader_->kind() == kind) return leader_->body();
    throw error{errc::rendezvous,
                s == rendezvous_link::state::partial ? "rank 0 listens and does not go on; is it stopped?"
                                                     : "rank 0 ended before all ranks had come",
                {rank_id{options_.rank}, {}}};
  }

  [[nodiscard]] std::vector<std::optional<tcp_socket>> mesh(const std::string& body) {
    welcome_message table;
    require(table.decode(body, options_.world_size), errc::rendezvous, "the leader's list of ranks cannot be read");
    std::vector<std::optional<tcp_socket>> sockets(options_.world_size);
    for (std::uint32_t r = 1; r < options_.rank; ++r) {
      boost::system::error_code ec;
      const tcp::endpoint at{boost::asio::ip::make_address(table.places[r].address, ec), table.places[r].port};
      auto socket = connect(context_, at, std::min(deadline_, rendezvous_clock::now() + answer_patience), why_);
      if (!socket)
        fail("rank " + std::to_string(options_.rank) + " cannot connect to rank " + std::to_string(r) + " at " + why_);
      rendezvous_link link{std::move(*socket)};
      link.send(rendezvous_kind::peer_hello, body_writer{}.add(table.token).add(options_.rank).bytes(), deadline_);
      sockets[r] = link.release();
    }
    accept_higher(table.token, sockets);
    leader_->send(rendezvous_kind::ready, {}, deadline_);
    expect(rendezvous_kind::go);
    sockets[0] = leader_->release();
    return sockets;
  }

  /// Waits for the ranks above this one; whoever does not know the token is turned away.
  void accept_higher(std::uint64_t token, std::vector<std::optional<tcp_socket>>& sockets) {
    struct stranger {
      rendezvous_link link;
      rendezvous_clock::time_point until;
    };
    std::deque<stranger> strangers;
    const auto absent = [&] {
      return std::find_if(sockets.begin() + options_.rank + 1, sockets.end(),
                          [](const auto& s) { return !s.has_value(); });
    };
    while (absent() != sockets.end()) {
      if (rendezvous_clock::now() >= deadline_) {
        fail("rank " + std::to_string(absent() - sockets.begin()) + " did not connect to rank " +
             std::to_string(options_.rank));
      }
      std::vector<pollfd> polled{{listener_->fd(), POLLIN, 0}, {leader_->fd(), POLLIN, 0}};
      for (stranger& s : strangers) polled.push_back({s.link.fd(), POLLIN, 0});
      ::poll(polled.data(), polled.size(), poll_timeout(deadline_, std::chrono::milliseconds{500}));
      if (polled[1].revents != 0) expect(rendezvous_kind::refused);
      for (std::size_t i = 0; i < strangers.size();) {
        const auto s = strangers[i].link.receive(max_stranger_bytes);
        if (s == rendezvous_link::state::partial && rendezvous_clock::now() < strangers[i].until) {
          ++i;
          continue;
        }
        body_reader in{strangers[i].link.body()};
        if (s == rendezvous_link::state::message && strangers[i].link.kind() == rendezvous_kind::peer_hello &&
            in.number<std::uint64_t>() == token) {
          const auto rank = in.number<std::uint32_t>();
          if (rank > options_.rank && rank < sockets.size() && !sockets[rank])
            sockets[rank] = strangers[i].link.release();
        }
        strangers.erase(strangers.begin() + static_cast<std::ptrdiff_t>(i));
      }
      while (auto socket = listener_->accept()) {
        if (strangers.size() == 64) strangers.pop_front();
        strangers.push_back({rendezvous_link{std::move(*socket)}, rendezvous_clock::now() + answer_patience});
      }
    }
  }

  /// Reports to the leader, so that every rank learns the reason, and ends.
  [[noreturn]] void fail(const std::string& text) {
    leader_->send(rendezvous_kind::failed, refusal_message{errc::network, text}.encode(), deadline_);
    throw error{errc::network, text, {rank_id{options_.rank}, {}}};
  }

  [[noreturn]] void throw_refusal(const std::string& body) const {
    const refusal_message m = refusal_message::decode(body);
    throw error{m.code, m.text, {rank_id{options_.rank}, {}}};
  }

  void require_time() const {
    require(rendezvous_clock::now() < deadline_, errc::rendezvous, [&] {
      return "rank " + std::to_string(options_.rank) + " did not find rank 0 within " +
             std::to_string(options_.timeout.count()) + " ms (" + why_ +
             "); start rank 0 there, or correct MASTER_ADDR and MASTER_PORT";
    });
  }

  boost::asio::io_context& context_;
  const rendezvous_options& options_;
  rendezvous_clock::time_point deadline_;
  std::optional<tcp_listener> listener_;
  std::optional<rendezvous_link> leader_;
  std::string why_;
};

}  // namespace hetero::detail
