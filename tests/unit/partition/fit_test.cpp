// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <random>
#include <vector>

#include <hetero/partition/fit.hpp>
#include <hetero/partition/partitioners.hpp>
#include <hetero/partition/rebalance.hpp>

#include "support/catch.hpp"

namespace {

using namespace hetero;

constexpr compute_model truth{.fixed_s = 0.02, .per_sample_s = 0.01};

class noisy {
 public:
  noisy(std::uint64_t seed, double deviation) : random_{seed}, noise_{0, deviation} {}
  double operator()(const compute_model& m, std::size_t samples, double slowdown = 1) {
    return compute_s(m, samples) * slowdown * std::max(0.2, 1 + noise_(random_));
  }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<> noise_;
};

model_profile one_layer() {
  model_profile m{.model = "one"};
  m.layers.push_back({.name = "a", .parameters = 1});
  return m;
}

}  // namespace

TEST_CASE("a line is found through noisy observations and a few wild ones") {
  noisy measure{3, 0.02};
  std::vector<compute_observation> seen;
  for (int repeat = 0; repeat < 10; ++repeat) {
    for (const std::size_t samples : {1U, 4U, 16U, 32U}) seen.push_back({samples, measure(truth, samples)});
  }
  for (const std::size_t i : {3U, 14U, 30U}) seen[i].seconds *= 5;  // another process woke up
  const compute_model found = fit_compute_model(seen, 0.6);
  CHECK(found.per_sample_s == Approx(truth.per_sample_s).epsilon(0.05));
  CHECK(found.fixed_s == Approx(truth.fixed_s).epsilon(0.25));
  CHECK(found.backward_share == 0.6);

  // Control: ordinary least squares on the same data is thrown off.
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (const auto& o : seen) {
    const auto x = static_cast<double>(o.samples);
    n += 1, sx += x, sy += o.seconds, sxx += x * x, sxy += x * o.seconds;
  }
  CHECK(std::abs((n * sxy - sx * sy) / (n * sxx - sx * sx) / truth.per_sample_s - 1) > 0.1);
}

TEST_CASE("a line with impossible parts becomes a rate, and too few observations are refused") {
  const std::vector<compute_observation> bent{{1, 0.5}, {10, 10.0}};  // fixed time would be negative
  const auto m = fit_compute_model(bent);
  CHECK(m.fixed_s == 0);
  CHECK(m.per_sample_s > 0);
  const std::vector<compute_observation> same{{4, 1.0}, {4, 1.1}};
  CHECK_THROWS_WITH(fit_compute_model(same), ContainsSubstring("two different sample counts"));
  const std::vector<compute_observation> bad{{4, 1.0}, {8, std::nan("")}};
  CHECK_THROWS_WITH(fit_compute_model(bad), ContainsSubstring("observation 1"));
}

TEST_CASE("a fitter follows a four-fold slowdown within three steps and the way back too") {
  noisy measure{5, 0.03};
  compute_model_fitter fitter{truth};
  for (int i = 0; i < 40; ++i) fitter.observe(8, measure(truth, 8));
  const double before = fitter.estimate().per_sample_s;
  CHECK(before == Approx(truth.per_sample_s).epsilon(0.05));
  fitter.observe(8, measure(truth, 8, 4));
  CHECK(fitter.estimate().per_sample_s == before);  // one step may be a spike
  fitter.observe(8, measure(truth, 8, 4));
  fitter.observe(8, measure(truth, 8, 4));
  CHECK(fitter.estimate().per_sample_s == Approx(4 * truth.per_sample_s).epsilon(0.1));
  CHECK(fitter.estimate().fixed_s == Approx(4 * truth.fixed_s).epsilon(0.1));
  for (int i = 0; i < 3; ++i) fitter.observe(2, measure(truth, 2));
  CHECK(fitter.estimate().per_sample_s == Approx(truth.per_sample_s).epsilon(0.1));
}

TEST_CASE("a fitter ignores single spikes, however large") {
  noisy measure{6, 0.03};
  compute_model_fitter fitter{truth};
  for (int i = 0; i < 200; ++i) {
    fitter.observe(8, measure(truth, 8) * (i % 10 == 9 ? 20 : 1));
    REQUIRE(fitter.estimate().per_sample_s == Approx(truth.per_sample_s).epsilon(0.06));
  }
}

TEST_CASE("a fitter follows a slow drift and learns from nothing") {
  noisy measure{8, 0.02};
  compute_model_fitter fitter;
  CHECK(fitter.estimate().per_sample_s == 0);
  CHECK_FALSE(fitter.observe(0, 1.0));  // an idle step says nothing
  CHECK_FALSE(fitter.observe(4, 0.0));  // nor does one too short for the clock
  CHECK(fitter.observe(4, 2.0));
  CHECK(fitter.estimate().per_sample_s == 0.5);
  CHECK_THROWS_WITH(fitter.observe(4, -1.0), ContainsSubstring("invalid_argument"));
  CHECK_THROWS_WITH(fitter.observe(4, std::nan("")), ContainsSubstring("invalid_argument"));

  compute_model_fitter drifting{truth};
  double slowdown = 1;
  for (int i = 0; i < 300; ++i) {
    slowdown *= 1.001;
    drifting.observe(8, measure(truth, 8, slowdown));
  }
  CHECK(drifting.estimate().per_sample_s == Approx(truth.per_sample_s * slowdown).epsilon(0.06));
}

TEST_CASE("rebalancing: shares follow a change within four steps and stay put under noise") {
  const rebalancer policy;
  const balanced_partitioner partition;
  const workload work{.global_batch = 64};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    noisy measure{seed, 0.05};
    cluster estimate;
    estimate.ranks.assign(2, {.device = "cpu:1", .compute = truth});
    std::vector<compute_model_fitter> fitters(2, policy.fitter(truth));
    plan current = partition.partition(one_layer(), estimate, work);
    int changes = 0;
    const auto step = [&](double slowdown) {
      for (std::uint32_t i = 0; i < 2; ++i) {
        const std::size_t share = current.share_of(rank_id{i});
        fitters[i].observe(share, measure(truth, share, i == 1 ? slowdown : 1));
        estimate.ranks[i].compute = fitters[i].estimate();
      }
      if (auto next = policy.propose(partition, current, one_layer(), estimate, work)) {
        CHECK(next->epoch == current.epoch + 1);
        current = *next;
        ++changes;
      }
    };
    for (int i = 0; i < 200; ++i) step(1);
    CHECK(changes <= 2);  // 5 % noise: hardly ever worth a change
    CHECK(current.share_of(rank_id{0}) >= 30);
    CHECK(current.share_of(rank_id{0}) <= 34);

    for (int i = 0; i < 4; ++i) step(4);
    cluster real = estimate;
    real.ranks[0].compute = truth;
    real.ranks[1].compute = {4 * truth.fixed_s, 4 * truth.per_sample_s};
    const double best = predicted_step_s(partition.partition(one_layer(), real, work), real);
    CHECK(predicted_step_s(current, real) < best * 1.12);  // two noisy steps decided; later ones refine
    const int changes_at_the_jump = changes;
    for (int i = 0; i < 100; ++i) step(4);
    CHECK(predicted_step_s(current, real) < best * 1.05);
    CHECK(changes - changes_at_the_jump <= 5);
  }
}

TEST_CASE("a rebalancer proposes nothing below its minimum gain, and no plan with stages") {
  const balanced_partitioner partition;
  const workload work{.global_batch = 64};
  cluster machines;
  machines.ranks.assign(2, {.device = "cpu:1", .compute = {0.0, 0.01}});
  const plan current = partition.partition(one_layer(), machines, work);
  CHECK_FALSE(rebalancer{}.propose(partition, current, one_layer(), machines, work).has_value());
  machines.ranks[1].compute.per_sample_s = 0.0105;  // 2.5 % could be gained: 33 + 31
  CHECK_FALSE(rebalancer{.minimum_gain = 0.05}.propose(partition, current, one_layer(), machines, work).has_value());
  const auto next = rebalancer{.minimum_gain = 0.01}.propose(partition, current, one_layer(), machines, work);
  REQUIRE(next.has_value());
  CHECK(next->share_of(rank_id{0}) == 33);
  // A fixed partitioner keeps its shares whatever the speeds: nothing to gain.
  CHECK_FALSE(
      rebalancer{}.propose(fixed_partitioner{.shares = {32, 32}}, current, one_layer(), machines, work).has_value());

  plan staged = current;
  staged.num_layers = 2;
  staged.replicas.resize(1);
  staged.replicas[0].stages = {{.first_layer = 0, .end_layer = 1},
                               {.first_layer = 1, .end_layer = 2, .rank = rank_id{1}}};
  CHECK_THROWS_WITH(rebalancer{}.propose(partition, staged, one_layer(), machines, work),
                    ContainsSubstring("unsupported"));
  CHECK_THROWS_WITH(rebalancer{.window = 0}.fitter({}), ContainsSubstring("invalid_argument"));
}
