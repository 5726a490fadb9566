// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include <hetero/partition/verdict.hpp>
#include <hetero/trainer.hpp>

namespace {

std::string some_text() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The quick brown fox jumps over the lazy dog, " + std::to_string(i) + " times.\n";
  return text;
}

}  // namespace

int main() {
  const auto corpus = hetero::text_corpus::from_string(some_text());
  const auto batches = corpus.batches({.global_batch = 16});
  const hetero::gpt model{{.layers = 1, .heads = 2, .width = 32, .context = 32, .vocabulary = corpus.vocabulary()}};

  // [pool]
  const hetero::device_pool pool = hetero::parse_pool("cpu:1,cpu:1@0.5");
  hetero::run_pool(pool, [&](hetero::pool_member& here) {
    hetero::trainer trainer{model, here.world, here.device,
                            hetero::trainer_options{.declared_speed = here.spec.speed,
                                                    .device_name = to_string(here.spec)}};
    trainer.prepare(batches);
    if (here.world.rank() == hetero::rank_id{0}) {
      std::printf("%s", hetero::plan_table(trainer.current_plan(), trainer.machines()).c_str());
    }
    for (const auto& step : trainer.steps(batches, 20)) hetero::report(step);
  });
  // [pool]

  // [alone]
  hetero::run_pool(pool, [&](hetero::pool_member& here) {
    hetero::trainer trainer{model, here.world, here.device,
                            hetero::fixed_partitioner{.shares = {11, 5}},
                            hetero::trainer_options{.measure = false, .rebalance = false}};
    for (const auto& step : trainer.steps(batches, 5)) hetero::report(step);
  });
  // [alone]

  // [verdicts]
  const hetero::cluster machines{.ranks = {{.device = "fast", .compute = {.per_sample_s = 0.01}},
                                           {.device = "slow", .compute = {.per_sample_s = 1.0}}}};
  const hetero::workload work{.global_batch = 8};
  const auto profile = hetero::profile_of(model);
  const hetero::plan plan = hetero::balanced_partitioner{}.partition(profile, machines, work);
  for (const auto& rank : hetero::verdicts(plan, hetero::replicated_memory_model{}, profile, machines, work)) {
    if (rank.leave_out()) std::printf("%s\n", rank.text.c_str());
  }
  // [verdicts]
  hetero::require(plan.replicas[1].share == 0, hetero::errc::invalid_argument, "the slow rank should have no samples");

  // [drift]
  hetero::throttle_control speed{1.0};
  hetero::run_ranks(2, [&](hetero::world& world, hetero::rank_id rank) {
    const bool changes = rank == hetero::rank_id{1};
    auto device = hetero::make_device({.kind = hetero::device_kind::cpu},
                                      {.throttle = changes ? std::optional{speed} : std::nullopt});
    hetero::trainer trainer{model, world, device, hetero::rebalancer{.minimum_gain = 0.05}};
    for (const auto& step : trainer.steps(batches, 30)) {
      if (changes && step.step == 10) speed.set_speed(0.25);  // another job starts on this device
      if (step.rank == 0 && step.rebalanced) std::printf("new shares after step %d\n", static_cast<int>(step.step));
    }
  });
  // [drift]
}
