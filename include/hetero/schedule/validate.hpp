// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/plan/action.hpp>
#include <hetero/plan/plan.hpp>
#include <hetero/schedule/run_symbolically.hpp>

/// @file
/// Whether the programs of all ranks belong together, before anything runs: a pass with a bug is found here and not as a hang.
namespace hetero {

namespace detail {

/// "rank 1 action 4 (recv r0 s1 m0 activation peer 0)".
[[nodiscard]] inline std::string name_of(std::size_t rank, std::size_t index, const action& a) {
  return "rank " + std::to_string(rank) + " action " + std::to_string(index) + " (" + to_string(a) + ')';
}

[[noreturn]] inline void refuse_program(const std::string& text) { throw error{errc::plan_does_not_fit, text}; }

/// Checks of one rank that need no other: dependencies point back; stages and layers are those of the plan; each
/// micro-batch goes forward once, then backward once; transfers touch their computation; updates come last.
class rank_check {
 public:
  rank_check(const plan& p, std::size_t rank, const program& actions) : plan_{p}, rank_{rank}, actions_{actions} {}

  void run() {
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      for (const std::uint32_t earlier : actions_[i].after) {
        if (earlier >= i) {
          refuse_program(who(i) + " waits for action " + std::to_string(earlier) +
                         ", which does not come before it");
        }
      }
      check(i);
    }
    for (const auto& [key, record] : records_) {
      if (record.forward && !record.backward) refuse_program(who(*record.forward) + " has no backward after it");
      if (record.split && !record.weight) refuse_program(who(*record.backward) + " has no backward_weight after it");
      if (record.forward && !record.sent && !last_stage(key)) {
        refuse_program(who(*record.forward) + " is never sent to the next stage");
      }
      if (record.backward && !record.sent_gradient && std::get<1>(key) > 0) {
        refuse_program(who(*record.backward) + " is never sent to the stage before");
      }
    }
    for (std::uint32_t r = 0; r < plan_.replicas.size(); ++r) {
      const auto& stages = plan_.replicas[r].stages;
      for (std::uint32_t s = 0; s < stages.size(); ++s) {
        if (index_of(stages[s].rank) != rank_ || plan_.roles[rank_] != rank_role::worker) continue;
        for (std::uint32_t m = 0; m < plan_.replicas[r].micro_batches; ++m) {
          if (!records_.contains({r, s, m}) || !records_.at({r, s, m}).forward) {
            refuse_program("rank " + std::to_string(rank_) + " never computes micro-batch " + std::to_string(m) +
                           " of replica " + std::to_string(r) + " stage " + std::to_string(s));
          }
        }
      }
    }
  }

 private:
  using key_type = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // replica, stage, micro-batch
  struct record_type {
    std::optional<std::size_t> received{}, received_gradient{}, forward{}, backward{}, weight{}, sent{}, sent_gradient{};
    bool split = false;
  };

  [[nodiscard]] std::string who(std::size_t i) const { return name_of(rank_, i, actions_[i]); }
  [[nodiscard]] bool last_stage(const key_type& key) const {
    return std::get<1>(key) + 1 == plan_.replicas[std::get<0>(key)].stages.size();
  }

  void once(std::optional<std::size_t>& slot, std::size_t i) {
    if (slot) refuse_program(who(i) + " repeats " + who(*slot));
    slot = i;
  }
  void needs(const std::optional<std::size_t>& earlier, std::size_t i, const char* what) {
    if (!earlier) refuse_program(who(i) + " has no " + what + " before it");
  }

  void check(std::size_t i) {
    const action& a = actions_[i];
    const bool compute = a.kind == action_kind::forward || a.kind == action_kind::backward_input ||
                         a.kind == action_kind::backward_weight;
    const bool transfer = a.kind == action_kind::send || a.kind == action_kind::recv;
    if (a.kind == action_kind::step) {
      step_ = i;
      for (const auto& [key, record] : records_) {
        const auto& open = record.split ? record.weight : record.backward;
        if (std::get<0>(key) == index_of(a.replica) && std::get<1>(key) == index_of(a.stage) && record.forward && !open) {
          refuse_program(who(i) + " comes before the backward of " + who(*record.forward));
        }
      }
      return;
    }
    if (!compute && !transfer) return;
    const std::uint32_t r = index_of(a.replica);
    const std::uint32_t s = index_of(a.stage);
    if (r >= plan_.replicas.size() || s >= plan_.replicas[r].stages.size() ||
        index_of(plan_.replicas[r].stages[s].rank) != rank_) {
      refuse_program(who(i) + " works on a stage that the plan does not place on this rank");
    }
    if (step_) refuse_program(who(i) + " comes after the update " + who(*step_));
    const key_type key{r, s, index_of(a.micro_batch)};
    if (index_of(a.micro_batch) >= plan_.replicas[r].micro_batches) {
      refuse_program(who(i) + " names a micro-batch beyond the " + std::to_string(plan_.replicas[r].micro_batches) +
                     " of the plan");
    }
    const stage_placement& here = plan_.replicas[r].stages[s];
    if (compute && (a.first_layer != here.first_layer || a.end_layer != here.end_layer)) {
      refuse_program(who(i) + " computes other layers than the plan's [" + std::to_string(here.first_layer) + ", " +
                     std::to_string(here.end_layer) + ')');
    }
    record_type& record = records_[key];
    switch (a.kind) {
      case action_kind::recv: once(a.gradient ? record.received_gradient : record.received, i); break;
      case action_kind::forward:
        once(record.forward, i);
        if (s > 0) needs(record.received, i, "recv of its activation");
        break;
      case action_kind::backward_input:
        once(record.backward, i);
        record.split = a.split;
        needs(record.forward, i, "forward of its micro-batch");
        if (!last_stage(key)) needs(record.received_gradient, i, "recv of its gradient");
        break;
      case action_kind::backward_weight:
        once(record.weight, i);
        needs(record.backward, i, "backward_input of its micro-batch");
        if (!record.split) refuse_program(who(i) + " repeats the weight half of " + who(*record.backward));
        break;
      default:
        once(a.gradient ? record.sent_gradient : record.sent, i);
        needs(a.gradient ? record.backward : record.forward, i, a.gradient ? "backward that makes it" : "forward that makes it");
    }
  }

  const plan& plan_;
  std::size_t rank_;
  const program& actions_;
  std::map<key_type, record_type> records_{};
  std::optional<std::size_t> step_{};
};

}  // namespace detail

/// Checks the programs of all ranks, in rank order, against the plan and against each other: each rank by itself, every
/// send with its recv in the same order between two ranks, gradient buckets in the same order on all ranks of a stage,
/// and a run in which sends never wait and receives do, which must end. Local; linear in the number of actions.
/// @throws error plan_does_not_fit naming the two actions that break a rule
inline void validate(const plan& p, std::span<const program> programs) {
  validate(p);
  require(programs.size() == p.roles.size(), errc::plan_does_not_fit, [&] {
    return "there are " + std::to_string(programs.size()) + " programs for " + std::to_string(p.roles.size()) + " ranks";
  });
  for (std::size_t rank = 0; rank < programs.size(); ++rank) detail::rank_check{p, rank, programs[rank]}.run();

  if (const auto failure = detail::run_symbolically(programs)) {
    const auto name = [&](const detail::place& at) { return detail::name_of(at.rank, at.index, programs[at.rank][at.index]); };
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
