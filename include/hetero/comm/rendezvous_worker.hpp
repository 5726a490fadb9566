// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/rendezvous_address.hpp>
#include <hetero/comm/rendezvous_host.hpp>
#include <hetero/comm/rendezvous_link.hpp>
#include <hetero/comm/rendezvous_mesh.hpp>
#include <hetero/comm/rendezvous_message.hpp>
#include <hetero/comm/rendezvous_options.hpp>
#include <hetero/comm/rendezvous_port_file.hpp>
#include <hetero/comm/rendezvous_result.hpp>
#include <hetero/comm/rendezvous_socket.hpp>
#include <hetero/core/error.hpp>
#include <hetero/core/hash.hpp>

namespace hetero::detail {

/// Every rank but 0: finds the leader, waits for the others and connects to them.
class rendezvous_worker {
 public:
  rendezvous_worker(boost::asio::io_context& context, const rendezvous_options& options)
      : context_{context}, options_{options}, deadline_{rendezvous_clock::now() + options.timeout} {}

  /// Blocks until this rank is connected to every other.
  /// @throws error what the leader says; rendezvous when it does not answer in time
  [[nodiscard]] rendezvous_result gather() {
    std::chrono::milliseconds pause{1};
    while (true) {
      const auto next = std::min(deadline_, rendezvous_clock::now() + pause);
      if (try_leader(next)) break;
      require_time();
      ::poll(nullptr, 0, poll_timeout(next, pause));  // until the leader is up
      pause = std::min(2 * pause, std::chrono::milliseconds{50});
    }
    welcome_message table;
    require(table.decode(expect(rendezvous_kind::welcome), options_.world_size), errc::rendezvous,
            "the leader's list of ranks cannot be read");
    rendezvous_mesh mesh{context_, options_.rank, table, leader_at_, deadline_};
    const std::string why = mesh.run(listeners_, leader_->fd(), [&] { (void)expect(rendezvous_kind::refused); });
    if (!why.empty()) fail(why);
    leader_->send(rendezvous_kind::ready, {}, deadline_);
    (void)expect(rendezvous_kind::go);
    return mesh.take(leader_->release());
  }

  /// Calls every address that may be the leader's, all at once: one that leads nowhere holds up none of the others.
  /// False when none has answered until then; calls that are still on their way stay so.
  /// @throws error what the leader says; network, unauthenticated
  bool try_leader(rendezvous_clock::time_point until) {
    for (const tcp::endpoint& c : candidates_now()) {
      const bool calling = std::any_of(calls_.begin(), calls_.end(), [&](const call& d) { return d.dial.to() == c; });
      if (!calling) calls_.push_back({tcp_dial{context_, c}, rendezvous_clock::now() + patience});
    }
    do {
      std::vector<pollfd> polled;
      for (call& c : calls_) {
        if (c.dial.pending() && rendezvous_clock::now() >= c.until) c.dial.give_up();
        polled.push_back({c.dial.pending() ? c.dial.fd() : -1, POLLOUT, 0});
      }
      const bool settled = std::any_of(calls_.begin(), calls_.end(), [](const auto& c) { return !c.dial.pending(); });
      ::poll(polled.data(), polled.size(), settled ? 0 : poll_timeout(until, patience));
      for (std::size_t i = 0; i < calls_.size(); ++i) {
        if (polled[i].revents != 0) calls_[i].dial.look();
        if (!calls_[i].dial.pending() && hear(calls_[i].dial)) return true;
      }
      std::erase_if(calls_, [](const call& c) { return !c.dial.pending(); });
    } while (!calls_.empty() && rendezvous_clock::now() < until);
    return false;
  }

 private:
  static constexpr std::chrono::seconds patience{2};

  struct call {
    tcp_dial dial;
    rendezvous_clock::time_point until;
  };

  /// A call that has ended, well or not. True when it reached the leader.
  bool hear(tcp_dial& dial) {
    if (auto socket = dial.take()) {
      introduce(std::move(*socket), dial.to());
    } else {
      failures_[endpoint_text(dial.to())] = dial.reason();
    }
    return leader_.has_value();
  }

  /// Where the leader may be: what was agreed, or what the port file says now.
  [[nodiscard]] std::vector<tcp::endpoint> candidates_now() {
    if (options_.port_file.empty()) {
      if (!candidates_.empty()) return candidates_;
      job_ = options_.job;
      const auto addresses = resolve(options_.host, deadline_);
      check_reach(addresses, options_.host, options_.allow_unauthenticated);
      require_family(context_, addresses, options_.host);
      for (const std::uint16_t port : options_.ports) {
        for (const auto& a : addresses) candidates_.emplace_back(a, port);
      }
      return candidates_;
    }
    const auto file = port_file::read(options_.port_file);
    const std::string about = "the port file '" + options_.port_file + '\'';
    if (!file) {
      failures_ = {{about, "is not there yet"}};
      return candidates_ = {};
    }
    if (file_ == file) return candidates_;
    file_ = file;
    failures_.clear();
    candidates_.clear();
    calls_.clear();
    job_ = file->job(options_.job);
    for (const port_file::place& place : file->places) {
      // Who may not speak with other machines looks only for a leader on this one.
      try {
        const auto addresses = resolve(place.host, deadline_);
        for (const auto& a : addresses) {
          if (options_.allow_unauthenticated || a.is_loopback()) candidates_.emplace_back(a, place.port);
        }
        if (candidates_.empty()) check_reach(addresses, place.host, false);
      } catch (const error& e) {
        failures_[place.host] = e.message();  // an old file may name anything; a new one replaces it
      }
    }
    return candidates_;
  }

  /// Says hello to whatever listens at an address; keeps the link when it is our leader.
  void introduce(tcp_socket socket, const tcp::endpoint& at) {
    const std::string where = endpoint_text(at);
    const auto until = std::min(deadline_, rendezvous_clock::now() + patience);
    if (listeners_.empty()) {
      boost::system::error_code ec;
      listen_failure none;
      // Others of this job come by any way; without permission only those of this host do.
      listeners_ =
          listen_at(context_,
                    options_.allow_unauthenticated ? wildcards()
                                                   : std::vector{ip_address{socket.get().local_endpoint(ec).address()}},
                    0, none);
      require(!listeners_.empty(), errc::network, [&] {
        return "no port to listen on is left at " + none.at.address().to_string() + " (" + none.ec.message() + ")";
      });
    }
    rendezvous_link link{std::move(socket)};
    link.send(rendezvous_kind::hello, hello().encode(), until);
    const auto answer = link.await(max_leader_bytes, until);
    if (answer == rendezvous_link::state::partial) {
      // The deadline may have left it no time; what was learned earlier then says more.
      listeners_.clear();
      failures_.try_emplace(where, "something listens there and does not answer");
      return;
    }
    if (answer != rendezvous_link::state::message) {
      return forget(where, "something listens there that is not a leader of this version");
    }
    if (link.kind() == rendezvous_kind::refused) throw_refusal(link.body());
    if (link.kind() != rendezvous_kind::registered) return forget(where, "the leader of another job listens there");
    body_reader in{link.body()};
    // The leader's clock counts from here on; a little more, so that its reason arrives.
    const auto left = std::chrono::milliseconds{in.number<std::int64_t>()};
    deadline_ = rendezvous_clock::now() + std::min(left, options_.timeout) + std::chrono::seconds{2};
    leader_at_ = at;
    leader_ = std::move(link);
  }

  [[nodiscard]] hello_message hello() {
    hello_message h;
    h.rank = options_.rank;
    h.world_size = options_.world_size;
    h.port = listeners_.front().port();
    h.open_to_others = options_.allow_unauthenticated;
    h.host_id = options_.host_id != 0 ? options_.host_id : host_id();
    h.settings_hash = stable_hash{}.add(options_.settings).value();
    h.job = job_;
    h.settings = options_.settings.substr(0, hello_message::max_settings_text);
    if (!h.open_to_others) return h;
    for (const tcp::endpoint& c : candidates_) {
      const auto own = source_for(context_, c.address());
      if (!own || own->is_loopback() || h.addresses.size() == hello_message::max_addresses) continue;
      const std::string text = plain_text(*own);
      if (std::find(h.addresses.begin(), h.addresses.end(), text) == h.addresses.end()) h.addresses.push_back(text);
    }
    return h;
  }

  void forget(const std::string& where, const char* why) {
    failures_[where] = why;
    listeners_.clear();
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

  /// Reports to the leader, so that every rank learns the reason, and ends.
  [[noreturn]] void fail(const std::string& text) {
    leader_->send(rendezvous_kind::failed, refusal_message{errc::network, text}.encode(), deadline_);
    throw error{errc::network, text, {rank_id{options_.rank}, {}}};
  }

  [[noreturn]] void throw_refusal(const std::string& body) const {
    const refusal_message m = refusal_message::decode(body);
    throw error{m.code, m.text, {rank_id{options_.rank}, {}}};
  }

  void require_time() {
    if (rendezvous_clock::now() < deadline_) return;
    for (call& c : calls_) failures_.try_emplace(endpoint_text(c.dial.to()), "no answer");
    std::string why;
    for (const auto& [where, reason] : failures_) why += (why.empty() ? "" : "; ") + where + ": " + reason;
    std::vector<ip_address> named;
    for (const tcp::endpoint& c : candidates_) {
      if (c.address().is_loopback() || std::find(named.begin(), named.end(), c.address()) != named.end()) continue;
      named.push_back(c.address());
      why += "; to " + c.address().to_string() + ' ' + route_text(context_, c.address());
    }
    throw error{errc::rendezvous,
                "rank " + std::to_string(options_.rank) + " did not find rank 0 within " +
                    std::to_string(options_.timeout.count()) + " ms (" + why + "); start rank 0 there, or correct " +
                    (options_.port_file.empty() ? "MASTER_ADDR and MASTER_PORT" : "HETERO_PORT_FILE"),
                {rank_id{options_.rank}, {}}};
  }

  boost::asio::io_context& context_;
  const rendezvous_options& options_;
  rendezvous_clock::time_point deadline_;
  std::vector<tcp::endpoint> candidates_;
  std::optional<port_file> file_;  // what `candidates_` were read from
  std::string job_;
  std::vector<call> calls_;
  std::map<std::string, std::string> failures_;  // what each address answered last
  std::vector<tcp_listener> listeners_;
  std::optional<rendezvous_link> leader_;
  tcp::endpoint leader_at_;
};

}  // namespace hetero::detail
