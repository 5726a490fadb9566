// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <hetero/comm/environment_variables.hpp>
#include <hetero/core/error.hpp>

/// @file
/// What MPI's launchers tell the processes they start. MPI itself is not needed.
namespace hetero::detail {

/// MPI launchers do not say which host has rank 0.
/// @throws error rendezvous when there are several hosts and nobody named that one
inline void require_address(const environment& get, const launch_place& place, const std::string& launcher,
                            const std::string& how) {
  require(get("MASTER_ADDR") || get("HETERO_PORT_FILE") || place.local_world_size == place.world_size, errc::rendezvous,
          [&] {
            return launcher + " started " + std::to_string(place.world_size) + " ranks and only " +
                   (place.local_world_size == 0 ? "an unknown number" : std::to_string(place.local_world_size)) +
                   " on this host; set MASTER_ADDR to the host of rank 0 (" + how + ")";
          });
}

/// Open MPI's mpirun.
/// @throws error rendezvous
[[nodiscard]] inline std::optional<launch_place> open_mpi_place(const environment& get) {
  if (!both_set(get, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) return std::nullopt;
  launch_place place = place_from(get, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"OMPI_COMM_WORLD_LOCAL_RANK"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE"});
  require_address(get, place, "mpirun", "mpirun -x MASTER_ADDR=...");
  if (const char* id = first_set(get, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})) place.job = "mpirun " + *get(id);
  place.ports = place.job.empty() ? std::vector{default_master_port} : derived_ports(place.job);
  return place;
}

/// The Hydra process manager of MPICH and its relatives (mpiexec, mpirun of Intel MPI). It gives its jobs no name, so
/// two jobs on one host need a MASTER_PORT each.
/// @throws error rendezvous
[[nodiscard]] inline std::optional<launch_place> hydra_place(const environment& get) {
  // Slurm's PMI sets these two as well, and Slurm itself tells more.
  if (get("SLURM_PROCID") && !get("MPI_LOCALRANKID")) return std::nullopt;
  if (!both_set(get, "PMI_RANK", "PMI_SIZE")) return std::nullopt;
  launch_place place = place_from(get, "PMI_RANK", "PMI_SIZE", {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
                                  {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"});
  require_address(get, place, "mpiexec", "mpiexec -genv MASTER_ADDR ...");
  place.ports = {default_master_port};
  return place;
}

}  // namespace hetero::detail
