// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include <hetero/core/error.hpp>
#include <hetero/plan/action.hpp>
#include <hetero/plan/plan.hpp>

namespace hetero::detail {

/// "rank 1 action 4 (recv r0 s1 m0 activation peer 0)".
[[nodiscard]] inline std::string name_of(std::size_t rank, std::size_t index, const action& a) {
  return "rank " + std::to_string(rank) + " action " + std::to_string(index) + " (" + to_string(a) + ')';
}

[[noreturn]] inline void refuse_program(const std::string& text) { throw error{errc::plan_does_not_fit, text}; }

/// Checks of one rank that need no other: dependencies point back; stages and layers are those of the plan; each
/// micro-batch goes forward once, then backward once, in one action or in pieces (passes cut a backward where gradient
/// buckets become complete); transfers follow what they carry; the update comes last.
class rank_check {
 public:
  /// Plan and program must outlive the check.
  rank_check(const plan& p, std::size_t rank, const program& actions) : plan_{p}, rank_{rank}, actions_{actions} {}

  /// @throws error plan_does_not_fit naming the actions that break a rule
  void run() {
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      for (const std::uint32_t earlier : actions_[i].after) {
        if (earlier >= i) {
          refuse_program(who(i) + " waits for action " + std::to_string(earlier) + ", which does not come before it");
        }
      }
      check(i);
    }
    for (const auto& [key, record] : records_) check_complete(key, record);
    check_all_micro_batches();
  }

 private:
  using key_type = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // replica, stage, micro-batch

  /// How far one pass over the stage's layers has come.
  struct pass_progress {
    std::optional<std::size_t> last{};  ///< its latest action
    std::size_t next_layer = 0;         ///< upwards: the first layer not done; downwards: the end of those not done
    bool done = false;
  };
  struct record_type {
    pass_progress forward{}, backward{}, weight{};
    std::optional<std::size_t> received{}, received_gradient{}, sent{}, sent_gradient{};
    bool split = false;
  };

  [[nodiscard]] std::string who(std::size_t i) const { return name_of(rank_, i, actions_[i]); }
  [[nodiscard]] const stage_placement& stage_at(const key_type& key) const {
    return plan_.replicas[std::get<0>(key)].stages[std::get<1>(key)];
  }
  [[nodiscard]] bool first_stage(const key_type& key) const { return std::get<1>(key) == 0; }
  [[nodiscard]] bool last_stage(const key_type& key) const {
    return std::get<1>(key) + 1 == plan_.replicas[std::get<0>(key)].stages.size();
  }

  void once(std::optional<std::size_t>& slot, std::size_t i) {
    if (slot) refuse_program(who(i) + " repeats " + who(*slot));
    slot = i;
  }
  void needs(bool earlier, std::size_t i, const char* what) {
    if (!earlier) refuse_program(who(i) + " has no " + what + " before it");
  }

  /// Takes the layers of action i into the pass; forwards go up, backwards down, without gap or repeat.
  void advance(pass_progress& pass, std::size_t i, const stage_placement& here, bool upwards) {
    const action& a = actions_[i];
    if (!pass.last) pass.next_layer = upwards ? here.first_layer : here.end_layer;
    if (pass.done) refuse_program(who(i) + " repeats " + who(*pass.last));
    const bool continues = upwards ? a.first_layer == pass.next_layer : a.end_layer == pass.next_layer;
    if (!continues || a.first_layer >= a.end_layer || a.first_layer < here.first_layer ||
        a.end_layer > here.end_layer) {
      const std::string expected =
          upwards ? '[' + std::to_string(pass.next_layer) + ", " + std::to_string(here.end_layer) + ')'
                  : '[' + std::to_string(here.first_layer) + ", " + std::to_string(pass.next_layer) + ')';
      refuse_program(who(i) + " computes other layers than the " + expected + " that are due" +
                     (pass.last ? " after " + who(*pass.last) : std::string{" by the plan"}));
    }
    pass.last = i;
    pass.next_layer = upwards ? a.end_layer : a.first_layer;
    pass.done = pass.next_layer == (upwards ? here.end_layer : here.first_layer);
  }

  void check(std::size_t i) {
    const action& a = actions_[i];
    if (a.kind == action_kind::step) return check_step(i);
    const bool compute = a.kind == action_kind::forward || a.kind == action_kind::backward_input ||
                         a.kind == action_kind::backward_weight;
    if (!compute && a.kind != action_kind::send && a.kind != action_kind::recv) return;
    const std::uint32_t r = index_of(a.replica);
    const std::uint32_t s = index_of(a.stage);
    if (r >= plan_.replicas.size() || s >= plan_.replicas[r].stages.size() ||
        index_of(plan_.replicas[r].stages[s].rank) != rank_) {
      refuse_program(who(i) + " works on a stage that the plan does not place on this rank");
    }
    if (step_) refuse_program(who(i) + " comes after the update " + who(*step_));
    if (index_of(a.micro_batch) >= plan_.replicas[r].micro_batches) {
      refuse_program(who(i) + " names a micro-batch beyond the " + std::to_string(plan_.replicas[r].micro_batches) +
                     " of the plan");
    }
    const key_type key{r, s, index_of(a.micro_batch)};
    record_type& record = records_[key];
    switch (a.kind) {
      case action_kind::recv:
        once(a.gradient ? record.received_gradient : record.received, i);
        break;
      case action_kind::forward:
        advance(record.forward, i, stage_at(key), true);
        needs(first_stage(key) || record.received, i, "recv of its activation");
        break;
      case action_kind::backward_input:
        advance(record.backward, i, stage_at(key), false);
        record.split = record.split || a.split;
        needs(record.forward.done, i, "forward of its micro-batch");
        needs(last_stage(key) || record.received_gradient, i, "recv of its gradient");
        break;
      case action_kind::backward_weight:
        needs(record.backward.last.has_value(), i, "backward_input of its micro-batch");
        if (!record.split) refuse_program(who(i) + " repeats the weight half of " + who(*record.backward.last));
        advance(record.weight, i, stage_at(key), false);
        break;
      default:
        once(a.gradient ? record.sent_gradient : record.sent, i);
        needs(a.gradient ? record.backward.done : record.forward.done, i,
              a.gradient ? "backward that makes it" : "forward that makes it");
    }
  }

  void check_step(std::size_t i) {
    const action& a = actions_[i];
    step_ = i;
    for (const auto& [key, record] : records_) {
      const bool mine = std::get<0>(key) == index_of(a.replica) && std::get<1>(key) == index_of(a.stage);
      const bool closed = record.backward.done && (!record.split || record.weight.done);
      if (mine && record.forward.last && !closed) {
        refuse_program(who(i) + " comes before the backward of " + who(*record.forward.last));
      }
    }
  }

  void check_complete(const key_type& key, const record_type& record) {
    if (!record.forward.last) return;
    const std::string forward = who(*record.forward.last);
    if (!record.forward.done) refuse_program(forward + " is not continued to the end of its stage");
    if (!record.backward.last) refuse_program(forward + " has no backward after it");
    const std::string backward = who(*record.backward.last);
    if (!record.backward.done) refuse_program(backward + " is not continued to the start of its stage");
    if (record.split && !record.weight.done) refuse_program(backward + " has no backward_weight after it");
    if (!record.sent && !last_stage(key)) refuse_program(forward + " is never sent to the next stage");
    if (!record.sent_gradient && !first_stage(key)) refuse_program(backward + " is never sent to the stage before");
  }

  void check_all_micro_batches() {
    if (plan_.roles[rank_] != rank_role::worker) return;
    for (std::uint32_t r = 0; r < plan_.replicas.size(); ++r) {
      const auto& stages = plan_.replicas[r].stages;
      for (std::uint32_t s = 0; s < stages.size(); ++s) {
        if (index_of(stages[s].rank) != rank_) continue;
        for (std::uint32_t m = 0; m < plan_.replicas[r].micro_batches; ++m) {
          const auto found = records_.find({r, s, m});
          if (found != records_.end() && found->second.forward.last) continue;
          refuse_program("rank " + std::to_string(rank_) + " never computes micro-batch " + std::to_string(m) +
                         " of replica " + std::to_string(r) + " stage " + std::to_string(s));
        }
      }
    }
  }

  const plan& plan_;
  std::size_t rank_;
  const program& actions_;
  std::map<key_type, record_type> records_{};
  std::optional<std::size_t> step_{};
};

}  // namespace hetero::detail
