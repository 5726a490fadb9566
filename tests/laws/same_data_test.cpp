// SPDX-License-Identifier: Apache-2.0
// Law 3: every sample exactly once per epoch, on any number of ranks, after any rebalance, rebind or resume.
#include "support/catch.hpp"

#include "laws/training.hpp"
#include "support/temp_dir.hpp"

#include <hetero/trainer/resume_json.hpp>

using namespace hetero;
using namespace hetero::test;

namespace {

constexpr std::uint64_t samples = 29;  // 7 + 7 + 7 + 7 + 1: the last step of an epoch leaves ranks without work
constexpr std::uint64_t global_batch = 7;
constexpr std::uint64_t steps_per_epoch = 5;

recorded_data data_to_record() {
  recorded_data data;
  static_cast<ragged_data&>(data) = data_for(small_mlp());
  data.samples = samples;
  data.ragged = false;  // the last step holds one sample; it must count
  return data;
}

/// How often each sample was loaded.
std::vector<std::size_t> counts(const recorded_data& data) {
  std::vector<std::size_t> seen(samples, 0);
  const std::lock_guard lock{data.loads->mutex};
  for (const std::uint64_t id : data.loads->ids) ++seen[id];
  return seen;
}

auto make_trainer(world& w, split shares, trainer_options options = untimed(numerics::fast)) {
  return trainer{small_mlp(), w, sgd{}, partitioner_for(shares, w.world_size()), options, one_thread()};
}

plan plan_of(std::vector<std::size_t> shares) {
  const auto ranks = static_cast<std::uint32_t>(shares.size());
  plan p{.num_layers = small_mlp().size(), .global_batch = global_batch};
  for (std::uint32_t r = 0; r < ranks; ++r) {
    p.roles.push_back(rank_role::worker);
    p.replicas.push_back({.stages = {{.end_layer = p.num_layers, .rank = rank_id{r}}}});
  }
  return with_shares(std::move(p), shares);
}

const std::vector<std::size_t> once(samples, 1);
const std::vector<std::size_t> twice(samples, 2);

}  // namespace

TEST_CASE("an epoch holds every sample once on any number of ranks", "[laws]") {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 9U}) {
    for (const split shares : all_splits) {
      const recorded_data data = data_to_record();
      run_ranks(ranks, [&](world& w) {
        auto t = make_trainer(w, shares);
        const batches<recorded_data> source{data, {.global_batch = global_batch, .seed = 5}};
        for (std::uint64_t i = 0; i < steps_per_epoch; ++i) (void)t.step(source);
      });
      INFO(ranks << " ranks, " << to_string(shares));
      REQUIRE(counts(data) == once);
    }
  }
}

TEST_CASE("control: a step less leaves samples out", "[laws]") {
  const recorded_data data = data_to_record();
  run_ranks(2, [&](world& w) {
    auto t = make_trainer(w, split::even);
    const batches<recorded_data> source{data, {.global_batch = global_batch, .seed = 5}};
    for (std::uint64_t i = 0; i + 1 < steps_per_epoch; ++i) (void)t.step(source);
  });
  REQUIRE(counts(data) != once);
}

TEST_CASE("shares that change in the middle of an epoch lose and repeat nothing", "[laws]") {
  const recorded_data data = data_to_record();
  run_ranks(3, [&](world& w) {
    trainer_options options = untimed(numerics::fast);
    options.replay = {{0, {3, 3, 1}}, {2, {0, 2, 5}}, {3, {7, 0, 0}}, {6, {1, 1, 5}}};
    auto t = make_trainer(w, split::even, options);
    const batches<recorded_data> source{data, {.global_batch = global_batch, .seed = 5}};
    for (std::uint64_t i = 0; i < 2 * steps_per_epoch; ++i) (void)t.step(source);
  });
  REQUIRE(counts(data) == twice);
}

TEST_CASE("a range of steps trains every sample once although it loads ahead and shares change", "[laws]") {
  // What was loaded ahead and dropped at a change is loaded again, so loads say nothing here; the losses do.
  for (const bool changing : {false, true}) {
    std::vector<double> losses[2];
    for (const bool ahead : {false, true}) {
      run_ranks(3, [&](world& w) {
        trainer_options options = untimed(numerics::reproducible);
        if (changing) options.replay = {{0, {3, 3, 1}}, {2, {0, 2, 5}}, {3, {7, 0, 0}}, {4, {1, 1, 5}}};
        auto t = make_trainer(w, split::even, options);
        const recorded_data data = data_to_record();
        const batches<recorded_data> source{data, {.global_batch = global_batch, .seed = 5}};
        const auto note = [&](const step_report& r) {
          if (w.rank() == rank_id{0}) losses[ahead ? 1 : 0].push_back(r.loss);
        };
        if (ahead) {
          for (const step_report& r : t.steps(source, 2 * steps_per_epoch)) note(r);
        } else {
          for (std::uint64_t i = 0; i < 2 * steps_per_epoch; ++i) note(t.step(source));
        }
      });
    }
    REQUIRE(losses[0].size() == 2 * steps_per_epoch);
    REQUIRE(same_bits(losses[0], losses[1]));
  }
}

TEST_CASE("a resumed run goes on with the sample that is due, whatever the number of ranks", "[laws]") {
  const temp_dir folder{"same-data"};
  for (const std::uint32_t ranks_after : {1U, 2U, 3U, 5U}) {
    const recorded_data data = data_to_record();
    const std::string file = (folder / ("after-" + std::to_string(ranks_after))).string();
    const batches<recorded_data> source{data, {.global_batch = global_batch, .seed = 5}};
    run_ranks(3, [&](world& w) {
      auto t = make_trainer(w, split::five_three_one);
      for (int i = 0; i < 3; ++i) (void)t.step(source);
      t.save(file);
    });
    run_ranks(ranks_after, [&](world& w) {
      auto t = make_trainer(w, split::five_three_one);
      resume(t, file);
      while (t.position() < 2 * steps_per_epoch) (void)t.step(source);
    });
    INFO("from 3 ranks to " << ranks_after);
    REQUIRE(counts(data) == twice);
  }
}

TEST_CASE("ranks that leave and join in the middle of an epoch lose and repeat nothing", "[laws]") {
  const recorded_data data = data_to_record();
  const batches<recorded_data> source{data, {.global_batch = global_batch, .seed = 5}};
  run_ranks(3, [&](world& w) {
    auto t = make_trainer(w, split::even);
    for (int i = 0; i < 2; ++i) (void)t.step(source);
    world two = w.split(w.rank() == rank_id{2} ? 1 : 0, 0);
    if (w.rank() != rank_id{2}) {
      t.rebind(two, plan_of({5, 2}));
      for (int i = 0; i < 2; ++i) (void)t.step(source);
    }
    t.rebind(w, plan_of({1, 2, 4}));  // rank 2 comes back and learns where the others are
    for (int i = 0; i < 1; ++i) (void)t.step(source);
  });
  REQUIRE(counts(data) == once);
}
