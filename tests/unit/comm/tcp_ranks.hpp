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

/// Ranks as threads of this process, each with a transport of its own as if it were a process, through a true
/// rendezvous on a free port. `like` says how they are connected.
inline void run_joined_ranks(const rendezvous_options& like, std::uint32_t ranks,
                             const std::function<void(world&)>& body) {
  std::promise<std::uint16_t> listening;
  const std::shared_future<std::uint16_t> port = listening.get_future().share();
  detail::run_threads(
      ranks,
      [&](std::uint32_t rank) {
        rendezvous_options options = like;
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

/// One stream between every two ranks.
inline void run_tcp_ranks(std::uint32_t ranks, const std::function<void(world&)>& body) {
  rendezvous_options like;
  like.shared_memory = false;
  run_joined_ranks(like, ranks, body);
}

/// Several streams between every two ranks, over which large messages are cut.
inline void run_striped_ranks(std::uint32_t ranks, const std::function<void(world&)>& body) {
  rendezvous_options like;
  like.shared_memory = false;
  like.local_streams = 3;
  run_joined_ranks(like, ranks, body);
}

/// Messages go through shared memory.
inline void run_shared_memory_ranks(std::uint32_t ranks, const std::function<void(world&)>& body) {
  run_joined_ranks({}, ranks, body);
}

}  // namespace hetero::test
