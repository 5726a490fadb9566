// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

/// @file
/// Each policy type declares `using policy_kind = ...;` so that a trainer takes policies in any order and refuses a second one of a kind.
namespace hetero {

struct partitioner_policy {};
struct scheduler_policy {};
struct sharding_policy {};
struct synchronizer_policy {};
struct optimizer_policy {};
struct learning_rate_policy {};
struct clipping_policy {};
struct rebalancing_policy {};

/// True for a type that declares itself a policy of kind `Kind`.
template <class P, class Kind>
concept policy_of_kind = requires { typename P::policy_kind; } && std::same_as<typename P::policy_kind, Kind>;

}  // namespace hetero
