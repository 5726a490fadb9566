// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>

#include <hetero/plan/action.hpp>
#include <hetero/plan/parameter_layout.hpp>
#include <hetero/plan/plan.hpp>
#include <hetero/plan/policy.hpp>

namespace hetero {

/// Elements [begin, end) of the flat parameter order.
struct element_range {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t count() const noexcept { return end - begin; }
  friend bool operator==(const element_range&, const element_range&) = default;
};

/// Decides who holds which parameters, gradients and optimizer state.
///
/// `owned` gives every element to exactly one rank (norms, metrics); `state_held` is what the rank keeps optimizer state
/// for; `insert` is the pass that adds gather, release and reduce actions. Pure. `replicates_parameters` says whether a
/// rank holds the whole model between steps, which synchronizers that merge parameters need.
template <class S>
concept sharding = std::same_as<typename S::policy_kind, sharding_policy> &&
                   requires(const S& s, const program& actions, const parameter_layout& layout, const plan& p, rank_id rank) {
                     { S::replicates_parameters } -> std::convertible_to<bool>;
                     { s.owned(layout, p, rank) } -> std::same_as<element_range>;
                     { s.state_held(layout, p, rank) } -> std::same_as<element_range>;
                     { s.insert(actions, layout, p, rank) } -> std::same_as<program>;
                   };

}  // namespace hetero
