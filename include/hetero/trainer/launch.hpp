// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>

#include <hetero/comm/environment.hpp>
#include <hetero/comm/join.hpp>
#include <hetero/comm/run_ranks.hpp>
#include <hetero/comm/self.hpp>
#include <hetero/device/pool.hpp>

namespace hetero {

/// One rank of a job on a pool: its world, its device, and what the user called that device.
struct pool_member {
  hetero::world& world;
  any_device device;
  device_spec spec;
};

/// Runs `body(pool_member&)` once per device of the pool. Started alone, this process drives all devices, each as a rank on
/// a thread of its own. Started by a launcher as one of several processes, it joins them and drives the device of the pool
/// at its place (local rank modulo pool size). Blocks until the body has returned; its first exception is rethrown.
/// @throws error rendezvous, network, unauthenticated as `join`; invalid_argument for an empty pool
template <std::invocable<pool_member&> Body>
void run_pool(const device_pool& pool, Body&& body, const join_options& options = {}) {
  require(!pool.empty(), errc::invalid_argument, "the pool is empty; write devices such as cpu:1,cpu:1@0.33");
  const auto start = [&](world& w, std::size_t place) {
    pool_member member{w, make_device(pool, place), pool[place]};
    body(member);
  };
  const auto place = place_in_environment();
  if (place && place->world_size > 1) {
    world w = join(options);
    start(w, place->local_rank % pool.size());
  } else if (pool.size() == 1) {
    world w = self();
    start(w, 0);
  } else {
    run_ranks(static_cast<std::uint32_t>(pool.size()), [&](world& w, rank_id rank) { start(w, index_of(rank)); });
  }
}

}  // namespace hetero
