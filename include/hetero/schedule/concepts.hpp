// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include <hetero/plan/action.hpp>
#include <hetero/plan/plan.hpp>
#include <hetero/plan/policy.hpp>

namespace hetero {

/// Decides in which order a rank works. Pure: (plan, rank) -> compute and transfer actions of one step; sharding and
/// synchronizer insert theirs afterwards.
template <class S>
concept scheduler = std::same_as<typename S::policy_kind, scheduler_policy> &&
                    requires(const S& s, const plan& p, rank_id rank) {
                      { s.actions(p, rank) } -> std::same_as<program>;
                    };

}  // namespace hetero
