// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include <hetero/comm/world.hpp>
#include <hetero/mpi/mpi_session.hpp>
#include <hetero/mpi/mpi_transport.hpp>

namespace hetero {

/// How `mpi_communicator` joins.
struct mpi_options {
  MPI_Comm ranks = MPI_COMM_WORLD;                             ///< whose ranks, in its order; is duplicated
  std::chrono::milliseconds timeout = world::default_timeout;  ///< for joining, and of the handle
};

/// The ranks of an MPI job as a `world`, whose messages MPI carries over whatever network it was built for. Collective
/// over `options.ranks`.
///
/// Everything of a world is there: channels, groups, deadlines, agreement, abort, counters; a trainer takes it as it
/// takes any other. Its collectives are hetero's own over point-to-point. MPI's would be no replacement: they cannot be
/// taken back when a deadline passes, compare nothing before they move it (law 4), and need not give all ranks the same
/// bits.
///
/// MPI must be initialised (see `mpi_session`) with MPI_THREAD_MULTIPLE, or with MPI_THREAD_SERIALIZED when the program
/// makes no MPI calls of its own beside hetero's, and must not be finalised before the last handle is gone.
/// @throws error unsupported when MPI is not initialised, or for one thread only; timeout when some rank did not come;
/// network when MPI reports an error
[[nodiscard]] inline world mpi_communicator(const mpi_options& options = {}) {
  auto carrier = std::make_shared<detail::mpi_transport>(options.ranks, options.timeout);
  world all{carrier->world_size() > 1 ? std::shared_ptr<transport>{std::move(carrier)} : nullptr};
  all.set_timeout(options.timeout);
  return all;
}

}  // namespace hetero
