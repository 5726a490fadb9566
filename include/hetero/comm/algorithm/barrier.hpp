// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <hetero/comm/operation.hpp>

namespace hetero::detail {

/// Dissemination barrier: in round k each rank hears from the one 2^k before it; ceil(log2 n) rounds without payload.
template <exchange Exchange> void dissemination_barrier(Exchange& ex) {
  const std::uint32_t n = ex.world_size();
  for (std::uint32_t distance = 1; distance < n; distance *= 2) {
    ex.count_round();
    transfer receive;
    transfer send;
    ex.start_recv(receive, nullptr, 0, (ex.rank() + n - distance) % n);
    ex.start_send(send, nullptr, 0, (ex.rank() + distance) % n);
    ex.finish(receive);
    ex.finish(send);
  }
}

}  // namespace hetero::detail
