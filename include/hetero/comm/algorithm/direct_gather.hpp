// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hetero/comm/algorithm/root_agreement.hpp>
#include <hetero/comm/operation.hpp>

namespace hetero::detail {

/// One round: every rank sends its part straight to the root, which takes them as they come. `all` (root only) holds
/// part r at bytes [offsets[r], offsets[r+1]), the root's own in place. n-1 messages and S minus the own bytes into the
/// root, and n messages that agree on it. A tree would bring the root the same bytes in fewer messages and move those
/// of inner ranks up to log2(n) times.
template <exchange Exchange>
void direct_gather(Exchange& ex, std::span<const std::byte> own, std::byte* all, std::span<const std::size_t> offsets,
                   std::uint32_t root) {
  const std::uint32_t n = ex.world_size();
  if (n == 1) return;
  ex.count_round();
  root_agreement<Exchange> agreement{ex};
  if (ex.rank() != root) {
    transfer send;
    ex.start_send(send, own.data(), own.size(), root);
    ex.finish(send);
    return agreement.finish();
  }
  std::vector<transfer> receives(n);
  for (std::uint32_t k = 1; k < n; ++k) {
    const std::uint32_t from = (root + k) % n;
    ex.start_recv(receives[from], all + offsets[from], offsets[from + 1] - offsets[from], from);
  }
  for (transfer& t : receives) ex.finish(t);
  agreement.finish();
}

}  // namespace hetero::detail
