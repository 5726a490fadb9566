// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <hetero/comm/environment_mpi.hpp>
#include <hetero/comm/environment_slurm.hpp>
#include <hetero/comm/environment_variables.hpp>
#include <hetero/core/error.hpp>

/// @file
/// How a launcher tells a process its place: RANK and WORLD_SIZE by hand or from torchrun, or what mpirun, mpiexec and
/// srun set.
namespace hetero {

namespace detail {

/// torchrun says where its own agent listens. An agent that lets the ranks share its store owns MASTER_PORT.
[[nodiscard]] inline bool agent_owns_port(const environment& get) {
  const std::string value = get("TORCHELASTIC_USE_AGENT_STORE").value_or("");
  return value == "True" || value == "true" || value == "1";
}

/// RANK and WORLD_SIZE, set by hand or by torchrun.
/// @throws error rendezvous
[[nodiscard]] inline std::optional<launch_place> explicit_place(const environment& get) {
  if (!both_set(get, "RANK", "WORLD_SIZE")) return std::nullopt;
  launch_place place = place_from(get, "RANK", "WORLD_SIZE", {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"});
  place.ports = {default_master_port};
  if (const auto id = get("TORCHELASTIC_RUN_ID"); id && *id != "none") place.job = "torchrun " + *id;
  return place;
}

/// MASTER_ADDR, MASTER_PORT and HETERO_PORT_FILE go before what a launcher's job implies.
/// @throws error rendezvous
inline void read_address(const environment& get, launch_place& place) {
  if (const auto file = get("HETERO_PORT_FILE")) {
    require(!file->empty(), errc::rendezvous,
            "HETERO_PORT_FILE is empty; set it to a file that every rank sees, or unset it");
    place.port_file = *file;
    place.ports = {0};
  }
  if (const auto host = get("MASTER_ADDR")) {
    require(!host->empty(), errc::rendezvous,
            "MASTER_ADDR is empty; set it to the host of rank 0, or unset it for this host");
    place.host = *host;
  }
  // torchrun names this host by its network name even where nobody else takes part.
  if (get("TORCHELASTIC_RUN_ID") && place.local_world_size == place.world_size) place.host = "127.0.0.1";
  const auto port = get("MASTER_PORT");
  if (!port) return;
  if (*port == "0" && place.port_file.empty()) {
    throw error{errc::rendezvous,
                "MASTER_PORT='0' lets the system choose, and the others must learn what it chose; set HETERO_PORT_FILE "
                "to a file that every rank sees, or MASTER_PORT to a number from 1 to 65535"};
  }
  const bool next = agent_owns_port(get);
  const std::uint32_t number = number_of("MASTER_PORT", *port, place.port_file.empty() ? 1 : 0, next ? 65534 : 65535);
  place.ports = {static_cast<std::uint16_t>(number + (next && number != 0 ? 1 : 0))};
}

}  // namespace detail

/// The place that the environment names, or nothing when no launcher speaks. The first that speaks counts:
/// - RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, by hand or from torchrun. Where its agent owns MASTER_PORT
///   (TORCHELASTIC_USE_AGENT_STORE=True), rank 0 listens at MASTER_PORT + 1, and every rank knows that.
/// - OMPI_COMM_WORLD_RANK, ..._SIZE, ..._LOCAL_RANK, ..._LOCAL_SIZE of Open MPI's mpirun
/// - PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS of MPICH's mpiexec (Hydra)
/// - SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID of a step that srun started; rank 0 is on the
///   first host of SLURM_STEP_NODELIST. A shell or batch script in an allocation has no step and is alone.
///
/// MASTER_ADDR (default: this host; Slurm's first host) and MASTER_PORT (default 29533, or derived from the id of
/// mpirun's or Slurm's job) name rank 0. HETERO_PORT_FILE names a file for the port that the system chose.
/// @throws error rendezvous naming the variable, its value and what would work
[[nodiscard]] inline std::optional<launch_place> place_in_environment(
    const detail::environment& get = detail::process_environment) {
  auto place = detail::explicit_place(get);
  if (!place) place = detail::open_mpi_place(get);
  if (!place) place = detail::hydra_place(get);
  if (!place) place = detail::slurm_place(get);
  if (place) detail::read_address(get, *place);
  return place;
}

}  // namespace hetero
