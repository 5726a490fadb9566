// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include <hetero/plan/program.hpp>
#include <hetero/schedule/gpipe.hpp>
#include <hetero/schedule/one_f_one_b.hpp>
#include <hetero/schedule/validate.hpp>
#include <hetero/sync/insert_reduce.hpp>

#include "support/catch.hpp"

namespace {

using namespace hetero;

/// One replica of `stages` stages of two layers each, on ranks 0, 1, ...
plan pipeline_plan(std::uint32_t stages, std::uint32_t micro_batches, std::size_t share = 8) {
  plan p{.num_layers = 2 * std::size_t{stages}, .global_batch = share};
  p.roles.assign(stages, rank_role::worker);
  replica_placement r{.share = share, .micro_batches = micro_batches};
  for (std::uint32_t s = 0; s < stages; ++s) {
    r.stages.push_back({.first_layer = 2 * std::size_t{s}, .end_layer = 2 * std::size_t{s} + 2, .rank = rank_id{s}});
  }
  p.replicas.push_back(r);
  return p;
}

template <scheduler S> std::vector<program> programs_of(const S& policy, const plan& p) {
  std::vector<program> all;
  for (std::uint32_t i = 0; i < p.world_size(); ++i) all.push_back(policy.actions(p, rank_id{i}));
  return all;
}

std::size_t count_of(const program& actions, action_kind kind) {
  return static_cast<std::size_t>(
      std::count_if(actions.begin(), actions.end(), [&](const action& a) { return a.kind == kind; }));
}

std::string short_form(const program& actions) {
  std::string text;
  for (const auto& a : actions) {
    const std::string m = std::to_string(index_of(a.micro_batch));
    switch (a.kind) {
      case action_kind::forward:
        text += " F" + m;
        break;
      case action_kind::backward_input:
        text += " B" + m;
        break;
      case action_kind::send:
        text += std::string{a.gradient ? " sg" : " sa"} + m;
        break;
      case action_kind::recv:
        text += std::string{a.gradient ? " rg" : " ra"} + m;
        break;
      case action_kind::step:
        text += " step";
        break;
      default:
        text += " ?";
    }
  }
  return text.empty() ? text : text.substr(1);
}

static_assert(std::is_aggregate_v<one_f_one_b_scheduler> && std::is_aggregate_v<gpipe_scheduler>);
static_assert(one_f_one_b_scheduler{.micro_batches = 4} != one_f_one_b_scheduler{});

struct scheduler_that_returns_text {
  using policy_kind = scheduler_policy;
  std::string actions(const plan&, rank_id) const { return {}; }
};
static_assert(!scheduler<scheduler_that_returns_text>);

}  // namespace

TEST_CASE("one stage is gradient accumulation, one micro-batch at a time") {
  const plan p = pipeline_plan(1, 3);
  const program actions = one_f_one_b_scheduler{}.actions(p, rank_id{0});
  CHECK(short_form(actions) == "F0 B0 F1 B1 F2 B2 step");
  CHECK(peak_in_flight(actions) == 1);
  CHECK(actions[1].after == std::vector<std::uint32_t>{0});
  CHECK(actions[6].after == std::vector<std::uint32_t>{5});
  CHECK(short_form(gpipe_scheduler{}.actions(p, rank_id{0})) == "F0 F1 F2 B2 B1 B0 step");
}

TEST_CASE("1F1B on three stages: warm-up, steady, cool-down") {
  const auto all = programs_of(one_f_one_b_scheduler{}, pipeline_plan(3, 4));
  CHECK(short_form(all[0]) == "F0 sa0 F1 sa1 F2 sa2 rg0 B0 F3 sa3 rg1 B1 rg2 B2 rg3 B3 step");
  CHECK(short_form(all[2]) == "ra0 F0 B0 sg0 ra1 F1 B1 sg1 ra2 F2 B2 sg2 ra3 F3 B3 sg3 step");
}

TEST_CASE("any depth and any number of micro-batches: legal, complete, and within its memory") {
  for (std::uint32_t stages = 1; stages <= 6; ++stages) {
    for (std::uint32_t count = 1; count <= 9; ++count) {
      INFO(stages << " stages, " << count << " micro-batches");
      const plan p = pipeline_plan(stages, count, 3);  // fewer samples than micro-batches: some are empty
      const auto one = programs_of(one_f_one_b_scheduler{}, p);
      const auto gpipe = programs_of(gpipe_scheduler{}, p);
      REQUIRE_NOTHROW(validate(p, one));
      REQUIRE_NOTHROW(validate(p, gpipe));
      for (std::uint32_t s = 0; s < stages; ++s) {
        CHECK(count_of(one[s], action_kind::forward) == count);
        CHECK(count_of(one[s], action_kind::backward_input) == count);
        CHECK(count_of(one[s], action_kind::send) == count * ((s > 0 ? 1U : 0U) + (s + 1 < stages ? 1U : 0U)));
        CHECK(one[s].back().kind == action_kind::step);
        CHECK(peak_in_flight(one[s]) == std::min(stages - s, count));
        CHECK(peak_in_flight(gpipe[s]) == count);  // control: what 1F1B saves
      }
    }
  }
}

TEST_CASE("replicas on the same ranks, idle ranks and servers have their programs") {
  plan p = pipeline_plan(2, 2, 4);
  p.replicas.push_back(p.replicas[0]);  // a second replica on the same two ranks
  p.global_batch = 8;
  const auto all = programs_of(one_f_one_b_scheduler{}, p);
  REQUIRE_NOTHROW(validate(p, all));
  CHECK(short_form(all[1]) == "ra0 F0 B0 sg0 ra1 F1 B1 sg1 ra0 F0 B0 sg0 ra1 F1 B1 sg1 step step");

  plan idle = pipeline_plan(1, 2);
  idle.roles = {rank_role::worker, rank_role::idle, rank_role::idle, rank_role::server};
  idle.replicas.push_back(
      {.share = 0, .micro_batches = 2, .stages = {{.first_layer = 0, .end_layer = 2, .rank = rank_id{1}}}});
  const auto programs = programs_of(one_f_one_b_scheduler{}, idle);
  REQUIRE_NOTHROW(validate(idle, programs));
  CHECK(short_form(programs[0]) == "F0 B0 F1 B1 step");
  CHECK(short_form(programs[1]) == "step");
  CHECK(programs[1][0].replica == replica_id{1});
  CHECK(short_form(programs[2]) == "step");
  CHECK(programs[3].empty());

  idle.replicas[1].share = 3;
  CHECK_THROWS_WITH(one_f_one_b_scheduler{}.actions(idle, rank_id{1}), ContainsSubstring("rank 1 is idle but"));
  CHECK_THROWS_WITH(one_f_one_b_scheduler{}.actions(idle, rank_id{4}), ContainsSubstring("rank 4"));
  plan folded = pipeline_plan(2, 2);
  folded.replicas[0].stages[1].rank = rank_id{0};
  CHECK_THROWS_WITH(gpipe_scheduler{}.actions(folded, rank_id{0}),
                    ContainsSubstring("unsupported") && ContainsSubstring("interleaved"));
}

TEST_CASE("validation finds planted bugs and names the actions") {
  const plan p = pipeline_plan(2, 2);
  const auto good = programs_of(one_f_one_b_scheduler{}, p);
  REQUIRE(short_form(good[0]) == "F0 sa0 F1 sa1 rg0 B0 rg1 B1 step");
  REQUIRE(short_form(good[1]) == "ra0 F0 B0 sg0 ra1 F1 B1 sg1 step");
  REQUIRE_NOTHROW(validate(p, good));
  const auto finds = [&](auto&& plant, const std::string& text) {
    auto programs = good;
    for (auto& actions : programs) {
      for (auto& a : actions) a.after.clear();  // dependencies by number would be found first
    }
    plant(programs);
    CHECK_THROWS_WITH(validate(p, programs), ContainsSubstring("plan_does_not_fit") && ContainsSubstring(text));
  };
  const auto erase = [](program& actions, std::ptrdiff_t i) { actions.erase(actions.begin() + i); };

  finds([](auto& q) { q.pop_back(); }, "1 programs for 2 ranks");
  finds([&](auto& q) { erase(q[0], 7); }, "comes before the backward of rank 0 action 2");
  finds([&](auto& q) { erase(q[0], 8), erase(q[0], 7); },
        "rank 0 action 2 (forward r0 s0 m1 layers [0, 2)) has no backward after it");
  finds([&](auto& q) { q[0].erase(q[0].begin() + 6, q[0].begin() + 8), erase(q[0], 2), erase(q[0], 2); },
        "rank 0 never computes micro-batch 1");
  finds([](auto& q) { std::swap(q[1][1], q[1][2]); }, "has no forward of its micro-batch before it");
  finds([&](auto& q) { erase(q[1], 0); }, "has no recv of its activation before it");
  finds([&](auto& q) { erase(q[1], 3); }, "is never sent to the stage before");
  finds([&](auto& q) { erase(q[0], 1); }, "is never sent to the next stage");
  finds([](auto& q) { std::rotate(q[0].begin() + 5, q[0].end() - 1, q[0].end()); }, "comes before the backward of");
  finds([](auto& q) { std::rotate(q[1].begin() + 1, q[1].end() - 1, q[1].end()); }, "comes after the update");
  finds([](auto& q) { q[0][0].end_layer = 3; }, "computes other layers");
  finds([](auto& q) { q[0][0].stage = stage_id{1}; }, "does not place on this rank");
  finds([](auto& q) { q[0][0].micro_batch = micro_batch_id{5}; }, "beyond the 2 of the plan");
  finds([](auto& q) { q[0][2] = q[0][0]; }, "repeats rank 0 action 0");
  finds([](auto& q) { q[0][5].after = {7}; }, "which does not come before it");
  finds([](auto& q) { q[0][1].peer = rank_id{9}; }, "not another rank");
  finds([&](auto& q) { q[0][5].split = true, erase(q[0], 8); }, "has no backward_weight after it");

  // Sends in another order than the receives: the wrong message would be taken.
  finds([](auto& q) { std::swap(q[0][1], q[0][3]), std::swap(q[0][1], q[0][2]); }, "would receive the message of");
  // Both wait for the other: stage 0 wants its first gradient before it sends the second activation, stage 1 the
  // second activation before it sends the first gradient.
  finds(
      [](auto& q) {
        std::rotate(q[0].begin() + 2, q[0].begin() + 4, q[0].begin() + 6);  // F0 sa0 rg0 B0 F1 sa1
        std::rotate(q[1].begin() + 2, q[1].begin() + 4, q[1].begin() + 6);  // ra0 F0 ra1 F1 B0 sg0
      },
      "rank 0 action 2 (recv r0 s0 m0 gradient peer 1) waits for its peer, which itself waits at rank 1 action 2 (recv "
      "r0 "
      "s1 m1 activation peer 0)");
}

TEST_CASE("validation follows a backward that was cut in pieces, from the top down and without a gap") {
  plan p = pipeline_plan(1, 2);
  p.num_layers = 4;
  p.replicas[0].stages[0].end_layer = 4;
  const auto whole = programs_of(one_f_one_b_scheduler{}, p);
  auto cut = whole;  // F0 B0 F1 B1 step
  action lower = cut[0][3];
  lower.end_layer = 3;
  cut[0][3].first_layer = 3;
  insert_action(cut[0], 4, lower);
  insert_action(cut[0], 4, {.kind = action_kind::reduce, .bucket = 0, .after = {3}});
  REQUIRE(cut[0].size() == 7);
  REQUIRE_NOTHROW(validate(p, cut));
  CHECK(peak_in_flight(cut[0]) == 1);
  CHECK(peak_in_flight(whole[0]) == 1);

  const auto finds = [&](auto&& plant, const std::string& text) {
    auto programs = cut;
    plant(programs[0]);
    CHECK_THROWS_WITH(validate(p, programs), ContainsSubstring(text));
  };
  finds([](program& q) { q[5].end_layer = 2; },
        "computes other layers than the [0, 3) that are due after rank 0 action 3");
  finds([](program& q) { q[5].first_layer = 1; }, "comes before the backward of");
  finds([](program& q) { q[5].first_layer = 1, q.pop_back(); }, "is not continued to the start of its stage");
  finds([](program& q) { q[3].first_layer = 0; }, "repeats rank 0 action 3");
  finds([](program& q) { q[2].end_layer = 3; }, "has no forward of its micro-batch before it");
}

TEST_CASE("validation finds buckets reduced in different orders") {
  plan p = pipeline_plan(1, 1);
  p.roles.push_back(rank_role::worker);
  p.replicas.push_back(p.replicas[0]);
  p.replicas[1].stages[0].rank = rank_id{1};
  p.global_batch = 16;
  auto programs = programs_of(one_f_one_b_scheduler{}, p);
  for (auto& actions : programs) {
    for (const std::uint32_t bucket : {1U, 0U}) {
      insert_action(actions, actions.size() - 1, {.kind = action_kind::reduce, .bucket = bucket, .after = {1}});
    }
  }
  REQUIRE_NOTHROW(validate(p, programs));
  auto swapped = programs;
  std::swap(swapped[1][2], swapped[1][3]);
  CHECK_THROWS_WITH(validate(p, swapped), ContainsSubstring("reduce") && ContainsSubstring("reduces another bucket"));
  programs[1].erase(programs[1].begin() + 3);
  CHECK_THROWS_WITH(validate(p, programs), ContainsSubstring("rank 1 reduces 1 buckets of stage 0, rank 0 reduces 2"));
}

TEST_CASE("the pass that inserts gradient buckets keeps programs valid") {
  plan p = pipeline_plan(1, 2);
  p.num_layers = 5;
  p.roles = {rank_role::worker, rank_role::idle};
  p.replicas.push_back({.share = 0, .micro_batches = 2, .stages = {{.first_layer = 0, .rank = rank_id{1}}}});
  for (auto& r : p.replicas) r.stages[0].end_layer = 5;
  std::vector<bucket> buckets(3);
  buckets[0].ready_layer = 4;
  buckets[1].ready_layer = 2;
  buckets[2].ready_layer = 0;
  auto programs = programs_of(one_f_one_b_scheduler{}, p);
  for (auto& actions : programs) actions = insert_reduce(actions, buckets);
  CHECK(count_of(programs[0], action_kind::reduce) == 3);
  CHECK(count_of(programs[0], action_kind::backward_input) == 4);  // the second one in three pieces
  CHECK(count_of(programs[1], action_kind::reduce) == 3);
  CHECK_NOTHROW(validate(p, programs));
}
