// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/plan/action.hpp>
#include <hetero/plan/plan.hpp>

/// @file
/// What all schedulers with one stage per rank and replica share: they differ only in the order of the micro-batches.
namespace hetero::detail {

/// One entry of a stage's order: the forward or the backward of one micro-batch.
struct stage_work {
  bool backward = false;
  std::uint32_t micro_batch = 0;
};

/// Where a rank works in a replica.
struct held_stage {
  std::uint32_t replica = 0;
  std::uint32_t stage = 0;
};

/// The stages of the plan that `rank` computes, by replica; none for an idle rank or a server.
/// @throws error plan_does_not_fit when the rank does not exist or is idle but has samples
/// @throws error unsupported when the rank holds two stages of one replica
[[nodiscard]] inline std::vector<held_stage> stages_of(const plan& p, rank_id rank, const char* scheduler_name) {
  require(index_of(rank) < p.world_size(), errc::plan_does_not_fit, [&] {
    return "the plan is for " + std::to_string(p.world_size()) + " ranks, a program was asked for rank " +
           std::to_string(index_of(rank));
  });
  std::vector<held_stage> held;
  for (std::uint32_t r = 0; r < p.replicas.size(); ++r) {
    const auto& replica = p.replicas[r];
    std::optional<std::uint32_t> first;
    for (std::uint32_t s = 0; s < replica.stages.size(); ++s) {
      if (replica.stages[s].rank != rank) continue;
      require(!first, errc::unsupported, [&] {
        return "rank " + std::to_string(index_of(rank)) + " holds stages " + std::to_string(*first) + " and " +
               std::to_string(s) + " of replica " + std::to_string(r) + "; " + scheduler_name +
               " runs one stage of a replica per rank, an interleaved schedule is needed";
      });
      first = s;
      held.push_back({r, s});
      require(p.roles[index_of(rank)] == rank_role::worker || replica.share == 0, errc::plan_does_not_fit, [&] {
        return "rank " + std::to_string(index_of(rank)) + " is " + to_string(p.roles[index_of(rank)]) +
               " but replica " + std::to_string(r) + " has " + std::to_string(replica.share) +
               " samples on it; only a worker computes";
      });
    }
  }
  return held;
}

/// Appends one stage's work in the given order, with its transfers and dependencies. Sends are asynchronous; between
/// two ranks they happen in the order of their receives. Returns the index of the last backward.
inline std::uint32_t append_stage(program& actions, const plan& p, held_stage where,
                                  const std::vector<stage_work>& order) {
  const auto& replica = p.replicas[where.replica];
  const auto& here = replica.stages[where.stage];
  const bool first = where.stage == 0;
  const bool last = where.stage + 1 == replica.stages.size();
  std::vector<std::uint32_t> forward_at(replica.micro_batches);
  std::uint32_t last_backward = 0;
  const auto append = [&](action a) {
    a.replica = replica_id{where.replica};
    a.stage = stage_id{where.stage};
    actions.push_back(std::move(a));
    return static_cast<std::uint32_t>(actions.size() - 1);
  };
  const auto transfer = [&](action_kind kind, micro_batch_id m, std::uint32_t other_stage, bool gradient) {
    action a{.kind = kind, .micro_batch = m, .peer = replica.stages[other_stage].rank, .gradient = gradient};
    if (kind == action_kind::send) a.after = {static_cast<std::uint32_t>(actions.size() - 1)};
    return append(std::move(a));
  };
  const auto compute = [&](action_kind kind, micro_batch_id m, std::vector<std::uint32_t> after) {
    return append({.kind = kind,
                   .micro_batch = m,
                   .first_layer = here.first_layer,
                   .end_layer = here.end_layer,
                   .after = std::move(after)});
  };
  for (const auto& work : order) {
    const micro_batch_id m{work.micro_batch};
    std::vector<std::uint32_t> after;
    if (!work.backward) {
      if (!first) after.push_back(transfer(action_kind::recv, m, where.stage - 1, false));
      forward_at[work.micro_batch] = compute(action_kind::forward, m, std::move(after));
      if (!last) transfer(action_kind::send, m, where.stage + 1, false);
    } else {
      after.push_back(forward_at[work.micro_batch]);
      if (!last) after.push_back(transfer(action_kind::recv, m, where.stage + 1, true));
      last_backward = compute(action_kind::backward_input, m, std::move(after));
      if (!first) transfer(action_kind::send, m, where.stage - 1, true);
    }
  }
  return last_backward;
}

/// The whole program of a rank: every replica it holds one after the other, then one update for each. An idle rank only
/// updates, since it keeps its copy of the parameters equal to the others'; a server's program is the synchronizer's.
template <class Order>
[[nodiscard]] program staged_program(const plan& p, rank_id rank, const char* scheduler_name, Order&& order) {
  program actions;
  const std::vector<held_stage> held = stages_of(p, rank, scheduler_name);
  const rank_role role = p.roles[index_of(rank)];
  std::vector<std::pair<held_stage, std::vector<std::uint32_t>>> updates;
  for (const auto& where : held) {
    const auto& replica = p.replicas[where.replica];
    std::vector<std::uint32_t> after;
    if (role == rank_role::worker) {
      after.push_back(
          append_stage(actions, p, where,
                       order(where.stage, static_cast<std::uint32_t>(replica.stages.size()), replica.micro_batches)));
    }
    if (role != rank_role::server) updates.emplace_back(where, std::move(after));
  }
  for (auto& [where, after] : updates) {
    const auto& here = p.replicas[where.replica].stages[where.stage];
    actions.push_back({.kind = action_kind::step,
                       .replica = replica_id{where.replica},
                       .stage = stage_id{where.stage},
                       .first_layer = here.first_layer,
                       .end_layer = here.end_layer,
                       .after = std::move(after)});
  }
  if (updates.empty() && role == rank_role::idle) actions.push_back({.kind = action_kind::step});
  return actions;
}

}  // namespace hetero::detail
