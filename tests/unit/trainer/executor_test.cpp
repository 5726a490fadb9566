// SPDX-License-Identifier: Apache-2.0
// The executor alone: programs by hand against the obvious loop, and what it refuses. And what ranks compare and agree
// on.
#include "support/catch.hpp"

#include "laws/training.hpp"
#include "support/model_runner.hpp"

#include <hetero/schedule/gpipe.hpp>
#include <hetero/sync/insert_reduce.hpp>
#include <hetero/trainer/describe_policy.hpp>
#include <hetero/trainer/executor.hpp>
#include <hetero/trainer/planning.hpp>

using namespace hetero;
using namespace hetero::test;

namespace {

/// Hooks that only write down that they were called.
struct noted_hooks {
  std::vector<std::string> calls{};
  void reduce(const action& a) { calls.push_back("reduce " + std::to_string(a.bucket)); }
  void step(const action&) { calls.emplace_back("step"); }
};
static_assert(executor_hooks<noted_hooks>);

struct bench {
  any_device device = one_thread();
  stream on{device};
  mlp m = small_mlp();
  parameter_store store{device, on.id(), layout_of(m), dtype::f64, 7, {}};
  executor<mlp> work{m, store, device, on.id(), nullptr, {.seed = 7}};
  batch samples;
  noted_hooks hooks;

  bench() { data_for(m, dtype::f64).load(std::vector<std::uint64_t>{0, 1, 4, 5, 6, 8, 9}, samples); }

  [[nodiscard]] plan one_rank(std::uint32_t micro_batches) const {
    return {
        .num_layers = m.size(),
        .global_batch = samples.size(),
        .roles = {rank_role::worker},
        .replicas = {{.share = samples.size(), .micro_batches = micro_batches, .stages = {{.end_layer = m.size()}}}}};
  }
  [[nodiscard]] program actions(std::uint32_t micro_batches) const {
    return one_f_one_b_scheduler{}.actions(one_rank(micro_batches), rank_id{0});
  }
  tensors run(const program& p, std::uint32_t micro_batches) {
    work.run(p, one_rank(micro_batches), samples.view(), 0, hooks);
    tensors all;
    for (const auto& entry : store.layout().entries)
      all[entry.spec.name] = values_of(store.grads().slice(0, entry.offset, entry.end()));
    return all;
  }
};

template <class Body> void expect_error(errc code, const std::string& text, Body&& body) {
  try {
    body();
    FAIL("nothing was thrown");
  } catch (const error& e) {
    INFO(e.what());
    REQUIRE(e.code() == code);
    REQUIRE_THAT(e.what(), ContainsSubstring(text));
  }
}

}  // namespace

TEST_CASE("any program of a schedule computes the gradient of the plain loop", "[trainer]") {
  bench b;
  model_runner<mlp> plain{b.m, one_thread(), dtype::f64, b.samples.size(), 7};
  model_batch same;
  same.inputs = values_of(b.samples.inputs.view().reshape({b.samples.inputs.count()}));
  const auto targets = b.samples.targets.elements<std::int32_t>();
  same.targets.assign(targets.begin(), targets.end());
  same.weights = b.samples.weights;
  same.sample_ids.assign(b.samples.sample_ids.begin(), b.samples.sample_ids.end());
  const weighted_sum loss = plain.run(same, true);
  for (const std::uint32_t micro_batches : {1U, 2U, 3U, 7U, 9U}) {
    for (const bool all_forward : {false, true}) {
      const program p =
          all_forward ? gpipe_scheduler{}.actions(b.one_rank(micro_batches), rank_id{0}) : b.actions(micro_batches);
      const tensors gradient = b.run(p, micro_batches);
      for (const auto& [name, values] : gradient) REQUIRE(relative_distance(values, plain.gradient(name)) < 1e-12);
      const auto losses = b.work.losses();
      REQUIRE(losses.size() == 1);
      REQUIRE(losses[0].sum == Approx(loss.sum).epsilon(1e-12));
      REQUIRE(losses[0].weight == Approx(loss.weight).epsilon(1e-12));
    }
  }
}

TEST_CASE("a backward pass in halves is the whole one", "[trainer]") {
  bench b;
  const tensors whole = b.run(b.actions(2), 2);
  program halves;
  for (const action& a : b.actions(2)) {
    halves.push_back(a);
    if (a.kind != action_kind::backward_input) continue;
    halves.back().split = true;
    action weights = a;
    weights.kind = action_kind::backward_weight;
    halves.push_back(weights);
  }
  const tensors split = b.run(halves, 2);
  REQUIRE(relative_distance(split, whole) < 1e-12);
  // Weights long after inputs: nothing they need was overwritten.
  program late;
  program weights;
  for (const action& a : halves) {
    if (a.kind == action_kind::step) continue;
    (a.kind == action_kind::backward_weight ? weights : late).push_back(a);
  }
  late.insert(late.end(), weights.begin(), weights.end());
  REQUIRE(relative_distance(b.run(late, 2), whole) < 1e-12);
}

TEST_CASE("hooks are called where the program says", "[trainer]") {
  bench b;
  const auto buckets = make_buckets(b.store.layout(), dtype::f64, 1);
  (void)b.run(insert_reduce(b.actions(2), buckets), 2);
  std::vector<std::string> expected;
  for (std::size_t i = 0; i < buckets.size(); ++i) expected.push_back("reduce " + std::to_string(i));
  expected.emplace_back("step");
  REQUIRE(b.hooks.calls == expected);
}

TEST_CASE("actions that no pass was built in for are refused by name", "[trainer]") {
  bench b;
  for (const action_kind kind :
       {action_kind::recompute, action_kind::send, action_kind::recv, action_kind::gather, action_kind::release,
        action_kind::push, action_kind::pull, action_kind::merge, action_kind::offload, action_kind::fetch}) {
    expect_error(errc::unsupported, to_string(kind), [&] { (void)b.run({{.kind = kind}}, 1); });
  }
  program backwards = b.actions(1);
  std::swap(backwards[0], backwards[1]);
  expect_error(errc::invalid_argument, "comes before its forward", [&] { (void)b.run(backwards, 1); });
  REQUIRE_NOTHROW(b.run(b.actions(1), 1));  // and it works on after a refusal
}

TEST_CASE("an executor of one sample per micro-batch keeps each sample's gradient", "[trainer]") {
  bench b;
  executor<mlp> exact{b.m, b.store, b.device, b.on.id(), nullptr, {.seed = 7, .leaves = true}};
  const auto n = static_cast<std::uint32_t>(b.samples.size());
  const tensors whole = b.run(b.actions(1), 1);
  for (int repeat = 0; repeat < 2; ++repeat) {
    exact.run(b.actions(n), b.one_rank(n), b.samples.view(), 0, b.hooks);
    const auto leaves = exact.leaves();
    REQUIRE(leaves.size() == n);
    REQUIRE(exact.losses().size() == n);
    for (const auto& entry : b.store.layout().entries) {
      std::vector<double> sum(entry.count(), 0);
      for (const auto& leaf : leaves) {
        const auto part = values_of(leaf.slice(0, entry.offset, entry.end()));
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      REQUIRE(relative_distance(sum, whole.at(entry.spec.name)) < 1e-12);
    }
  }
}

TEST_CASE("a gradient that no layer wrote is cleared, the others are not", "[trainer]") {
  bench b;
  b.device.launch(op::fill{b.store.grads(), 5}, b.on.id());
  b.work.run({{.kind = action_kind::step}}, b.one_rank(1), batch_view{}, 0, b.hooks);
  b.work.clear_untouched(0, 16);
  const auto values = values_of(b.store.grads());
  const auto& first = b.store.layout().entries.front();
  REQUIRE(values[first.offset] == 0);
  REQUIRE(values[b.store.layout().entries.back().offset] == 5);
  const tensors written = b.run(b.actions(1), 1);
  b.work.clear_untouched(0, b.store.layout().trainable_elements);
  REQUIRE(same_bits(values_of(b.store.grads().slice(0, first.offset, first.end())), written.at(first.spec.name)));
}

TEST_CASE("policies describe every digit of themselves", "[trainer]") {
  REQUIRE(describe_policy(adamw{}) == "{0.001, 0.9, 0.999, 1e-08, 0.01}");
  REQUIRE(describe_policy(adamw{.learning_rate = 0.1}) !=
          describe_policy(adamw{.learning_rate = std::nextafter(0.1, 1.0)}));
  REQUIRE(describe_policy(sgd{.nesterov = true}) == "{0.01, 0, 0, on}");
  REQUIRE(describe_policy(learning_rate_schedule{linear_rate{.warm_up_steps = 2, .total_steps = 9}}) == "{2{2, 9, 0}}");
  REQUIRE(describe_policy(fixed_partitioner{.shares = {3, 4}}) == "{[3, 4], {}}");
  REQUIRE(describe_policy(replicated_sharding{}) == "{}");
  REQUIRE(describe_policy(all_reduce_synchronizer{.overlap = false}) == "{4194304, off, 0}");
  struct outside {
    int value = 3;
  };
  struct derived : outside {
    int more = 4;
  };
  REQUIRE(describe_policy(outside{}) == "{3}");
  REQUIRE(describe_policy(derived{}) == "{}");  // says nothing rather than something wrong
}

TEST_CASE("a planner begins with what was recorded for this world and batch, and with nothing else", "[trainer]") {
  shares_planner p{{}, {}};
  REQUIRE(p.starting_shares(5, 2, 12) == nullptr);
  p.restore({{0, {8, 4}}, {10, {6, 6}}});
  REQUIRE(*p.starting_shares(5, 2, 12) == std::vector<std::size_t>{8, 4});
  REQUIRE(*p.starting_shares(10, 2, 12) == std::vector<std::size_t>{6, 6});
  REQUIRE(p.starting_shares(5, 3, 12) == nullptr);  // another world
  REQUIRE(p.starting_shares(5, 2, 16) == nullptr);  // another batch
  p.record(12, {6, 6});                             // no news
  REQUIRE(p.history().size() == 2);
  p.record(12, {5, 7});
  p.record(12, {4, 8});  // the same step again: the last word counts
  REQUIRE(p.history() == std::vector<share_record>{{0, {8, 4}}, {10, {6, 6}}, {12, {4, 8}}});

  shares_planner replaying{{.replay = {{2, {1, 1}}}}, {}};
  REQUIRE(replaying.replayed(1) == nullptr);
  REQUIRE(*replaying.replayed(2) == std::vector<std::size_t>{1, 1});
  replaying.restore({{0, {2, 0}}});
  REQUIRE(*replaying.starting_shares(3, 2, 2) == std::vector<std::size_t>{1, 1});  // a recording comes first
}

TEST_CASE("every rank learns what each rank measured", "[trainer]") {
  std::vector<cluster> all(3);
  std::vector<std::vector<std::size_t>> shares(3);
  run_ranks(3, [&](world& w) {
    const auto r = static_cast<std::size_t>(index_of(w.rank()));
    all[r] = gather_profiles(w, {.device = std::string(r, 'x') + "cpu",
                                 .kind = device_kind::cpu,
                                 .compute = {0.5 * static_cast<double>(r), 1.0 / static_cast<double>(r + 1), 0.25},
                                 .memory_bytes = 1000 * r});
    shares[r] = agreed_shares(w, {r, r + 1, r + 2});
  });
  for (std::size_t r = 0; r < 3; ++r) {
    REQUIRE(all[r] == all[0]);
    REQUIRE(all[r].ranks[2].device == "xxcpu");
    REQUIRE(all[r].ranks[2].compute == compute_model{1.0, 1.0 / 3, 0.25});
    REQUIRE(all[r].ranks[2].memory_bytes == 2000);
    REQUIRE(shares[r] == std::vector<std::size_t>{0, 1, 2});  // the first rank's
  }
}

TEST_CASE("records of a step reach every rank, with the first rank's proposal", "[trainer]") {
  std::vector<std::vector<step_record>> all(2);
  run_ranks(2, [&](world& w) {
    const bool first = w.rank() == rank_id{0};
    const auto r = static_cast<double>(index_of(w.rank()));
    step_record mine{.loss = {1 + r, 2 + r}, .samples = 3 + r, .compute_s = 4 + r, .wait_s = 5 + r};
    if (first) mine.proposal = {7, 0};
    all[index_of(w.rank())] = exchange(w, mine);
  });
  for (const auto& records : all) {
    REQUIRE(records.size() == 2);
    REQUIRE(records[0].proposal == std::vector<std::size_t>{7, 0});
    REQUIRE(records[1].proposal.empty());
    REQUIRE(records[1].loss == weighted_sum{2, 3});
    REQUIRE(records[1].samples == 4);
    REQUIRE(records[1].compute_s == 5);
    REQUIRE(records[1].wait_s == 6);
  }
}

// Which policy a trainer takes: the one it was given, in any place, or the default.
static_assert(std::same_as<detail::policy_set<>::optimizer_type, adamw>);
static_assert(std::same_as<detail::policy_set<>::synchronizer_type, all_reduce_synchronizer>);
static_assert(std::same_as<detail::policy_set<trainer_options, sgd, even_partitioner>::optimizer_type, sgd>);
static_assert(
    std::same_as<detail::policy_set<trainer_options, sgd, even_partitioner>::partitioner_type, even_partitioner>);
static_assert(std::same_as<detail::policy_set<gpipe_scheduler, any_device>::scheduler_type, gpipe_scheduler>);
static_assert(std::same_as<detail::policy_set<const sgd&, cosine_rate>::learning_rate_type, cosine_rate>);
static_assert(!detail::is_policy<trainer_options, optimizer_policy> && !detail::is_policy<int, optimizer_policy>);
