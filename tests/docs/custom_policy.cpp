// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

// [include]
#include <hetero/schedule/validate.hpp>
#include <hetero/trainer.hpp>
// [include]

namespace {

// [splitter]
struct courteous_splitter {
  double first = 0.5;  // of what rank 0 could do: somebody works on that machine

  std::vector<std::size_t> split(std::size_t samples, const hetero::cluster& machines) const {
    hetero::require_measured(machines);
    std::vector<double> speeds;
    for (const auto& rank : machines.ranks) speeds.push_back(1 / rank.compute.per_sample_s);
    if (!speeds.empty()) speeds[0] *= first;
    return hetero::apportion(samples, speeds);
  }
  friend constexpr bool operator==(const courteous_splitter&, const courteous_splitter&) = default;
};

static_assert(hetero::batch_splitter<courteous_splitter>);
using courteous_partitioner = hetero::batch_partitioner<courteous_splitter>;
// [splitter]

// [scheduler]
struct forward_first_scheduler {
  using policy_kind = hetero::scheduler_policy;
  std::uint32_t micro_batches = 1;

  hetero::program actions(const hetero::plan& p, hetero::rank_id rank) const {
    hetero::program program;
    for (std::uint32_t r = 0; r < p.replicas.size(); ++r) {
      const auto& replica = p.replicas[r];
      hetero::require(replica.stages.size() == 1, hetero::errc::unsupported,
                      "forward_first_scheduler knows no pipeline stages; one_f_one_b_scheduler does");
      const auto& stage = replica.stages.front();
      if (stage.rank != rank) continue;
      const auto add = [&](hetero::action_kind kind, std::uint32_t m, std::vector<std::uint32_t> after) {
        program.push_back({.kind = kind,
                           .replica = hetero::replica_id{r},
                           .micro_batch = hetero::micro_batch_id{m},
                           .first_layer = stage.first_layer,
                           .end_layer = stage.end_layer,
                           .after = std::move(after)});
      };
      if (p.roles[index_of(rank)] == hetero::rank_role::worker) {
        const auto first = static_cast<std::uint32_t>(program.size());
        for (std::uint32_t m = 0; m < replica.micro_batches; ++m) add(hetero::action_kind::forward, m, {});
        for (std::uint32_t m = 0; m < replica.micro_batches; ++m) {
          add(hetero::action_kind::backward_input, m, {first + m});
        }
      }
      add(hetero::action_kind::step, 0, {});
    }
    return program;
  }
  friend constexpr bool operator==(const forward_first_scheduler&, const forward_first_scheduler&) = default;
};

static_assert(hetero::scheduler<forward_first_scheduler>);
// [scheduler]

// [rate]
struct halving_rate {
  using policy_kind = hetero::learning_rate_policy;
  std::uint64_t every_steps = 1000;

  double at(std::uint64_t step) const { return std::pow(0.5, static_cast<double>((step - 1) / every_steps)); }
  friend constexpr bool operator==(const halving_rate&, const halving_rate&) = default;
};

static_assert(hetero::learning_rate_rule<halving_rate>);
// [rate]

std::string some_text() {
  std::string text;
  for (int i = 0; i < 60; ++i)
    text += "The quick brown fox jumps over the lazy dog, " + std::to_string(i) + " times.\n";
  return text;
}

}  // namespace

int main() {
  // [try]
  hetero::cluster machines;
  machines.ranks = {{.device = "desk", .compute = {.per_sample_s = 0.01}},
                    {.device = "rack", .compute = {.per_sample_s = 0.01}}};
  hetero::model_profile profile{.model = "any"};
  profile.layers.push_back({.name = "layer", .parameters = 1000});

  const hetero::plan plan =
      courteous_partitioner{}.partition(profile, machines, {.global_batch = 12, .micro_batches = 2});
  std::printf("%s", hetero::plan_table(plan, machines).c_str());

  const forward_first_scheduler scheduler{};
  const std::vector<hetero::program> programs{scheduler.actions(plan, hetero::rank_id{0}),
                                              scheduler.actions(plan, hetero::rank_id{1})};
  hetero::validate(plan, programs);  // throws, and names the two actions, when the order is wrong
  // [try]
  hetero::require(plan.replicas[0].share == 4, hetero::errc::invalid_argument, "rank 0 should have 4 of 12 samples");

  const auto corpus = hetero::text_corpus::from_string(some_text());
  const auto batches = corpus.batches({.global_batch = 12});
  const hetero::gpt model{{.layers = 1, .heads = 2, .width = 32, .context = 16, .vocabulary = corpus.vocabulary()}};
  // [use]
  hetero::run_pool(hetero::parse_pool("cpu:1,cpu:1"), [&](hetero::pool_member& here) {
    hetero::trainer trainer{model,
                            here.world,
                            here.device,
                            hetero::adamw{.learning_rate = 1e-3},
                            courteous_partitioner{.splitter = {.first = 0.25}},
                            forward_first_scheduler{.micro_batches = 2},
                            halving_rate{.every_steps = 5}};
    for (const auto& step : trainer.steps(batches, 10)) hetero::report(step);
  });
  // [use]
}
