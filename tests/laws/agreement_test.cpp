// SPDX-License-Identifier: Apache-2.0
// Law 4: ranks that were started differently find out before they train: an error on every rank that names both values.
#include "support/catch.hpp"

#include "laws/training.hpp"
#include "support/temp_dir.hpp"
#include "unit/comm/tcp_ranks.hpp"

#include <chrono>
#include <optional>

#include <hetero/trainer/resume_json.hpp>

using namespace hetero;
using namespace hetero::test;

namespace {

/// What each rank met, and the seconds until the last of them knew.
struct answers {
  std::vector<std::optional<error>> met;
  double seconds = 0;
};

using runner = void (*)(std::uint32_t, const std::function<void(world&)>&);
void in_process(std::uint32_t ranks, const std::function<void(world&)>& body) { run_ranks(ranks, body); }

template <class Body> answers run_and_catch(std::uint32_t ranks, Body&& body, runner start = &in_process) {
  answers all{std::vector<std::optional<error>>(ranks)};
  const auto began = std::chrono::steady_clock::now();
  start(ranks, [&](world& w) {
    try {
      body(w);
    } catch (const error& e) {
      all.met[index_of(w.rank())] = e;
    }
  });
  all.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return all;
}

constexpr double patience_s = 10;  // a second is promised; the machine that runs this may be busy

void expect_mismatch(const answers& v, const std::string& mine, const std::string& theirs) {
  REQUIRE(v.seconds < patience_s);
  for (const auto& met : v.met) {
    REQUIRE(met.has_value());
    INFO(met->what());
    REQUIRE(met->code() == errc::mismatch);
    REQUIRE_THAT(met->what(), ContainsSubstring(mine) && ContainsSubstring(theirs));
  }
}

/// The odd one out is the last rank.
bool is_odd(const world& w) { return index_of(w.rank()) + 1 == w.world_size(); }

struct start_options {
  mlp model = small_mlp();
  trainer_options options = untimed(numerics::fast);
  adamw optimizer{};
  learning_rate_schedule rate{};
  clip_norm clip{};
  std::uint32_t micro_batches = 1;
  all_reduce_synchronizer sync{};
  std::uint64_t data_seed = 1;
  std::uint64_t global_batch = 6;
  std::uint64_t order_seed = 2;
};

void start_and_step(world& w, const start_options& s) {
  trainer t{s.model,
            w,
            s.optimizer,
            s.rate,
            s.clip,
            ratio_partitioner{},
            one_f_one_b_scheduler{.micro_batches = s.micro_batches},
            s.sync,
            s.options,
            one_thread()};
  ragged_data data = data_for(s.model);
  data.seed = s.data_seed;
  (void)t.step(batches<ragged_data>{data, {.global_batch = s.global_batch, .seed = s.order_seed}});
}

/// Two and three ranks, in process and over TCP, of which the last was started with `odd`.
void expect_refused(const start_options& odd, const std::string& mine, const std::string& theirs) {
  for (const auto start :
       {&in_process,
        static_cast<runner>([](std::uint32_t n, const std::function<void(world&)>&body) { run_tcp_ranks(n, body); })}) {
    for (const std::uint32_t ranks : {2U, 3U}) {
      expect_mismatch(run_and_catch(
                          ranks, [&](world& w) { start_and_step(w, is_odd(w) ? odd : start_options{}); }, start),
                      mine, theirs);
    }
  }
}

}  // namespace

TEST_CASE("control: ranks that were started alike train", "[laws]") {
  const answers v = run_and_catch(3, [](world& w) { start_and_step(w, {}); });
  for (const auto& met : v.met) REQUIRE_FALSE(met.has_value());
}

TEST_CASE("ranks with different models are refused", "[laws]") {
  expect_refused({.model = mlp{{.widths = {5, 12, 8, 4}}}}, "mlp(5, 12, 7, 4)", "mlp(5, 12, 8, 4)");
}

TEST_CASE("ranks with different options are refused", "[laws]") {
  start_options odd;
  odd.options.seed = 8;
  expect_refused(odd, "seed 7", "seed 8");
  odd = {};
  odd.options.mode = numerics::reproducible;
  expect_refused(odd, "fast numerics", "reproducible numerics");
  odd = {};
  odd.options.type = dtype::f64;
  expect_refused(odd, "f32", "f64");
  odd = {};
  odd.options.rebalance = true;
  expect_refused(odd, "rebalance off", "rebalance on");
}

TEST_CASE("ranks with different policies are refused, down to the last digit", "[laws]") {
  expect_refused({.optimizer = {.learning_rate = 1e-9}}, "0.001", "1e-09");
  expect_refused({.optimizer = {.beta2 = 0.95}}, "0.999", "0.95");
  expect_refused({.optimizer = {.weight_decay = 0.02}}, "0.01}", "0.02}");
  expect_refused({.rate = {cosine_rate{.warm_up_steps = 3, .total_steps = 90}}}, "0{0}", "1{3, 90, 0.1}");
  expect_refused({.clip = {.max_norm = 1}}, "clipping {0}", "clipping {1}");
  expect_refused({.micro_batches = 3}, "scheduler {1}", "scheduler {3}");
  expect_refused({.sync = {.bucket_bytes = 64}}, "{4194304, on, 0}", "{64, on, 0}");
}

TEST_CASE("ranks with different data, order or batch are refused", "[laws]") {
  expect_refused({.data_seed = 9}, "fingerprint", "global batch 6");
  expect_refused({.order_seed = 9}, "fingerprint", "global batch 6");
  expect_refused({.global_batch = 8}, "global batch 6", "global batch 8");
}

TEST_CASE("ranks with different plans are refused", "[laws]") {
  const auto plan_for = [](std::size_t first, std::uint64_t epoch) {
    plan p{.epoch = epoch,
           .num_layers = small_mlp().size(),
           .global_batch = 6,
           .roles = {rank_role::worker, rank_role::worker}};
    for (std::uint32_t r = 0; r < 2; ++r)
      p.replicas.push_back({.stages = {{.end_layer = p.num_layers, .rank = rank_id{r}}}});
    return with_shares(std::move(p), {first, 6 - first});
  };
  const auto rebind_to = [&](const plan& mine, const plan& odd) {
    return run_and_catch(2, [&](world& w) {
      trainer t{small_mlp(), w, ratio_partitioner{}, untimed(numerics::fast), one_thread()};
      t.rebind(w, is_odd(w) ? odd : mine);
    });
  };
  for (const auto& met : rebind_to(plan_for(2, 0), plan_for(2, 0)).met) REQUIRE_FALSE(met.has_value());
  expect_mismatch(rebind_to(plan_for(2, 0), plan_for(4, 0)), to_hex(plan_hash(plan_for(2, 0))),
                  to_hex(plan_hash(plan_for(4, 0))));
  expect_mismatch(rebind_to(plan_for(2, 4), plan_for(2, 5)), "epoch 4", "epoch 5");
}

TEST_CASE("ranks that resumed at different steps are refused", "[laws]") {
  const temp_dir folder{"agreement"};
  const batches<ragged_data> source{data_for(small_mlp()), {.global_batch = 6}};
  const auto file = [&](int step) { return (folder / std::to_string(step)).string(); };
  const auto make = [](world& w) {
    return trainer{small_mlp(), w, ratio_partitioner{}, untimed(numerics::fast), one_thread()};
  };
  run_ranks(2, [&](world& w) {
    auto t = make(w);
    for (const int step : {1, 2}) {
      (void)t.step(source);
      t.save(file(step));
    }
  });
  const auto resume_from = [&](bool all) {
    return run_and_catch(2, [&](world& w) {
      auto t = make(w);
      if (all || is_odd(w)) resume(t, file(is_odd(w) ? 2 : 1));
      (void)t.step(source);
    });
  };
  expect_mismatch(resume_from(true), "step 1", "step 2");
  expect_mismatch(resume_from(false), "step 0", "step 2");
}

TEST_CASE("a rank that stops early is an error for the others, not a hang", "[laws]") {
  const batches<ragged_data> source{data_for(small_mlp()), {.global_batch = 6}};
  const auto body = [&](world& w) {
    w.set_timeout(std::chrono::milliseconds{1000});
    trainer t{small_mlp(), w, ratio_partitioner{}, untimed(numerics::fast), one_thread()};
    for (int i = 0; i < (is_odd(w) ? 2 : 5); ++i) (void)t.step(source);
  };
  // In one process the handle of the rank that stopped lives on, so the others see silence; over TCP they see it leave.
  const answers silent = run_and_catch(3, body);
  const answers gone =
      run_and_catch(3, body, [](std::uint32_t n, const std::function<void(world&)>& b) { run_tcp_ranks(n, b); });
  for (const auto* v : {&silent, &gone}) {
    REQUIRE(v->seconds < patience_s);
    REQUIRE_FALSE(v->met[2].has_value());
    for (std::size_t r = 0; r < 2; ++r) {
      REQUIRE(v->met[r].has_value());
      INFO(v->met[r]->what());
      const errc code = v->met[r]->code();
      REQUIRE((code == errc::timeout || code == errc::peer_lost));
    }
  }
}

TEST_CASE("a rank that fails ends the others at once", "[laws]") {
  const batches<ragged_data> source{data_for(small_mlp()), {.global_batch = 6}};
  const auto began = std::chrono::steady_clock::now();
  std::string text;
  try {
    run_ranks(3, [&](world& w) {
      trainer t{small_mlp(), w, ratio_partitioner{}, untimed(numerics::fast), one_thread()};
      (void)t.step(source);
      if (is_odd(w)) throw error{errc::io, "the disk of rank 2 is on fire"};
      for (;;) (void)t.step(source);
    });
  } catch (const error& e) {
    text = e.what();
  }
  REQUIRE_THAT(text, ContainsSubstring("the disk of rank 2 is on fire"));
  REQUIRE(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() < patience_s);
}
