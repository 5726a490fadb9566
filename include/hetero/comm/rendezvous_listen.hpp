// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <hetero/comm/rendezvous_address.hpp>
#include <hetero/comm/rendezvous_options.hpp>
#include <hetero/comm/rendezvous_port_file.hpp>
#include <hetero/comm/rendezvous_socket.hpp>
#include <hetero/comm/rendezvous_worker.hpp>
#include <hetero/core/error.hpp>

namespace hetero::detail {

/// Somebody else may listen where rank 0 should be: another process took itself for rank 0, and its leader must hear
/// that there are two.
/// @throws error rendezvous, the same on every rank, when that is so
inline void challenge(boost::asio::io_context& context, const rendezvous_options& options,
                      const std::vector<std::uint16_t>& ports) {
  rendezvous_options rival = options;
  rival.ports = ports;
  rival.timeout = std::min(options.timeout, std::chrono::milliseconds{500});
  (void)rendezvous_worker{context, rival}.try_leader(rendezvous_clock::now() + rival.timeout);
}

[[noreturn]] inline void throw_cannot_listen(const rendezvous_options& options, const listen_failure& why,
                                             const std::vector<std::uint16_t>& taken) {
  const std::string what = "rank 0 cannot listen at " + endpoint_text(why.at) + ": " + why.ec.message();
  if (!taken.empty()) {
    std::string ports;
    for (const std::uint16_t p : taken) ports += (ports.empty() ? "" : ", ") + std::to_string(p);
    throw error{errc::rendezvous,
                what + "; another program has port" + (taken.size() == 1 ? " " : "s ") + ports +
                    ", set MASTER_PORT to a free one",
                {rank_id{0}, {}}};
  }
  if (why.ec == boost::asio::error::access_denied) {
    throw error{errc::network, what + "; set MASTER_PORT to a number above 1023", {rank_id{0}, {}}};
  }
  throw error{errc::network,
              what + "; MASTER_ADDR '" + options.host + "' must be an address of the host that runs rank 0",
              {rank_id{0}, {}}};
}

/// Rank 0's ears: on the first free port, where everybody looks for it.
struct leader_place {
  std::vector<tcp_listener> listeners;
  std::string note;  // what may be wrong when nobody comes
};

/// Listens at every address of the host and, where other machines may come, at every address of this machine: another
/// one may know it by an address that a name does not have here.
/// @throws error rendezvous, network, unauthenticated
[[nodiscard]] inline leader_place listen_as_leader(boost::asio::io_context& context,
                                                   const rendezvous_options& options) {
  const auto addresses = resolve(options.host, rendezvous_clock::now() + options.timeout);
  check_reach(addresses, options.host, options.allow_unauthenticated);
  require_family(context, addresses, options.host);
  leader_place place;
  const bool here = std::any_of(addresses.begin(), addresses.end(), [&](const auto& a) { return is_own(context, a); });
  if (!here) {
    place.note = "; MASTER_ADDR '" + options.host + "' is " + addresses.front().to_string() +
                 ", which no interface of rank 0's host has";
    challenge(context, options, options.ports);
  }
  if (!options.port_file.empty() && port_file::read(options.port_file)) challenge(context, options, options.ports);
  listen_failure why;
  std::vector<std::uint16_t> taken;
  for (const std::uint16_t port : options.ports) {
    place.listeners = listen_at(context, options.allow_unauthenticated ? wildcards() : addresses, port, why);
    if (!place.listeners.empty()) return place;
    if (why.in_use()) taken.push_back(port);
  }
  if (!taken.empty() && options.port_file.empty()) challenge(context, options, {taken.back()});
  throw_cannot_listen(options, why, taken);
}

}  // namespace hetero::detail
