// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <vector>

#include <hetero/model/profile.hpp>
#include <hetero/plan/cluster.hpp>
#include <hetero/plan/plan.hpp>
#include <hetero/plan/policy.hpp>

namespace hetero {

/// Decides how many samples each rank takes: non-negative integers that add up to `samples`, in rank order.
/// Pure: equal inputs give equal splits on every rank.
template <class S>
concept batch_splitter = requires(const S& s, std::size_t samples, const cluster& machines) {
  { s.split(samples, machines) } -> std::same_as<std::vector<std::size_t>>;
};

/// Bytes a rank needs for layers [first, end) and a number of samples per micro-batch. An argument of the partitioner, so this room
/// never looks at prediction.
template <class M>
concept memory_model = requires(const M& m, const model_profile& model, const workload& work, std::size_t n) {
  { m.bytes(model, work, n, n, n) } -> std::same_as<std::size_t>;  // first layer, end layer, samples per micro-batch
};

/// Decides who does which part of the model and of the batch. Pure and const.
/// @throws error plan_does_not_fit when no legal plan exists, saying how much is missing and where
template <class P>
concept partitioner =
    std::same_as<typename P::policy_kind, partitioner_policy> &&
    requires(const P& p, const model_profile& model, const cluster& machines, const workload& work) {
      { p.partition(model, machines, work) } -> std::same_as<plan>;
    };

}  // namespace hetero
