// SPDX-License-Identifier: Apache-2.0
// Each archetype trains two steps and keeps its invariant.
#include "support/catch.hpp"

#include "archetypes/synchronizer.hpp"
#include "laws/training.hpp"

using namespace hetero;
using namespace hetero::test;

namespace {

constexpr std::uint64_t global_batch = 9;
constexpr double rate = 0.1;

batches<ragged_data> points() { return {data_for(small_mlp()), {.global_batch = global_batch, .seed = 3}}; }

template <class Synchronizer> auto make_trainer(world& w, const Synchronizer& sync) {
  return trainer{
      small_mlp(), w, sgd{.learning_rate = rate}, ratio_partitioner{.ratio = {5, 3, 1}}, sync, untimed(numerics::fast),
      one_thread()};
}

struct end_of_run {
  tensors parameters;
  double weight = 0;  ///< counted by this rank in all steps
};

template <class Synchronizer>
std::vector<end_of_run> train(std::uint32_t ranks, std::uint64_t steps, const Synchronizer& sync) {
  std::vector<end_of_run> all(ranks);
  run_ranks(ranks, [&](world& w) {
    auto t = make_trainer(w, sync);
    auto& mine = all[index_of(w.rank())];
    for (std::uint64_t i = 0; i < steps; ++i) {
      t.prepare(points());
      const auto ids = points().sample_ids(i);
      const sample_range range = t.share(ids.size());
      const batch local = points().load(std::span{ids}.subspan(range.begin, range.count()));
      for (std::size_t s = 0; s < local.size(); ++s) {
        if (local.targets.elements<std::int32_t>()[s] >= 0) mine.weight += static_cast<double>(local.weights[s]);
      }
      (void)t.step(local.view());
    }
    mine.parameters = parameters_of(t);
  });
  return all;
}

/// A replica without a trainer, for driving a session by hand.
struct bare_replica {
  any_device device = one_thread();
  stream on{device};
  parameter_layout layout = layout_of(small_mlp());
  parameter_store store{device, on.id(), layout, dtype::f64, 7, {}};

  [[nodiscard]] replica_tensors tensors() { return {device, on.id(), &store.layout(), store.params(), store.grads()}; }
  void put(std::uint64_t seed) {
    const auto p = store.params().elements<double>();
    for (std::size_t i = 0; i < p.size(); ++i)
      p[i] = static_cast<double>(stable_hash{}.add(seed).add(i).value() % 2000) / 1000.0 - 1;
  }
};

}  // namespace

TEST_CASE("delayed all_reduce applies the gradient of an earlier step, and loses none", "[archetypes]") {
  delayed_all_reduce late;
  for (const std::uint32_t delay : {0U, 1U, 2U}) {
    late.delay = delay;
    const auto delayed = train(3, delay + 1, late);
    // The one update made so far is that of the first step, so it is what all_reduce does in one step.
    const auto synchronous = train(3, 1, all_reduce_synchronizer{});
    for (std::size_t r = 0; r < 3; ++r) {
      REQUIRE(relative_distance(delayed[r].parameters, synchronous[r].parameters) < 1e-6);
      REQUIRE(same_bits(delayed[r].parameters, delayed[0].parameters));
    }
  }
  late.delay = 1;
  REQUIRE(relative_distance(train(3, 2, late)[0].parameters, train(3, 2, all_reduce_synchronizer{})[0].parameters) >
          1e-4);
  bare_replica r;
  world w = self();
  auto session = late.start(w, r.tensors());
  sync_step step{.local = {1, 2}};
  session.before_update(step);
  REQUIRE_FALSE(step.apply);
  session.drain();
  REQUIRE(session.save().size() == 1);
  REQUIRE(session.save()[0].view.size_bytes() * 2 == late.extra_bytes(r.layout, dtype::f64));
}

TEST_CASE("local SGD ends a period at the weighted average of what the replicas became alone", "[archetypes]") {
  local_sgd merging;
  local_sgd apart;
  apart.period = 1000;
  const auto merged = train(3, 2, merging);
  const auto alone = train(3, 2, apart);
  double weight = 0;
  for (const auto& each : alone) weight += each.weight;
  for (const auto& [name, values] : merged[0].parameters) {
    std::vector<double> average(values.size(), 0);
    std::vector<double> plain(values.size(), 0);
    for (const auto& each : alone) {
      for (std::size_t i = 0; i < average.size(); ++i) {
        average[i] += each.parameters.at(name)[i] * each.weight / weight;
        plain[i] += each.parameters.at(name)[i] / 3;
      }
    }
    INFO(name);
    REQUIRE(relative_distance(values, average) < 1e-6);
    REQUIRE(relative_distance(plain, average) > 1e-5);  // control: a plain average is another one
  }
  for (const auto& each : merged) REQUIRE(same_bits(each.parameters, merged[0].parameters));
  REQUIRE_FALSE(same_bits(alone[1].parameters, alone[0].parameters));
}

TEST_CASE("elastic averaging keeps the sum of replicas and centre", "[archetypes]") {
  constexpr std::uint32_t ranks = 3;
  std::vector<std::vector<double>> before(ranks);
  std::vector<std::vector<double>> after(ranks);
  std::vector<std::vector<double>> centres(2 * ranks);
  run_ranks(ranks, [&](world& w) {
    const std::size_t r = index_of(w.rank());
    bare_replica replica;
    auto session = elastic_averaging{}.start(w, replica.tensors());
    centres[r] = values_of(session.save().at(0).view);
    replica.put(r);  // each went its own way
    before[r] = values_of(replica.store.params());
    sync_step step;
    session.after_update(step);
    session.drain();
    after[r] = values_of(replica.store.params());
    centres[ranks + r] = values_of(session.save().at(0).view);
  });
  for (std::uint32_t r = 0; r < ranks; ++r) REQUIRE(same_bits(centres[ranks + r], centres[ranks]));
  REQUIRE_FALSE(same_bits(centres[0], centres[ranks]));
  for (std::size_t i = 0; i < before[0].size(); ++i) {
    double was = centres[0][i];
    double is = centres[ranks][i];
    for (std::uint32_t r = 0; r < ranks; ++r) {
      was += before[r][i];
      is += after[r][i];
      REQUIRE(after[r][i] - before[r][i] == Approx(0.25 * (centres[0][i] - before[r][i])).margin(1e-12));
    }
    REQUIRE(is == Approx(was).margin(1e-12));
  }
  const auto trained = train(3, 2, elastic_averaging{});
  REQUIRE_FALSE(same_bits(trained[0].parameters, trained[1].parameters));  // replicas stay different
}

TEST_CASE("a wave server ends with the start plus all that was pushed, and workers pull it", "[archetypes]") {
  std::vector<tensors> ends(3);
  std::vector<double> losses(3, -1);
  tensors start;
  run_ranks(3, [&](world& w) {
    auto t = make_trainer(w, wave_server{});
    if (w.rank() == rank_id{0}) start = parameters_of(t);
    plan p{.num_layers = small_mlp().size(),
           .global_batch = global_batch,
           .roles = {rank_role::server, rank_role::worker, rank_role::worker}};
    for (const std::uint32_t r : {1U, 2U}) {
      p.replicas.push_back({.share = r == 1 ? 6U : 3U, .stages = {{.end_layer = p.num_layers, .rank = rank_id{r}}}});
    }
    t.rebind(w, p);
    for (std::uint64_t i = 0; i < 2; ++i) {
      const auto ids = points().sample_ids(i);
      const sample_range range = t.share(ids.size());
      const step_report report = t.step(points().load(std::span{ids}.subspan(range.begin, range.count())).view());
      losses[index_of(w.rank())] = report.loss;
    }
    ends[index_of(w.rank())] = parameters_of(t);
  });
  REQUIRE(same_bits(ends[1], ends[0]));
  REQUIRE(same_bits(ends[2], ends[0]));
  REQUIRE_FALSE(same_bits(ends[0], start));
  REQUIRE(losses[1] > 0);

  // The arithmetic by hand, one push of each worker.
  std::vector<std::vector<double>> was(3);
  std::vector<std::vector<double>> is(3);
  std::vector<std::vector<double>> changed(3);
  run_ranks(3, [&](world& w) {
    const std::size_t r = index_of(w.rank());
    bare_replica replica;
    auto session = wave_server{}.start(w, replica.tensors());
    was[r] = values_of(replica.store.params());
    if (r != 0) replica.put(r);
    changed[r] = values_of(replica.store.params());
    sync_step step;
    session.before_update(step);
    require(step.apply == (r != 0), errc::invalid_argument, "only workers apply gradients");
    session.after_update(step);
    is[r] = values_of(replica.store.params());
  });
  for (std::size_t i = 0; i < was[0].size(); ++i) {
    const double expected = was[0][i] + (changed[1][i] - was[0][i]) + (changed[2][i] - was[0][i]);
    for (const auto& each : is) REQUIRE(each[i] == Approx(expected).margin(1e-12));
  }
}

TEST_CASE("a synchronizer without reproducible mode says so", "[archetypes]") {
  world w = self();
  try {
    trainer t{small_mlp(), w, local_sgd{}, untimed(numerics::reproducible), one_thread()};
    FAIL("nothing was thrown");
  } catch (const error& e) {
    REQUIRE(e.code() == errc::unsupported);
    REQUIRE_THAT(e.what(), ContainsSubstring("all_reduce_synchronizer has"));
  }
}
