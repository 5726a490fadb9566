// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/rendezvous_address.hpp>
#include <hetero/comm/rendezvous_host.hpp>
#include <hetero/comm/rendezvous_link.hpp>
#include <hetero/comm/rendezvous_message.hpp>
#include <hetero/comm/rendezvous_options.hpp>
#include <hetero/comm/rendezvous_peers.hpp>
#include <hetero/comm/rendezvous_result.hpp>
#include <hetero/comm/rendezvous_socket.hpp>
#include <hetero/core/error.hpp>
#include <hetero/core/hash.hpp>

namespace hetero::detail {

/// Rank 0 of a rendezvous: hears every rank, compares what they say, and tells all of them the same outcome.
class rendezvous_leader {
 public:
  /// `note` is added where ranks are missing at the deadline.
  rendezvous_leader(std::vector<tcp_listener> listeners, const rendezvous_options& options, std::string job,
                    std::string note)
      : listeners_{std::move(listeners)},
        options_{options},
        job_{std::move(job)},
        note_{std::move(note)},
        deadline_{rendezvous_clock::now() + options.timeout},
        members_(options.world_size),
        missing_{options.world_size - 1},
        strangers_{options.world_size * std::size_t{std::max(options.streams, options.local_streams)}} {}

  /// Blocks until every rank is connected to every other.
  /// @throws error rendezvous or mismatch, the same on every rank
  [[nodiscard]] rendezvous_result gather() {
    while (missing_ != 0) {
      if (rendezvous_clock::now() >= deadline_) refuse({errc::rendezvous, missing_text()}, nullptr);
      turn(deadline_);
    }
    welcome();
    while (ready_ + 1 < members_.size() || peers_.missing() + 1 > members_.size()) {
      if (rendezvous_clock::now() >= deadline_) refuse({errc::rendezvous, unready_text()}, nullptr);
      turn(deadline_);
    }
    for (std::uint32_t r = 1; r < members_.size(); ++r) {
      members_[r]->link.send(rendezvous_kind::go, {}, deadline_);
      peers_.put(r, 0, members_[r]->link.release());
    }
    return peers_.take(table_);
  }

 private:
  static constexpr std::chrono::seconds farewell{1};

  struct member {
    rendezvous_link link;
    hello_message hello;
    ip_address seen;  // where its connection comes from
    std::uint16_t from_port = 0;
    bool ready = false;
  };

  /// Waits for something to happen and deals with it.
  void turn(rendezvous_clock::time_point deadline) {
    std::vector<pollfd> polled;
    for (std::uint32_t r = 1; r < members_.size(); ++r) {
      polled.push_back({members_[r] ? members_[r]->link.fd() : -1, POLLIN, 0});
    }
    for (tcp_listener& l : listeners_) polled.push_back({l.fd(), POLLIN, 0});
    strangers_.poll_for(polled);
    ::poll(polled.data(), polled.size(), poll_timeout(deadline, std::chrono::milliseconds{500}));
    for (std::uint32_t r = 1; r < members_.size(); ++r) {
      if (polled[r - 1].revents != 0 && members_[r]) hear(r);
    }
    strangers_.turn(listeners_, [this](rendezvous_link& link) { meet(link); });
  }

  /// A rank that is already noted.
  void hear(std::uint32_t rank) {
    member& m = *members_[rank];
    const auto s = m.link.receive(max_stranger_bytes);
    if (s == rendezvous_link::state::partial) return;
    if (s == rendezvous_link::state::message && m.link.kind() == rendezvous_kind::ready) {
      if (!std::exchange(m.ready, true)) ++ready_;
      return;
    }
    if (s == rendezvous_link::state::message && m.link.kind() == rendezvous_kind::failed) {
      refuse(refusal_message::decode(m.link.body()), nullptr);
    }
    members_[rank].reset();  // gone; before the welcome another process may take its place
    ++missing_;
    if (welcomed_) {
      refuse({errc::peer_lost, "rank " + std::to_string(rank) + " ended while the ranks connected to each other"},
             nullptr);
    }
  }

  /// The first message of somebody.
  void meet(rendezvous_link& link) {
    if (welcomed_ && link.kind() == rendezvous_kind::peer_hello) return peers_.put(link);
    if (link.kind() != rendezvous_kind::hello) return;
    const bool readable = link.version() == protocol_version;
    hello_message hello;
    if (readable && !hello.decode(link.body())) return;
    if (readable && hello.job != job_) {
      link.send(rendezvous_kind::other_job, {}, rendezvous_clock::now() + farewell);
      return;
    }
    if (verdict_) {
      link.send(rendezvous_kind::refused, verdict_->encode(), rendezvous_clock::now() + farewell);
      ++told_;
      return;
    }
    if (!readable) {
      refuse({errc::mismatch, "a rank at " + peer_text(link) + " speaks rendezvous protocol " +
                                  std::to_string(link.version()) + " and rank 0 protocol " +
                                  std::to_string(protocol_version) + "; run one version of hetero everywhere"},
             &link);
    }
    if (const auto why = objection(hello, link)) refuse(*why, &link);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - rendezvous_clock::now());
    link.send(rendezvous_kind::registered, body_writer{}.add(std::int64_t{left.count()}).bytes(), deadline_);
    boost::system::error_code ec;
    const auto from = link.socket().get().remote_endpoint(ec);
    members_[hello.rank].emplace(member{std::move(link), hello, from.address(), from.port(), false});
    --missing_;
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
                                    : endpoint_text({members_[hello.rank]->seen, members_[hello.rank]->from_port});
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
    require_reach();
    welcomed_ = true;
    table_.token = random_number();
    table_.streams = options_.streams;
    table_.local_streams = options_.local_streams;
    table_.places.resize(members_.size());
    table_.places[0].host_id = options_.host_id != 0 ? options_.host_id : host_id();
    for (std::uint32_t r = 1; r < members_.size(); ++r) {
      table_.places[r].port = members_[r]->hello.port;
      table_.places[r].host_id = members_[r]->hello.host_id;
    }
    peers_.expect(table_, 0);
    for (std::uint32_t recipient = 1; recipient < members_.size(); ++recipient) {
      // Only lower ranks are called.
      for (std::uint32_t r = 1; r < members_.size(); ++r) {
        table_.places[r].addresses = r < recipient ? addresses_of(r, recipient) : std::vector<std::string>{};
      }
      members_[recipient]->link.send(rendezvous_kind::welcome, table_.encode(), deadline_);
    }
  }

  /// Where one rank finds another. Who comes to us over loopback shares our host, and is found by others where they
  /// find us: a loopback address would lead them back to themselves.
  [[nodiscard]] std::vector<std::string> addresses_of(std::uint32_t rank, std::uint32_t recipient) {
    const member& m = *members_[rank];
    boost::system::error_code ec;
    const bool same_host = !m.seen.is_loopback() || members_[recipient]->seen.is_loopback();
    const ip_address first = same_host ? m.seen : members_[recipient]->link.socket().get().local_endpoint(ec).address();
    std::vector<std::string> addresses{plain_text(first)};
    for (const std::string& a : m.hello.addresses) {
      if (std::find(addresses.begin(), addresses.end(), a) == addresses.end()) addresses.push_back(a);
    }
    return addresses;
  }

  /// @throws error unauthenticated, on every rank, when one hides from others that are on another host
  void require_reach() {
    const auto find = [&](auto&& wanted) {
      return std::find_if(members_.begin() + 1, members_.end(), [&](const auto& m) { return wanted(*m); });
    };
    const auto hidden = find([](const member& m) { return !m.hello.open_to_others; });
    const auto remote = find([](const member& m) { return !m.seen.is_loopback(); });
    if (hidden == members_.end() || remote == members_.end()) return;
    refuse({errc::unauthenticated,
            "rank " + std::to_string((*hidden)->hello.rank) + " accepts connections of its own host only, and rank " +
                std::to_string((*remote)->hello.rank) + " comes from " + (*remote)->seen.to_string() +
                "; on a network you trust, set join_options::allow_unauthenticated on every "
                "rank"},
           nullptr);
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
    return "after " + std::to_string(options_.timeout.count()) + " ms rank" + (missing_ == 1 ? " " : "s ") + ranks +
           " of " + std::to_string(options_.world_size) + (missing_ == 1 ? " has" : " have") +
           " not come; start them, or raise the rendezvous timeout" + note_;
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
  std::string job_;
  std::string note_;
  rendezvous_clock::time_point deadline_;
  std::vector<std::optional<member>> members_;  // by rank; the own place stays empty
  std::size_t missing_;
  std::size_t ready_ = 0;
  stranger_queue strangers_;
  welcome_message table_;
  peer_table peers_;
  std::optional<refusal_message> verdict_;
  std::size_t told_ = 0;  // processes that heard the verdict
  bool welcomed_ = false;
};

}  // namespace hetero::detail
