// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <hetero/plan/plan.hpp>

namespace hetero {

/// Samples [begin, end) of a step of `samples` samples that `rank` takes. For a full global batch these are the plan's
/// shares; a shorter step (the last of an epoch) is cut in the same proportions, each sample exactly once.
[[nodiscard]] inline sample_range share_of(const plan& p, rank_id rank, std::size_t samples) {
  std::size_t before = 0;
  for (const auto& r : p.replicas) {
    if (!r.stages.empty() && r.stages.front().rank == rank) {
      const auto scaled = [&](std::size_t border) { return border * samples / p.global_batch; };
      return {scaled(before), scaled(before + r.share)};
    }
    before += r.share;
  }
  return {};
}

/// The share of each replica, in order.
[[nodiscard]] inline std::vector<std::size_t> shares_of(const plan& p) {
  std::vector<std::size_t> shares;
  for (const auto& r : p.replicas) shares.push_back(r.share);
  return shares;
}

/// The same plan with other shares; a rank that leads no replica with samples becomes idle.
/// @throws error plan_does_not_fit when the shares do not fit the plan
[[nodiscard]] inline plan with_shares(plan p, const std::vector<std::size_t>& shares) {
  require(shares.size() == p.replicas.size(), errc::plan_does_not_fit, [&] {
    return std::to_string(shares.size()) + " shares were given for a plan of " + std::to_string(p.replicas.size()) +
           " replicas";
  });
  std::vector<bool> works(p.roles.size(), false);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    p.replicas[i].share = shares[i];
    for (const auto& stage : p.replicas[i].stages) works[index_of(stage.rank)] = works[index_of(stage.rank)] || shares[i] > 0;
  }
  for (std::size_t r = 0; r < p.roles.size(); ++r) {
    if (p.roles[r] != rank_role::server) p.roles[r] = works[r] ? rank_role::worker : rank_role::idle;
  }
  validate(p);
  return p;
}

}  // namespace hetero
