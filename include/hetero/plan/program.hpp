// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
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

/// The largest number of micro-batches whose activations a rank keeps at one time under this program: forward takes
/// one, the backward that ends with it gives it back.
[[nodiscard]] inline std::size_t peak_in_flight(const program& actions) {
  std::size_t now = 0;
  std::size_t peak = 0;
  for (const auto& a : actions) {
    if (a.kind == action_kind::forward) {
      peak = std::max(peak, ++now);
    } else if ((a.kind == action_kind::backward_input && !a.split) || a.kind == action_kind::backward_weight) {
      if (now > 0) --now;
    }
  }
  return peak;
}

}  // namespace hetero
