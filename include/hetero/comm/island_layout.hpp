// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hetero/core/error.hpp>

namespace hetero::detail {

/// Which rank lives on which island. Islands are numbered by the rank of their leader, their first member.
struct island_layout {
  std::vector<std::uint32_t> island;  ///< of each rank
  std::vector<std::uint32_t> place;   ///< of each rank, within its island
  std::vector<std::uint32_t> leader;  ///< of each island, as a rank
  std::vector<std::size_t> size;      ///< of each island
  std::vector<std::uint32_t> order;   ///< all ranks, island after island

  [[nodiscard]] std::size_t islands() const noexcept { return leader.size(); }
  [[nodiscard]] bool in_rank_order() const noexcept { return std::is_sorted(order.begin(), order.end()); }

  /// From what each rank knows: its leader's rank and its own place.
  /// @throws error invalid_argument unless the members of each island have the places 0, 1, 2 ...
  [[nodiscard]] static island_layout from(std::span<const std::uint32_t> leaders,
                                          std::span<const std::uint32_t> places) {
    island_layout layout;
    layout.place.assign(places.begin(), places.end());
    layout.leader.assign(leaders.begin(), leaders.end());
    std::sort(layout.leader.begin(), layout.leader.end());
    layout.leader.erase(std::unique(layout.leader.begin(), layout.leader.end()), layout.leader.end());
    std::vector<std::vector<std::uint32_t>> members(layout.leader.size());
    for (std::uint32_t rank = 0; rank < leaders.size(); ++rank) {
      const auto at = std::lower_bound(layout.leader.begin(), layout.leader.end(), leaders[rank]);
      layout.island.push_back(static_cast<std::uint32_t>(at - layout.leader.begin()));
      members[layout.island.back()].push_back(rank);
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      std::sort(members[i].begin(), members[i].end(), [&](auto a, auto b) { return places[a] < places[b]; });
      for (std::uint32_t p = 0; p < members[i].size(); ++p) {
        require(places[members[i][p]] == p && (p != 0 || members[i][0] == layout.leader[i]), errc::invalid_argument,
                [&] {
                  return "the island of rank " + std::to_string(layout.leader[i]) + " has no rank at place " +
                         std::to_string(p) + "; the inner communicator must hold exactly the ranks of one island";
                });
      }
      layout.size.push_back(members[i].size());
      layout.order.insert(layout.order.end(), members[i].begin(), members[i].end());
    }
    return layout;
  }
};

}  // namespace hetero::detail
