// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hetero/comm/algorithm/root_agreement.hpp>
#include <hetero/comm/operation.hpp>

namespace hetero::detail {

/// One round: the root sends part r of `all`, bytes [offsets[r], offsets[r+1]), straight to rank r, all at once. n-1
/// messages and S minus the own bytes out of the root, and n messages that agree on it. The root's own part is not
/// touched.
template <exchange Exchange>
void direct_scatter(Exchange& ex, const std::byte* all, std::span<std::byte> own, std::span<const std::size_t> offsets,
                    std::uint32_t root) {
  const std::uint32_t n = ex.world_size();
  if (n == 1) return;
  ex.count_round();
  root_agreement<Exchange> agreement{ex};
  if (ex.rank() != root) {
    transfer receive;
    ex.start_recv(receive, own.data(), own.size(), root);
    ex.finish(receive);
    return agreement.finish();
  }
  std::vector<transfer> sends(n);
  for (std::uint32_t k = 1; k < n; ++k) {
    const std::uint32_t to = (root + k) % n;
    ex.start_send(sends[to], all + offsets[to], offsets[to + 1] - offsets[to], to);
  }
  for (transfer& t : sends) ex.finish(t);
  agreement.finish();
}

}  // namespace hetero::detail
