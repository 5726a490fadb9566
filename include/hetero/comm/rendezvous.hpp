// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include <hetero/comm/rendezvous_gather.hpp>
#include <hetero/comm/rendezvous_options.hpp>
#include <hetero/comm/shared_memory_setup.hpp>
#include <hetero/comm/tcp_transport.hpp>
#include <hetero/core/config.hpp>
#include <hetero/core/usable_cores.hpp>

namespace hetero {

/// Finds the other ranks and connects every pair of them. Blocks until all are there. Listens only as long as that
/// takes.
/// @throws error rendezvous (a rank is missing at the deadline, claimed twice or out of range; a port is taken),
/// mismatch (world size, settings or version differ), unauthenticated (an address beyond this host that was not
/// allowed), network (an address that cannot be resolved, used or reached), io (the port file); what concerns several
/// ranks with the same text on every rank
[[nodiscard]] HETERO_INLINE std::shared_ptr<transport> tcp_rendezvous(const rendezvous_options& options) {
  auto context = std::make_shared<boost::asio::io_context>(1);
  detail::rendezvous_result result = detail::gather_ranks(*context, options);
  for (std::size_t r = 0; r < result.streams.size(); ++r) {
    if (result.host_ids[r] != result.host_ids[options.rank]) continue;
    for (detail::tcp_socket& socket : result.streams[r]) socket.expect_no_wire();
  }
  auto carrier = std::make_shared<detail::tcp_transport>(std::move(context), options.rank, std::move(result.streams));
  if (options.world_size > 1) {
    const auto beside = std::count(result.host_ids.begin(), result.host_ids.end(), result.host_ids[options.rank]);
    if (static_cast<std::size_t>(beside) > usable_cores()) carrier->set_patience({});
    const bool wanted = options.shared_memory && detail::shared_memory_wanted();
    world setup = world{carrier}.channel("shared memory");
    setup.set_timeout(options.timeout);
    try {
      auto links = detail::link_through_memory(setup, result.host_ids, result.token, wanted);
      for (auto& [peer, link] : links.by_rank) carrier->attach(peer, std::move(link));
    } catch (const error&) {
      // The world has failed already, perhaps in the first operation of a faster rank: ours will say so too.
    }
  }
  return carrier;
}

}  // namespace hetero
