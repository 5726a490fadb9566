// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/core/hash.hpp>

namespace hetero {

/// The place of this process in a job.
struct launch_place {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::uint32_t local_rank = 0;        ///< among the ranks of this host
  std::uint32_t local_world_size = 0;  ///< ranks of this host; 0 when nobody says
  std::string host = "127.0.0.1";      ///< where rank 0 listens
  std::vector<std::uint16_t> ports;    ///< tried in this order, the same on every rank; 0 goes with a port file
  std::string port_file;  ///< where rank 0 writes its address, for jobs without an agreed port; may be empty
  std::string job;        ///< equal on all ranks of a job; may be empty
};

/// Port of rank 0 when neither MASTER_PORT nor a launcher says one.
inline constexpr std::uint16_t default_master_port = 29533;

namespace detail {

using environment = std::function<std::optional<std::string>(const char*)>;

inline constexpr std::uint32_t max_world_size = 1U << 16U;

[[nodiscard]] inline std::optional<std::string> process_environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>{value};
}

/// The number that a variable holds.
/// @throws error rendezvous unless that is a whole number in [least, most]
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

/// The first of these variables that is set.
[[nodiscard]] inline const char* first_set(const environment& get, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (get(name)) return name;
  }
  return nullptr;
}

/// Rank, world size and, where a variable tells, the place among the ranks of this host.
/// @throws error rendezvous naming the variable, its value and what would work
[[nodiscard]] inline launch_place place_from(const environment& get, const char* rank, const char* world_size,
                                             std::initializer_list<const char*> local_rank,
                                             std::initializer_list<const char*> local_world_size) {
  launch_place place;
  place.rank = number_of(rank, *get(rank), 0, max_world_size - 1);
  place.world_size = number_of(world_size, *get(world_size), 1, max_world_size);
  place.local_rank = place.rank;
  const char* const local = first_set(get, local_rank);
  const char* const here = first_set(get, local_world_size);
  if (local != nullptr) place.local_rank = number_of(local, *get(local), 0, max_world_size - 1);
  if (here != nullptr) {
    place.local_world_size = number_of(here, *get(here), 1, max_world_size);
    require(place.local_world_size <= place.world_size, errc::rendezvous, [&] {
      return std::string{here} + "='" + *get(here) + "' is more than " + world_size + "='" + *get(world_size) +
             "'; the ranks of one host are at most those of the world";
    });
    require(local == nullptr || place.local_rank < place.local_world_size, errc::rendezvous, [&] {
      return std::string{local} + "='" + *get(local) + "' is not below " + here + "='" + *get(here) +
             "'; local ranks count from 0";
    });
  }
  return place;
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

}  // namespace detail
}  // namespace hetero
