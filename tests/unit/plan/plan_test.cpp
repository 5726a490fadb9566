// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <hetero/plan/plan.hpp>
#include <hetero/plan/plan_table.hpp>
#include <hetero/plan/program.hpp>
#include <hetero/plan/timeline.hpp>

#include "support/catch.hpp"

namespace {

using namespace hetero;

plan data_parallel_plan() {
  plan p{.num_layers = 6, .global_batch = 8, .roles = {rank_role::worker, rank_role::worker, rank_role::idle}};
  const std::size_t shares[] = {6, 2, 0};
  for (std::uint32_t i = 0; i < 3; ++i) {
    replica_placement r{.share = shares[i], .micro_batches = 4};
    r.stages.push_back({.first_layer = 0, .end_layer = 6, .rank = rank_id{i}});
    p.replicas.push_back(r);
  }
  return p;
}

}  // namespace

TEST_CASE("micro-batch ranges cover a share once and in order, larger ones first") {
  for (std::size_t share = 0; share < 30; ++share) {
    for (std::uint32_t count = 1; count < 9; ++count) {
      std::size_t next = 0;
      std::size_t before = share;
      for (std::uint32_t m = 0; m < count; ++m) {
        const sample_range range = micro_batch_range(share, count, micro_batch_id{m});
        CHECK(range.begin == next);
        CHECK(range.count() <= before);
        before = range.count();
        next = range.end;
      }
      CHECK(next == share);
    }
  }
}

TEST_CASE("validation of a plan accepts a good one and names each broken rule") {
  CHECK_NOTHROW(validate(data_parallel_plan()));  // control
  const auto refuses = [](const char* rule, auto&& change) {
    plan p = data_parallel_plan();
    change(p);
    REQUIRE_THROWS_WITH(validate(p), ContainsSubstring(rule));
  };
  refuses("plan format 2", [](plan& p) { p.version = 2; });
  refuses("shares add up to 9", [](plan& p) { p.replicas[1].share = 3; });
  refuses("replica 0 has no micro-batches", [](plan& p) { p.replicas[0].micro_batches = 0; });
  refuses("covers 5 of 6", [](plan& p) { p.replicas[2].stages[0].end_layer = 5; });
  refuses("where layer 0 should start", [](plan& p) { p.replicas[2].stages[0].first_layer = 1; });
  refuses("names rank 3 of a world of 3", [](plan& p) { p.replicas[2].stages[0].rank = rank_id{3}; });
}

TEST_CASE("a plan knows which samples a replica and a rank see") {
  const plan p = data_parallel_plan();
  CHECK(p.first_sample(replica_id{0}) == 0);
  CHECK(p.first_sample(replica_id{1}) == 6);
  CHECK(p.first_sample(replica_id{2}) == 8);
  CHECK(p.share_of(rank_id{1}) == 2);
  CHECK(p.share_of(rank_id{2}) == 0);
}

TEST_CASE("the table of a plan shows shares, idle ranks and emulated devices") {
  cluster machines;
  machines.ranks = {{.device = "cpu:1"}, {.device = "cpu:1@0.33 (emulated)"}, {.device = "cpu:1"}};
  const std::string table = plan_table(data_parallel_plan(), machines);
  INFO(table);
  CHECK_THAT(table, ContainsSubstring("rank  device                 role    share     %  micro-batches  layers\n"));
  CHECK_THAT(table, ContainsSubstring("   0  cpu:1                  worker      6  75.0              4  0-5\n"));
  CHECK_THAT(table, ContainsSubstring("   1  cpu:1@0.33 (emulated)  worker      2  25.0              4  0-5\n"));
  CHECK_THAT(table, ContainsSubstring("   2  cpu:1                  idle        0   0.0              -  -\n"));
  CHECK_THAT(table, ContainsSubstring("global batch 8, 6 layers, plan " + to_hex(plan_hash(data_parallel_plan()))));
  CHECK_THAT(plan_table(data_parallel_plan(), {}), ContainsSubstring("?"));
}

TEST_CASE("inserting an action keeps the dependencies of the others") {
  program actions{{.kind = action_kind::forward},
                  {.kind = action_kind::backward_input, .after = {0}},
                  {.kind = action_kind::step, .after = {1}}};
  insert_action(actions, 2, {.kind = action_kind::reduce, .after = {1}});
  insert_action(actions, 0, {.kind = action_kind::fetch});
  REQUIRE(actions.size() == 5);
  CHECK(actions[2].after == std::vector<std::uint32_t>{1});  // backward after forward
  CHECK(actions[3].after == std::vector<std::uint32_t>{2});  // reduce after backward
  CHECK(actions[4].after == std::vector<std::uint32_t>{2});  // step after backward
  CHECK_THROWS_WITH(insert_action(actions, 1, {.kind = action_kind::gather, .after = {1}}),
                    ContainsSubstring("comes later"));
  CHECK_THROWS_WITH(insert_action(actions, 6, {}), ContainsSubstring("position 6"));
  CHECK(actions.size() == 5);
}

TEST_CASE("a timeline counts overlapping compute once and transfers not at all") {
  timeline t;
  t.intervals = {{.rank = rank_id{0}, .kind = action_kind::forward, .begin_s = 1, .end_s = 3},
                 {.rank = rank_id{0}, .stream = 1, .kind = action_kind::backward_input, .begin_s = 2, .end_s = 4},
                 {.rank = rank_id{0}, .kind = action_kind::reduce, .begin_s = 4, .end_s = 9},
                 {.rank = rank_id{0}, .kind = action_kind::step, .begin_s = 9, .end_s = 10},
                 {.rank = rank_id{1}, .kind = action_kind::forward, .begin_s = 0, .end_s = 5}};
  CHECK(busy_s(t, rank_id{0}) == Approx(4.0));
  CHECK(busy_s(t, rank_id{1}) == Approx(5.0));
  CHECK(busy_s(t, rank_id{2}) == 0.0);
  CHECK(duration_s(t) == Approx(10.0));
  CHECK(duration_s({}) == 0.0);
}
