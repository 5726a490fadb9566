// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include <hetero/comm/rendezvous_host.hpp>
#include <hetero/comm/rendezvous_leader.hpp>
#include <hetero/comm/rendezvous_listen.hpp>
#include <hetero/comm/rendezvous_options.hpp>
#include <hetero/comm/rendezvous_port_file.hpp>
#include <hetero/comm/rendezvous_result.hpp>
#include <hetero/comm/rendezvous_worker.hpp>
#include <hetero/core/error.hpp>

namespace hetero::detail {

/// Rank 0's part of a rendezvous.
[[nodiscard]] inline rendezvous_result lead_ranks(boost::asio::io_context& context, const rendezvous_options& options) {
  leader_place place = listen_as_leader(context, options);
  const std::uint16_t port = place.listeners.front().port();
  std::string job = options.job;
  std::optional<published_port> published;
  if (!options.port_file.empty()) {
    const port_file file{places_of_leader(options.host, port, options.allow_unauthenticated), to_hex(random_number())};
    job = file.job(options.job);
    published.emplace(options.port_file, file);
  }
  if (options.on_listening) options.on_listening(port);
  return rendezvous_leader{std::move(place.listeners), options, std::move(job), std::move(place.note)}.gather();
}

/// The part of every other rank. A rank that cannot exist still says hello, so that all ranks learn of it; it does not
/// wait for long.
[[nodiscard]] inline rendezvous_result follow_leader(boost::asio::io_context& context,
                                                     const rendezvous_options& options) {
  if (options.rank < options.world_size) return rendezvous_worker{context, options}.gather();
  rendezvous_options hurried = options;
  hurried.timeout = std::min(options.timeout, std::chrono::milliseconds{2000});
  try {
    return rendezvous_worker{context, hurried}.gather();
  } catch (const error&) {
    throw error{errc::rendezvous,
                "rank " + std::to_string(options.rank) + " is outside a world of " +
                    std::to_string(options.world_size) + "; ranks are 0 to " + std::to_string(options.world_size - 1),
                {rank_id{options.rank}, {}}};
  }
}

/// Finds the other ranks and connects every pair of them. Blocks until all are there.
/// @throws error as `tcp_rendezvous`
[[nodiscard]] inline rendezvous_result gather_ranks(boost::asio::io_context& context,
                                                    const rendezvous_options& options) {
  require(options.world_size > 0 && (!options.ports.empty() || !options.port_file.empty()), errc::rendezvous,
          "a rendezvous needs a world size of at least 1 and a port");
  const auto most = std::max(options.streams, options.local_streams);
  const auto least = std::min(options.streams, options.local_streams);
  require(least > 0 && most <= welcome_message::max_streams, errc::rendezvous, [&] {
    return "two ranks can have 1 to " + std::to_string(welcome_message::max_streams) + " connections, not " +
           std::to_string(least == 0 ? 0 : most);
  });
  if (options.rank != 0) return follow_leader(context, options);
  if (options.world_size > 1) return lead_ranks(context, options);
  rendezvous_result alone;
  alone.streams.resize(1);
  alone.host_ids = {options.host_id != 0 ? options.host_id : host_id()};
  alone.token = random_number();
  return alone;
}

}  // namespace hetero::detail
