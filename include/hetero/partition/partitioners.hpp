// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <hetero/partition/batch_partitioner.hpp>
#include <hetero/partition/even.hpp>
#include <hetero/partition/fixed.hpp>
#include <hetero/partition/optperf.hpp>
#include <hetero/partition/proportional.hpp>

/// @file
/// The ready partitioners of the batch. `batch_partitioner<your_splitter>{}` is the door for your own.
namespace hetero {

/// The default: the step time of the slowest rank is as small as it can be, within everyone's memory.
using balanced_partitioner = batch_partitioner<optperf_splitter>;

/// Equal shares, whatever the speeds.
using even_partitioner = batch_partitioner<even_splitter>;

/// Shares in the ratio of measured speeds.
using proportional_partitioner = batch_partitioner<proportional_splitter>;

/// Shares by hand, one per rank: also the way to replay the recorded shares of an earlier run.
struct fixed_partitioner {
  using policy_kind = partitioner_policy;
  std::vector<std::size_t> shares{};
  replicated_memory_model memory{};

  /// @throws error as `batch_partitioner::partition`; plan_does_not_fit when the shares do not fit the job exactly
  [[nodiscard]] plan partition(const model_profile& model, const cluster& machines, const workload& work) const {
    return batch_partitioner<fixed_splitter>{.splitter = {.shares = shares}, .memory = memory}.partition(
        model, machines, work);
  }
  friend bool operator==(const fixed_partitioner&, const fixed_partitioner&) = default;
};

/// Shares in a ratio by hand, repeated over the ranks.
struct ratio_partitioner {
  using policy_kind = partitioner_policy;
  std::vector<double> ratio{1.0};
  replicated_memory_model memory{};

  /// @throws error as `batch_partitioner::partition`; invalid_argument for a ratio that divides nothing
  [[nodiscard]] plan partition(const model_profile& model, const cluster& machines, const workload& work) const {
    return batch_partitioner<ratio_splitter>{.splitter = {.ratio = ratio}, .memory = memory}.partition(model, machines,
                                                                                                       work);
  }
  friend bool operator==(const ratio_partitioner&, const ratio_partitioner&) = default;
};

static_assert(partitioner<balanced_partitioner> && partitioner<even_partitioner> &&
              partitioner<proportional_partitioner> && partitioner<fixed_partitioner> &&
              partitioner<ratio_partitioner>);

}  // namespace hetero
