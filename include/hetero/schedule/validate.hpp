// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/plan/action.hpp>
#include <hetero/plan/plan.hpp>
#include <hetero/schedule/rank_check.hpp>
#include <hetero/schedule/run_symbolically.hpp>

/// @file
/// Whether the programs of all ranks belong together, before anything runs: a pass with a bug is found here and not as
/// a hang.
namespace hetero {

/// Checks the programs of all ranks, in rank order, against the plan and against each other: each rank by itself, every
/// send with its recv in the same order between two ranks, gradient buckets in the same order on all ranks of a stage,
/// and a run in which sends never wait and receives do, which must end. Local; linear in the number of actions.
/// @throws error plan_does_not_fit naming the two actions that break a rule
inline void validate(const plan& p, std::span<const program> programs) {
  validate(p);
  require(programs.size() == p.roles.size(), errc::plan_does_not_fit, [&] {
    return "there are " + std::to_string(programs.size()) + " programs for " + std::to_string(p.roles.size()) +
           " ranks";
  });
  for (std::size_t rank = 0; rank < programs.size(); ++rank) detail::rank_check{p, rank, programs[rank]}.run();

  if (const auto failure = detail::run_symbolically(programs)) {
    const auto name = [&](const detail::place& at) {
      return detail::name_of(at.rank, at.index, programs[at.rank][at.index]);
    };
    const std::string other = failure->second ? name(*failure->second) : std::string{"nothing"};
    detail::refuse_program(name(failure->first) + ' ' + failure->rule + ' ' + other);
  }

  // Buckets are collectives: ranks that reduce them in different orders would wait for each other.
  std::map<std::uint32_t, std::pair<std::size_t, std::vector<std::size_t>>> first_of_stage;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    std::map<std::uint32_t, std::vector<std::size_t>> mine;
    for (std::size_t i = 0; i < programs[rank].size(); ++i) {
      if (programs[rank][i].kind == action_kind::reduce) mine[index_of(programs[rank][i].stage)].push_back(i);
    }
    for (const auto& [stage, reduces] : mine) {
      const auto [found, fresh] = first_of_stage.try_emplace(stage, rank, reduces);
      if (fresh) continue;
      const auto& [other_rank, other] = found->second;
      for (std::size_t k = 0; k < std::min(reduces.size(), other.size()); ++k) {
        const action& a = programs[other_rank][other[k]];
        const action& b = programs[rank][reduces[k]];
        if (a.bucket == b.bucket) continue;
        detail::refuse_program(detail::name_of(rank, reduces[k], b) + " stands where " +
                               detail::name_of(other_rank, other[k], a) + " reduces another bucket");
      }
      if (reduces.size() != other.size()) {
        detail::refuse_program("rank " + std::to_string(rank) + " reduces " + std::to_string(reduces.size()) +
                               " buckets of stage " + std::to_string(stage) + ", rank " + std::to_string(other_rank) +
                               " reduces " + std::to_string(other.size()));
      }
    }
  }
}

}  // namespace hetero
