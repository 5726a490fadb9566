// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include <hetero/comm/environment.hpp>
#include <hetero/comm/self.hpp>
#include <hetero/comm/tcp_rendezvous.hpp>
#include <hetero/comm/world.hpp>

namespace hetero {

/// How to join; equal on all ranks.
struct join_options {
  std::string settings;  ///< what must be equal on all ranks, printable: the options of the program, a model's hash
  std::chrono::milliseconds timeout{30'000};  ///< until every rank must be there
  bool allow_unauthenticated = false;  ///< permits a MASTER_ADDR that other machines reach, without any protection
};

/// The world that the environment names (see `place_in_environment`), or the world of one when it names none.
/// Collective over all processes of the job; blocks until they are there.
/// @throws error rendezvous, mismatch, unauthenticated, network; each says what it found and what would work
[[nodiscard]] inline world join(const join_options& options = {}) {
  const auto place = place_in_environment();
  if (!place || (place->world_size == 1 && place->rank == 0)) return self();
  rendezvous_options r;
  r.rank = place->rank;
  r.world_size = place->world_size;
  r.host = place->host;
  r.ports = place->ports;
  r.job = place->job;
  r.settings = options.settings;
  r.timeout = options.timeout;
  r.allow_unauthenticated = options.allow_unauthenticated;
  return world{tcp_rendezvous(r)};
}

}  // namespace hetero
