// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>

#include <hetero/comm/run_ranks.hpp>
#include <hetero/comm/tcp_rendezvous.hpp>
#include <hetero/comm/world.hpp>

namespace hetero::test {

/// Ranks as threads of this process, each with a TCP transport of its own, through a true rendezvous on a free port.
inline void run_tcp_ranks(std::uint32_t ranks, const std::function<void(world&)>& body) {
  std::promise<std::uint16_t> listening;
  const std::shared_future<std::uint16_t> port = listening.get_future().share();
  detail::run_threads(
      ranks,
      [&](std::uint32_t rank) {
        rendezvous_options options;
        options.rank = rank;
        options.world_size = ranks;
        options.on_listening = [&](std::uint16_t p) { listening.set_value(p); };
        options.ports = {rank == 0 ? std::uint16_t{0} : port.get()};
        world w{tcp_rendezvous(options)};
        try {
          body(w);
        } catch (...) {
          w.abort(detail::what_of(std::current_exception()));
          throw;
        }
      },
      [](std::uint32_t, const std::exception_ptr&) {});
}

}  // namespace hetero::test
