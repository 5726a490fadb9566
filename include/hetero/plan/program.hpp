// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <hetero/core/error.hpp>
#include <hetero/plan/action.hpp>

/// @file
/// What passes need to change a program without breaking its dependencies.
namespace hetero {

/// Inserts `a` before position `position` and renumbers every dependency that points behind it. The dependencies of `a`
/// itself are positions before the insertion.
/// @throws error invalid_argument when the position is outside the program, or `a` would depend on a later action
inline void insert_action(program& actions, std::size_t position, action a) {
  require(position <= actions.size(), errc::invalid_argument, [&] {
    return "cannot insert " + to_string(a) + " at position " + std::to_string(position) + " of a program of " +
           std::to_string(actions.size()) + " actions";
  });
  for (const std::uint32_t earlier : a.after) {
    require(earlier < position, errc::invalid_argument, [&] {
      return to_string(a) + " at position " + std::to_string(position) + " cannot wait for action " +
             std::to_string(earlier) + ", which comes later";
    });
  }
  for (auto& later : actions) {
    for (auto& dependency : later.after) {
      if (dependency >= position) ++dependency;
    }
  }
  actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(position), std::move(a));
}

/// The largest number of micro-batches whose activations a rank keeps at one time under this program: the first forward
/// of a micro-batch takes them, the last backward that touches its weights gives them back.
[[nodiscard]] inline std::size_t peak_in_flight(const program& actions) {
  using key_type = std::tuple<replica_id, stage_id, micro_batch_id>;
  std::map<key_type, std::size_t> last_use;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const auto& a = actions[i];
    if (a.kind == action_kind::backward_input || a.kind == action_kind::backward_weight) {
      last_use[{a.replica, a.stage, a.micro_batch}] = i;
    }
  }
  std::set<key_type> kept;
  std::size_t peak = 0;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const auto& a = actions[i];
    const key_type key{a.replica, a.stage, a.micro_batch};
    if (a.kind == action_kind::forward) {
      kept.insert(key);
      peak = std::max(peak, kept.size());
    } else if (const auto found = last_use.find(key); found != last_use.end() && found->second == i) {
      kept.erase(key);
    }
  }
  return peak;
}

}  // namespace hetero
