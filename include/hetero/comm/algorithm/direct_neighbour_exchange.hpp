// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <hetero/comm/neighbour.hpp>
#include <hetero/comm/operation.hpp>

namespace hetero::detail {

/// One round: all messages of all neighbours are posted at once. One message per neighbour each way, of exactly its
/// bytes. `describe(view)` runs before each message; see operation::describe.
template <exchange Exchange, class Describe>
void direct_neighbour_exchange(Exchange& ex, std::span<const neighbour> neighbours, Describe describe) {
  if (neighbours.empty()) return;
  ex.count_round();
  std::vector<transfer> receives(neighbours.size());
  std::vector<transfer> sends(neighbours.size());
  for (std::size_t i = 0; i < neighbours.size(); ++i) {
    describe(neighbours[i].in);
    ex.start_recv(receives[i], static_cast<std::byte*>(neighbours[i].in.data()), neighbours[i].in.size_bytes(),
                  index_of(neighbours[i].peer));
  }
  for (std::size_t i = 0; i < neighbours.size(); ++i) {
    describe(neighbours[i].out);
    ex.start_send(sends[i], static_cast<const std::byte*>(neighbours[i].out.data()), neighbours[i].out.size_bytes(),
                  index_of(neighbours[i].peer));
  }
  for (transfer& t : receives) ex.finish(t);
  for (transfer& t : sends) ex.finish(t);
}

}  // namespace hetero::detail
