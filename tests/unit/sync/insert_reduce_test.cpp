// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <map>
#include <numeric>

#include <hetero/model/gpt.hpp>
#include <hetero/model/mlp.hpp>
#include <hetero/plan/share.hpp>
#include <hetero/schedule/gpipe.hpp>
#include <hetero/schedule/one_f_one_b.hpp>
#include <hetero/sync/insert_reduce.hpp>

using namespace hetero;

namespace {

plan plan_of(std::size_t layers, std::vector<std::size_t> shares, std::uint32_t micro_batches) {
  plan p{.num_layers = layers, .global_batch = std::accumulate(shares.begin(), shares.end(), std::size_t{0})};
  for (std::uint32_t r = 0; r < shares.size(); ++r) {
    p.roles.push_back(rank_role::worker);
    p.replicas.push_back({.micro_batches = micro_batches, .stages = {{.end_layer = layers, .rank = rank_id{r}}}});
  }
  return with_shares(std::move(p), shares);
}

std::vector<std::string> texts(const program& actions) {
  std::vector<std::string> all;
  for (const auto& a : actions) all.push_back(to_string(a));
  return all;
}

/// What must hold for any program with reduce actions.
void check(const program& before, const program& after, const std::vector<bucket>& buckets, std::size_t layers) {
  INFO([&] {
    std::string text;
    for (const auto& line : texts(after)) text += line + '\n';
    return text;
  }());
  std::size_t next_bucket = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    for (const auto dependency : after[i].after) REQUIRE(dependency < i);
    if (after[i].kind == action_kind::reduce) REQUIRE(after[i].bucket == next_bucket++);  // each once, in order
  }
  REQUIRE(next_bucket == buckets.size());

  // Every micro-batch still walks back through every layer once, from the last to the first.
  std::map<std::uint32_t, std::size_t> reached;
  for (std::size_t i = 0; i < after.size(); ++i) {
    const auto& a = after[i];
    if (a.kind == action_kind::backward_input) {
      const auto m = index_of(a.micro_batch);
      REQUIRE(a.end_layer == (reached.contains(m) ? reached[m] : layers));
      reached[m] = a.first_layer;
    }
    if (a.kind == action_kind::reduce) {
      // All layers of the bucket are done for all micro-batches of the rank.
      std::size_t micro_batches = 0;
      for (const auto& b : before) micro_batches += b.kind == action_kind::backward_input ? 1 : 0;
      if (micro_batches == 0) continue;
      REQUIRE(reached.size() == micro_batches);
      for (const auto& [m, layer] : reached) REQUIRE(layer <= buckets[a.bucket].ready_layer);
    }
  }
  for (const auto& [m, layer] : reached) REQUIRE(layer == 0);
  // The step waits for all of them.
  const auto& step = after.back();
  REQUIRE(step.kind == action_kind::step);
  std::size_t awaited = 0;
  for (const auto dependency : step.after) awaited += after[dependency].kind == action_kind::reduce ? 1 : 0;
  REQUIRE(awaited == buckets.size());
  // Without the reduce actions and with the pieces put together it is the program it was.
  program rest;
  for (auto a : after) {
    if (a.kind == action_kind::reduce) continue;
    a.after.clear();
    if (!rest.empty() && rest.back().kind == a.kind && rest.back().micro_batch == a.micro_batch &&
        rest.back().first_layer == a.end_layer && a.kind == action_kind::backward_input) {
      rest.back().first_layer = a.first_layer;
    } else {
      rest.push_back(a);
    }
  }
  program plain = before;
  for (auto& a : plain) a.after.clear();
  REQUIRE(texts(rest) == texts(plain));
}

}  // namespace

TEST_CASE("reduce actions follow the pieces of the last backward pass", "[sync]") {
  const mlp m{{.widths = {4, 8, 8, 3}}};
  const auto layout = layout_of(m);
  const auto buckets = make_buckets(layout, dtype::f32, 1);  // one bucket per parameter
  REQUIRE(buckets.size() == 6);
  const program actions = one_f_one_b_scheduler{}.actions(plan_of(3, {4}, 2), rank_id{0});
  const program with = insert_reduce(actions, buckets);
  REQUIRE(texts(with) == std::vector<std::string>{
                             "forward r0 s0 m0 layers [0, 3)", "backward_input r0 s0 m0 layers [0, 3)",
                             "forward r0 s0 m1 layers [0, 3)", "backward_input r0 s0 m1 layers [2, 3)",
                             "reduce r0 s0 m0 bucket 0", "reduce r0 s0 m0 bucket 1",
                             "backward_input r0 s0 m1 layers [1, 2)", "reduce r0 s0 m0 bucket 2",
                             "reduce r0 s0 m0 bucket 3", "backward_input r0 s0 m1 layers [0, 1)",
                             "reduce r0 s0 m0 bucket 4", "reduce r0 s0 m0 bucket 5", "step r0 s0 m0 layers [0, 3)"});
  check(actions, with, buckets, 3);
}

TEST_CASE("any schedule, bucket size and share gives a program that keeps its order", "[sync]") {
  const gpt m{{.layers = 3, .heads = 2, .width = 8, .context = 4, .vocabulary = 9}};
  const auto layout = layout_of(m);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{700}, std::size_t{3000}, std::size_t{1} << 30U}) {
    const auto buckets = make_buckets(layout, dtype::f32, bytes);
    for (const std::uint32_t micro_batches : {1U, 2U, 5U}) {
      const plan p = plan_of(m.size(), {7, 0, 1}, micro_batches);
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        const program one = one_f_one_b_scheduler{}.actions(p, rank_id{rank});
        check(one, insert_reduce(one, buckets), buckets, m.size());
        const program all_forward = gpipe_scheduler{}.actions(p, rank_id{rank});
        check(all_forward, insert_reduce(all_forward, buckets), buckets, m.size());
      }
    }
  }
}

TEST_CASE("a rank without work still takes part in every reduction", "[sync]") {
  const mlp m{{.widths = {4, 8, 3}}};
  const auto buckets = make_buckets(layout_of(m), dtype::f32, 1);
  const program idle = one_f_one_b_scheduler{}.actions(plan_of(2, {3, 0}, 1), rank_id{1});
  REQUIRE(idle.size() == 1);
  const program with = insert_reduce(idle, buckets);
  REQUIRE(with.size() == 1 + buckets.size());
  REQUIRE(with.back().kind == action_kind::step);
  REQUIRE(with.back().after.size() == buckets.size());
}

TEST_CASE("a split backward pass reduces after its weight half", "[sync]") {
  const std::vector<bucket> buckets{{8, 16, 1}, {0, 8, 0}};
  const program actions{{.kind = action_kind::forward, .end_layer = 2},
                        {.kind = action_kind::backward_input, .end_layer = 2, .split = true, .after = {0}},
                        {.kind = action_kind::backward_weight, .end_layer = 2, .after = {1}},
                        {.kind = action_kind::step, .end_layer = 2, .after = {2}}};
  const program with = insert_reduce(actions, buckets);
  REQUIRE(texts(with) == std::vector<std::string>{"forward r0 s0 m0 layers [0, 2)",
                                                  "backward_input r0 s0 m0 layers [0, 2)",
                                                  "backward_weight r0 s0 m0 layers [1, 2)", "reduce r0 s0 m0 bucket 0",
                                                  "backward_weight r0 s0 m0 layers [0, 1)", "reduce r0 s0 m0 bucket 1",
                                                  "step r0 s0 m0 layers [0, 2)"});
  REQUIRE(with[2].after == std::vector<std::uint32_t>{1});
  REQUIRE(with[5].after == std::vector<std::uint32_t>{4});
}

TEST_CASE("without buckets nothing is cut, and a program without a step is refused", "[sync]") {
  const program actions = one_f_one_b_scheduler{}.actions(plan_of(2, {3}, 2), rank_id{0});
  REQUIRE(insert_reduce(actions, {}) == actions);
  try {
    (void)insert_reduce({{.kind = action_kind::forward, .end_layer = 1}}, {});
    FAIL("nothing was thrown");
  } catch (const error& e) {
    REQUIRE(e.code() == errc::invalid_argument);
    REQUIRE_THAT(e.what(), ContainsSubstring("step action"));
  }
}
