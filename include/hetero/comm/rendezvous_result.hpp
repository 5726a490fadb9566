// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <hetero/comm/tcp_socket.hpp>

namespace hetero::detail {

/// What a rendezvous brings: the connections of this rank, and what all ranks know of each other.
struct rendezvous_result {
  std::vector<std::vector<tcp_socket>> streams;  ///< by rank, the own one empty; [r][0] is the primary
  std::vector<std::uint64_t> host_ids;           ///< by rank; equal where two ranks can share memory
  std::uint64_t token = 0;                       ///< equal on all ranks of this world, and no other world has it
};

}  // namespace hetero::detail
