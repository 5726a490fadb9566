// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/partition/concepts.hpp>
#include <hetero/partition/memory.hpp>
#include <hetero/partition/verdict.hpp>

namespace hetero {

/// A splitter that can keep to a limit of samples per rank. One that cannot is checked after the fact.
template <class S>
concept limited_batch_splitter = batch_splitter<S> &&
    requires(const S& s, std::size_t samples, const cluster& machines, std::span<const std::size_t> limits) {
  { s.split(samples, machines, limits) } -> std::same_as<std::vector<std::size_t>>;
};

/// Divides the batch and not the model: replica i is the whole model on rank i, with the share the splitter gives it. A
/// rank without samples is idle and keeps its replica, so that it can work again after the next plan.
template <batch_splitter Splitter, memory_model Memory = replicated_memory_model> struct batch_partitioner {
  using policy_kind = partitioner_policy;
  Splitter splitter{};
  Memory memory{};

  /// The plan. Pure: equal inputs give equal plans on every rank.
  /// @throws error invalid_argument when there is nothing to divide or a measurement is unusable
  /// @throws error plan_does_not_fit when there are no ranks, the splitter does not divide the batch, or a share is
  /// more
  ///         than its rank can hold, saying what it can
  [[nodiscard]] plan partition(const model_profile& model, const cluster& machines, const workload& work) const {
    const std::size_t ranks = machines.ranks.size();
    require(ranks > 0, errc::plan_does_not_fit, "a plan needs at least one rank");
    require(!model.layers.empty(), errc::invalid_argument, "a model without layers cannot be planned");
    require(work.global_batch > 0, errc::invalid_argument,
            "a global batch of 0 samples has no gradient; give 1 or more");
    require(work.micro_batches > 0, errc::invalid_argument, "0 micro-batches compute nothing; give 1 or more");

    const std::vector<std::size_t> limits = sample_limits(memory, model, machines, work);
    std::vector<std::size_t> shares;
    if constexpr (limited_batch_splitter<Splitter>) {
      shares = splitter.split(work.global_batch, machines, std::span<const std::size_t>{limits});
    } else {
      shares = splitter.split(work.global_batch, machines);
    }
    require(shares.size() == ranks, errc::plan_does_not_fit, [&] {
      return "the splitter returned " + std::to_string(shares.size()) + " shares for " + std::to_string(ranks) +
             " ranks";
    });

    plan p;
    p.num_layers = model.layers.size();
    p.global_batch = work.global_batch;
    for (std::size_t i = 0; i < ranks; ++i) {
      require(shares[i] <= limits[i], errc::plan_does_not_fit, [&] {
        return "rank " + std::to_string(i) + " (" + machines.ranks[i].device + ") would get " +
               std::to_string(shares[i]) + " samples and has memory for " + std::to_string(limits[i]) + " in " +
               std::to_string(work.micro_batches) +
               " micro-batches; more micro-batches or balanced_partitioner, which keeps to the limit, would work";
      });
      p.roles.push_back(shares[i] > 0 ? rank_role::worker : rank_role::idle);
      replica_placement r{.share = shares[i], .micro_batches = work.micro_batches};
      r.stages.push_back({.first_layer = 0, .end_layer = p.num_layers, .rank = rank_id{static_cast<std::uint32_t>(i)}});
      p.replicas.push_back(std::move(r));
    }
    validate(p);
    return p;
  }

  /// Why each rank works or does not, under a plan of this partitioner.
  [[nodiscard]] std::vector<rank_verdict> verdicts(const plan& p, const model_profile& model, const cluster& machines,
                                                   const workload& work) const {
    return hetero::verdicts(p, memory, model, machines, work);
  }

  friend constexpr bool operator==(const batch_partitioner&, const batch_partitioner&) = default;
};

}  // namespace hetero
