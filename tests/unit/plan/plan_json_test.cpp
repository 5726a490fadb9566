// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <hetero/plan/plan_json.hpp>
#include <hetero/plan/program_json.hpp>

#include "support/catch.hpp"

namespace {

using namespace hetero;

plan two_stage_plan() {
  plan p{
      .epoch = 7, .num_layers = 5, .global_batch = 9, .roles = {rank_role::worker, rank_role::worker, rank_role::idle}};
  replica_placement r{.share = 9, .micro_batches = 4};
  r.stages.push_back({.first_layer = 0, .end_layer = 3, .rank = rank_id{0}});
  r.stages.push_back({.first_layer = 3,
                      .end_layer = 5,
                      .rank = rank_id{1},
                      .device = 1,
                      .stream = 2,
                      .shards = {{"head.weight", 10, 20}}});
  p.replicas.push_back(r);
  return p;
}

template <class F> std::string bad_file_text(F&& read) {
  try {
    read();
  } catch (const error& e) {
    REQUIRE(e.code() == errc::bad_file);
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("a plan survives JSON and keeps its hash") {
  const plan p = two_stage_plan();
  const plan again = read_plan(write_plan(p));
  CHECK(again == p);
  CHECK(plan_hash(again) == plan_hash(p));
  CHECK(plan_from_json(plan_to_json(p)) == p);
}

TEST_CASE("the hash sees every field of a plan") {
  const plan p = two_stage_plan();
  const auto differs = [&](auto&& change) {
    plan other = p;
    change(other);
    return plan_hash(other) != plan_hash(p);
  };
  CHECK_FALSE(differs([](plan&) {}));  // control
  CHECK(differs([](plan& q) { ++q.epoch; }));
  CHECK(differs([](plan& q) { ++q.num_layers; }));
  CHECK(differs([](plan& q) { ++q.global_batch; }));
  CHECK(differs([](plan& q) { q.roles[2] = rank_role::server; }));
  CHECK(differs([](plan& q) { q.roles.pop_back(); }));
  CHECK(differs([](plan& q) { ++q.replicas[0].share; }));
  CHECK(differs([](plan& q) { ++q.replicas[0].micro_batches; }));
  CHECK(differs([](plan& q) { q.replicas[0].stages[1].device = 0; }));
  CHECK(differs([](plan& q) { q.replicas[0].stages[1].stream = 0; }));
  CHECK(differs([](plan& q) { q.replicas[0].stages[1].shards[0].end = 21; }));
  CHECK(differs([](plan& q) { q.replicas[0].stages[1].shards[0].parameter = "head.bias"; }));
}

TEST_CASE("a plan that was changed by hand is refused") {
  auto json = plan_to_json(two_stage_plan());
  json["epoch"] = 8;
  CHECK_THAT(bad_file_text([&] { (void)plan_from_json(json); }), ContainsSubstring("plan.hash"));
}

TEST_CASE("a plan of a newer format is refused by its version, before anything else is read") {
  auto json = plan_to_json(two_stage_plan());
  json["version"] = plan::current_version + 1;
  json.erase("roles");
  CHECK_THAT(bad_file_text([&] { (void)plan_from_json(json); }),
             ContainsSubstring("plan.version") && ContainsSubstring("reads up to version 1"));
}

TEST_CASE("every damaged field of a plan is named") {
  const auto text_after = [](auto&& change) {
    auto json = plan_to_json(two_stage_plan());
    change(json);
    return bad_file_text([&] { (void)plan_from_json(json); });
  };
  CHECK_THAT(text_after([](auto& j) { j.erase("global_batch"); }),
             ContainsSubstring("\"plan.global_batch\" is missing"));
  CHECK_THAT(text_after([](auto& j) { j["epoch"] = -1; }), ContainsSubstring("plan.epoch"));
  CHECK_THAT(text_after([](auto& j) { j["num_layers"] = 1.5; }), ContainsSubstring("plan.num_layers"));
  CHECK_THAT(text_after([](auto& j) { j["roles"] = "worker"; }), ContainsSubstring("plan.roles"));
  CHECK_THAT(text_after([](auto& j) { j["roles"][1] = "manager"; }),
             ContainsSubstring("plan.roles[1]") && ContainsSubstring("worker, server, idle"));
  CHECK_THAT(text_after([](auto& j) { j["replicas"][0]["stages"][1]["device"] = 70000; }),
             ContainsSubstring("plan.replicas[0].stages[1].device") && ContainsSubstring("65535"));
  CHECK_THAT(text_after([](auto& j) { j["replicas"][0]["stages"][1]["shards"][0].erase("end"); }),
             ContainsSubstring("plan.replicas[0].stages[1].shards[0].end"));
  CHECK_THAT(text_after([](auto& j) { j["format"] = "torch"; }), ContainsSubstring("plan.format"));
  CHECK_THAT(text_after([](auto& j) { j = 3; }), ContainsSubstring("an object is needed"));
}

TEST_CASE("every truncation of a plan's text is a typed error") {
  const std::string text = write_plan(two_stage_plan());
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    INFO(length);
    CHECK_THAT(bad_file_text([&] { (void)read_plan(std::string_view{text}.substr(0, length)); }),
               ContainsSubstring("bad_file"));
  }
}

TEST_CASE("a plan whose hash is right but whose shares are wrong is refused") {
  plan p = two_stage_plan();
  p.replicas[0].share = 8;
  REQUIRE_THROWS_WITH(plan_from_json(plan_to_json(p)),
                      ContainsSubstring("plan_does_not_fit") && ContainsSubstring("shares add up to 8"));
}

TEST_CASE("a program survives JSON and refuses changes") {
  const program actions{
      {.kind = action_kind::recv, .stage = stage_id{1}, .micro_batch = micro_batch_id{2}, .peer = rank_id{3}},
      {.kind = action_kind::backward_input,
       .replica = replica_id{1},
       .first_layer = 2,
       .end_layer = 4,
       .split = true,
       .opportunistic = true,
       .after = {0}},
      {.kind = action_kind::send, .peer = rank_id{1}, .gradient = true, .after = {1}},
      {.kind = action_kind::reduce, .bucket = 5},
      {.kind = action_kind::fetch}};
  CHECK(read_program(write_program(actions)) == actions);
  CHECK(read_program(write_program({})).empty());

  auto json = program_to_json(actions);
  json["actions"][3]["bucket"] = 6;
  CHECK_THAT(bad_file_text([&] { (void)program_from_json(json); }), ContainsSubstring("program.hash"));
  json = program_to_json(actions);
  json["actions"][0]["kind"] = "dance";
  CHECK_THAT(bad_file_text([&] { (void)program_from_json(json); }), ContainsSubstring("program.actions[0].kind"));
  json = program_to_json(actions);
  json["actions"][0]["colour"] = 1;
  CHECK_THAT(bad_file_text([&] { (void)program_from_json(json); }), ContainsSubstring("program.actions[0].colour"));
  json = program_to_json(actions);
  json["actions"][1]["after"] = {-1};
  CHECK_THAT(bad_file_text([&] { (void)program_from_json(json); }), ContainsSubstring("program.actions[1].after"));
  json = program_to_json(actions);
  json["version"] = 2;
  CHECK_THAT(bad_file_text([&] { (void)program_from_json(json); }), ContainsSubstring("program.version"));
}
