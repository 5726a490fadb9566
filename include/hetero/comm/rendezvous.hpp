// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/rendezvous_leader.hpp>
#include <hetero/comm/rendezvous_options.hpp>
#include <hetero/comm/rendezvous_worker.hpp>
#include <hetero/comm/tcp_transport.hpp>
#include <hetero/core/config.hpp>

namespace hetero {

namespace detail {

/// Listens at every address of the host, on the first port that is free at all of them.
/// @throws error rendezvous, network
[[nodiscard]] inline std::vector<tcp_listener> listen_as_leader(boost::asio::io_context& context,
                                                                const rendezvous_options& options) {
  const auto addresses = resolve(context, options.host);
  check_reach(addresses, options.host, options.allow_unauthenticated);
  std::string why;
  bool in_use = false;
  for (const std::uint16_t candidate : options.ports) {
    std::vector<tcp_listener> listeners;
    bool taken = false;
    for (const auto& a : addresses) {
      const std::uint16_t port = listeners.empty() ? candidate : listeners.front().port();
      if (auto l = tcp_listener::open(context, {a, port}, why, taken)) listeners.push_back(std::move(*l));
    }
    if (!taken && !listeners.empty()) return listeners;
    in_use = in_use || taken;
  }
  if (in_use) {
    // Perhaps another process took this one for rank 0; then its leader must hear that there are two.
    rendezvous_worker other{context, options};
    for (const auto& a : addresses) other.introduce_to({a, options.ports.back()});
    throw error{errc::rendezvous,
                "rank 0 cannot listen at " + why + "; another program has the port, set MASTER_PORT to a free one",
                {rank_id{0}, {}}};
  }
  throw error{errc::network,
              "rank 0 cannot listen at " + why + "; MASTER_ADDR must be an address of the host that runs rank 0",
              {rank_id{0}, {}}};
}

}  // namespace detail

/// Finds the other ranks and connects every pair of them. Blocks until all are there. Listens only as long as that
/// takes.
/// @throws error rendezvous (a rank is missing at the deadline, claimed twice or out of range), mismatch (world size,
/// settings or version differ), unauthenticated (an address beyond this host that was not allowed), network; the first
/// two with the same text on every rank
[[nodiscard]] HETERO_INLINE std::shared_ptr<transport> tcp_rendezvous(const rendezvous_options& options) {
  require(options.world_size > 0 && !options.ports.empty(), errc::rendezvous,
          "a rendezvous needs a world size of at least 1 and a port");
  auto context = std::make_shared<boost::asio::io_context>(1);
  std::vector<std::optional<detail::tcp_socket>> sockets;
  if (options.rank != 0) {
    // A rank that cannot exist still says hello, so that all ranks learn of it; it does not wait for long.
    rendezvous_options patience = options;
    const bool outside = options.rank >= options.world_size;
    if (outside) patience.timeout = std::min(options.timeout, std::chrono::milliseconds{2000});
    try {
      sockets = detail::rendezvous_worker{*context, patience}.gather();
    } catch (const error&) {
      require(!outside, errc::rendezvous, [&] {
        return "rank " + std::to_string(options.rank) + " is outside a world of " + std::to_string(options.world_size) +
               "; ranks are 0 to " + std::to_string(options.world_size - 1);
      });
      throw;
    }
  } else if (options.world_size > 1) {
    std::vector<detail::tcp_listener> listeners = detail::listen_as_leader(*context, options);
    if (options.on_listening) options.on_listening(listeners.front().port());
    sockets = detail::rendezvous_leader{std::move(listeners), options}.gather();
  } else {
    sockets.resize(1);
  }
  return std::make_shared<detail::tcp_transport>(std::move(context), options.rank, std::move(sockets));
}

}  // namespace hetero
