// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include <hetero/comm/environment.hpp>
#include <hetero/comm/probe.hpp>
#include <hetero/comm/self.hpp>
#include <hetero/comm/tcp_rendezvous.hpp>
#include <hetero/comm/world.hpp>

namespace hetero {

/// How to join; equal on all ranks.
struct join_options {
  std::string settings{};  ///< what must be equal on all ranks, printable: the options of the program, a model's hash
  std::chrono::milliseconds timeout{30'000};  ///< until every rank must be there
  bool allow_unauthenticated = false;  ///< permits a MASTER_ADDR that other machines reach, without any protection
  std::string port_file{};  ///< seen by every rank, rank 0 writes its port there; goes before HETERO_PORT_FILE
  bool self_test = true;    ///< try every pair of ranks once; rank 0 names a link much slower than the others on stderr
};

/// The world that the environment names (see `place_in_environment`), or the world of one when it names none.
/// Collective over all processes of the job; blocks until they are there.
/// @throws error rendezvous, mismatch, unauthenticated, network, io; each says what it found and what would work
[[nodiscard]] inline world join(const join_options& options = {}) {
  const auto place = place_in_environment();
  if (!place || (place->world_size == 1 && place->rank == 0)) return self();
  rendezvous_options r;
  r.rank = place->rank;
  r.world_size = place->world_size;
  r.host = place->host;
  r.ports = place->ports;
  r.port_file = options.port_file.empty() ? place->port_file : options.port_file;
  // Nobody agreed on a port, so that the system may choose one that is free.
  if (!options.port_file.empty() && !detail::process_environment("MASTER_PORT")) r.ports = {0};
  r.job = place->job;
  r.settings = options.settings;
  r.timeout = options.timeout;
  r.allow_unauthenticated = options.allow_unauthenticated;
  world joined{tcp_rendezvous(r)};
  if (options.self_test) detail::self_test(joined, options.timeout);
  return joined;
}

}  // namespace hetero
