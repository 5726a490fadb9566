// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <hetero/comm/channel_state.hpp>
#include <hetero/core/error.hpp>
#include <hetero/core/ids.hpp>

namespace hetero::detail {

/// The ranks `members` of a channel, in that order. Without a message: the id follows from the channel's and the list.
/// @throws error invalid_argument
[[nodiscard]] inline std::unique_ptr<channel_state> group(const channel_state& c, std::span<const rank_id> members) {
  std::string list;
  for (const rank_id member : members) list += (list.empty() ? "" : ",") + std::to_string(index_of(member));
  const auto refuse = [&](const std::string& why) {
    throw error{errc::invalid_argument,
                "a group of the ranks {" + list + "} of '" + c.name + "': " + why,
                {rank_id{c.members[c.rank]}, {}}};
  };
  std::vector<std::uint32_t> seen;
  std::uint32_t own = c.size();
  for (const rank_id member : members) {
    const std::uint32_t m = index_of(member);
    if (m >= c.size()) {
      refuse("rank " + std::to_string(m) + " is not among its " + std::to_string(c.size()) + " ranks");
    }
    if (m == c.rank) own = static_cast<std::uint32_t>(seen.size());
    seen.push_back(m);
  }
  std::vector<std::uint32_t> sorted = seen;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) refuse("rank " + std::to_string(*twice) + " is listed twice");
  if (own == c.size()) refuse("this is rank " + std::to_string(c.rank) + ", and only members can ask for a group");

  std::unique_ptr<channel_state> state = c.derive("group(" + list + ')');
  state->rank = own;
  state->members.clear();
  for (const std::uint32_t m : seen) state->members.push_back(c.members[m]);
  state->rules = std::make_shared<const tuning>(rules_for(*c.rules, seen));
  state->reset_messages();
  return state;
}

}  // namespace hetero::detail
