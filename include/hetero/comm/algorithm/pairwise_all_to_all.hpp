// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <hetero/comm/operation.hpp>

namespace hetero::detail {

/// Part r of `in` goes to rank r and part r of `out` comes from it; parts are bytes [offsets[r], offsets[r+1]) and the
/// own ones stay untouched. In round k each rank sends to rank+k and receives from rank-k: n-1 rounds and messages, and
/// a rank moves what it keeps for others once. Empty parts travel too, so that ranks that disagree find out.
/// `describe(peer, sending)` runs before each message; see operation::describe.
template <exchange Exchange, class Describe>
void pairwise_all_to_all(Exchange& ex, const std::byte* in, std::span<const std::size_t> in_offsets, std::byte* out,
                         std::span<const std::size_t> out_offsets, Describe describe) {
  constexpr std::uint32_t ahead = 4;  // messages in flight each way, so that one slow peer does not hold up the others
  const std::uint32_t n = ex.world_size();
  const std::uint32_t rank = ex.rank();
  std::array<transfer, ahead> sends;
  std::array<transfer, ahead> receives;
  for (std::uint32_t k = 1; k < n + ahead; ++k) {
    transfer& receive = receives[k % ahead];
    transfer& send = sends[k % ahead];
    ex.finish(receive);
    ex.finish(send);
    if (k >= n) continue;
    ex.count_round();
    const std::uint32_t from = (rank + n - k) % n;
    const std::uint32_t to = (rank + k) % n;
    describe(from, false);
    ex.start_recv(receive, out + out_offsets[from], out_offsets[from + 1] - out_offsets[from], from);
    describe(to, true);
    ex.start_send(send, in + in_offsets[to], in_offsets[to + 1] - in_offsets[to], to);
  }
}

}  // namespace hetero::detail
