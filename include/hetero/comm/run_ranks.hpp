// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hetero/comm/in_process.hpp>
#include <hetero/comm/world.hpp>

namespace hetero {

namespace detail {

/// Runs `body(rank)` on one thread per rank; the first exception is handed to `on_error` and rethrown after all ended.
template <class Body, class OnError> void run_threads(std::uint32_t ranks, Body&& body, OnError&& on_error) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto guarded = [&](std::uint32_t rank) {
    try {
      body(rank);
    } catch (...) {
      {
        // Recorded before the others hear of it: what they throw then is a consequence.
        const std::lock_guard lock{mutex};
        if (!first) first = std::current_exception();
      }
      on_error(rank, std::current_exception());
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 1; rank < ranks; ++rank) threads.emplace_back(guarded, rank);
  guarded(0);
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

[[nodiscard]] inline std::string what_of(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace detail

/// Runs `body(world&)` or `body(world&, rank_id)` on `ranks` threads that form an in-process world. Blocks until all
/// have returned. An exception of one rank aborts the others and is rethrown here, the root cause rather than its
/// consequences. Rank 0 runs on the calling thread.
/// @throws error invalid_argument when `ranks` is 0; whatever `body` throws first
template <class Body>
requires std::invocable<Body&, world&> || std::invocable<Body&, world&, rank_id>
void run_ranks(std::uint32_t ranks, Body&& body) {
  std::vector<world> worlds;
  for (auto& carrier : in_process_transports(ranks)) worlds.emplace_back(std::move(carrier));
  detail::run_threads(
      ranks,
      [&](std::uint32_t rank) {
        if constexpr (std::invocable<Body&, world&, rank_id>) {
          body(worlds[rank], rank_id{rank});
        } else {
          body(worlds[rank]);
        }
      },
      [&](std::uint32_t rank, const std::exception_ptr& e) { worlds[rank].abort(detail::what_of(e)); });
}

}  // namespace hetero
