// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <hetero/comm/operation.hpp>

namespace hetero::detail {

/// Up to this many gathered bytes the rounds cost more than the copies through scratch.
inline constexpr std::size_t doubling_all_gather_bytes = std::size_t{32} << 10U;

/// all_gather in ceil(log2 n) rounds for any n: in the round of distance d each rank passes the min(d, n-d) parts that
/// it has from itself backwards to rank+d. n-1 parts in and out, as in the ring, with one message per round and S bytes
/// of scratch. Part r is bytes [offsets[r], offsets[r+1]) of `data`, the own one in place on entry.
template <exchange Exchange>
void doubling_all_gather(Exchange& ex, std::byte* data, std::span<const std::size_t> offsets) {
  const std::uint32_t n = ex.world_size();
  const std::uint32_t rank = ex.rank();
  if (n == 1) return;
  const auto rank_at = [&](std::uint32_t place) { return (rank + n - place) % n; };
  std::vector<std::size_t> places(n + 1);  // scratch holds the parts of rank, rank-1, rank-2, ...
  for (std::uint32_t p = 0; p < n; ++p) places[p + 1] = places[p] + offsets[rank_at(p) + 1] - offsets[rank_at(p)];
  const auto scratch = std::make_unique_for_overwrite<std::byte[]>(places[n]);
  std::copy_n(data + offsets[rank], places[1], scratch.get());
  for (std::uint32_t distance = 1; distance < n; distance *= 2) {
    const std::uint32_t parts = std::min(distance, n - distance);
    ex.count_round();
    transfer receive;
    transfer send;
    ex.start_recv(receive, scratch.get() + places[distance], places[distance + parts] - places[distance],
                  rank_at(distance));
    ex.start_send(send, scratch.get(), places[parts], (rank + distance) % n);
    ex.finish(receive);
    ex.finish(send);
  }
  for (std::uint32_t p = 1; p < n; ++p) {
    std::copy_n(scratch.get() + places[p], places[p + 1] - places[p], data + offsets[rank_at(p)]);
  }
}

}  // namespace hetero::detail
