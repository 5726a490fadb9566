// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/core/hash.hpp>

/// @file
/// How a launcher tells a process its place: RANK and WORLD_SIZE with MASTER_ADDR, MASTER_PORT and LOCAL_RANK, or what
/// Open MPI's mpirun sets.
namespace hetero {

/// The place of this process in a job.
struct launch_place {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::uint32_t local_rank = 0;      ///< among the ranks of this host
  std::string host = "127.0.0.1";    ///< where rank 0 listens
  std::vector<std::uint16_t> ports;  ///< tried in this order, the same on every rank
  std::string job;                   ///< equal on all ranks of a job; may be empty
};

/// Port of rank 0 when neither MASTER_PORT nor a launcher says one.
inline constexpr std::uint16_t default_master_port = 29533;

namespace detail {

using environment = std::function<std::optional<std::string>(const char*)>;

[[nodiscard]] inline std::optional<std::string> process_environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>{value};
}

/// @throws error rendezvous unless the variable holds a whole number in [least, most]
[[nodiscard]] inline std::uint32_t number_of(const char* name, std::string_view value, std::uint32_t least,
                                             std::uint32_t most) {
  std::uint32_t number = 0;
  const auto [end, ec] = std::from_chars(value.data(), value.data() + value.size(), number);
  require(ec == std::errc{} && end == value.data() + value.size() && number >= least && number <= most,
          errc::rendezvous, [&] {
            return std::string{name} + "='" + std::string{value} + "' is not a whole number from " +
                   std::to_string(least) + " to " + std::to_string(most);
          });
  return number;
}

/// Both variables or neither.
/// @throws error rendezvous when only one is set
[[nodiscard]] inline bool both_set(const environment& get, const char* a, const char* b) {
  const bool has_a = get(a).has_value();
  const bool has_b = get(b).has_value();
  require(has_a == has_b, errc::rendezvous, [&] {
    return std::string{has_a ? a : b} + " is set and " + (has_a ? b : a) +
           " is not; set both on every rank, or neither to run alone";
  });
  return has_a;
}

/// Ports that the ranks of one launcher's job agree on without talking: below the range from which the system picks
/// ports by itself, and several, because one may be taken.
[[nodiscard]] inline std::vector<std::uint16_t> derived_ports(std::string_view job) {
  std::vector<std::uint16_t> ports;
  for (std::uint64_t attempt = 0; attempt < 8; ++attempt) {
    ports.push_back(static_cast<std::uint16_t>(20000 + stable_hash{}.add(job).add(attempt).value() % 12000));
  }
  return ports;
}

inline constexpr std::uint32_t max_world_size = 1U << 16U;

}  // namespace detail

/// The place that the environment names, or nothing when no launcher speaks. Reads MASTER_ADDR (default 127.0.0.1),
/// MASTER_PORT (default 29533, or derived from the id of mpirun's job) and
/// - RANK, WORLD_SIZE, LOCAL_RANK, else
/// - OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK; on several hosts MASTER_ADDR must be set.
/// @throws error rendezvous naming the variable, its value and what would work
[[nodiscard]] inline std::optional<launch_place> place_in_environment(
    const detail::environment& get = detail::process_environment) {
  using detail::number_of;
  launch_place place;
  constexpr std::uint32_t most = detail::max_world_size;
  if (detail::both_set(get, "RANK", "WORLD_SIZE")) {
    place.rank = number_of("RANK", *get("RANK"), 0, most - 1);
    place.world_size = number_of("WORLD_SIZE", *get("WORLD_SIZE"), 1, most);
    place.local_rank = place.rank;
    if (const auto local = get("LOCAL_RANK")) place.local_rank = number_of("LOCAL_RANK", *local, 0, most - 1);
    place.ports = {default_master_port};
  } else if (detail::both_set(get, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) {
    place.rank = number_of("OMPI_COMM_WORLD_RANK", *get("OMPI_COMM_WORLD_RANK"), 0, most - 1);
    place.world_size = number_of("OMPI_COMM_WORLD_SIZE", *get("OMPI_COMM_WORLD_SIZE"), 1, most);
    place.local_rank = place.rank;
    if (const auto local = get("OMPI_COMM_WORLD_LOCAL_RANK")) {
      place.local_rank = number_of("OMPI_COMM_WORLD_LOCAL_RANK", *local, 0, most - 1);
    }
    const auto here = get("OMPI_COMM_WORLD_LOCAL_SIZE");
    require(get("MASTER_ADDR") || (here && *here == *get("OMPI_COMM_WORLD_SIZE")), errc::rendezvous, [&] {
      return "mpirun started " + std::to_string(place.world_size) + " ranks and only " +
             here.value_or("an unknown number") +
             " on this host; set MASTER_ADDR to the host of rank 0 (mpirun -x MASTER_ADDR=...)";
    });
    for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
      if (const auto id = get(name); id && place.job.empty()) place.job = "mpirun " + *id;
    }
    place.ports = place.job.empty() ? std::vector{default_master_port} : detail::derived_ports(place.job);
  } else {
    return std::nullopt;
  }
  if (const auto host = get("MASTER_ADDR")) {
    require(!host->empty(), errc::rendezvous,
            "MASTER_ADDR is empty; set it to the host of rank 0, or unset it for this host");
    place.host = *host;
  }
  if (const auto port = get("MASTER_PORT")) {
    place.ports = {static_cast<std::uint16_t>(number_of("MASTER_PORT", *port, 1, 65535))};
  }
  return place;
}

}  // namespace hetero
