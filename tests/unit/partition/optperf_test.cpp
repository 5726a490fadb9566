// SPDX-License-Identifier: Apache-2.0
// The promise of optperf is exactness, so every case here is compared with a search over all integer splits, and the
// comparison is of doubles bit by bit.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <hetero/partition/even.hpp>
#include <hetero/partition/optperf.hpp>
#include <hetero/partition/proportional.hpp>

#include "support/catch.hpp"

namespace {

using namespace hetero;

constexpr double infinity = std::numeric_limits<double>::infinity();

double step_s(const cluster& machines, const std::vector<std::size_t>& shares) {
  double latest = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    latest = std::max(latest, finish_s(machines.ranks[i].compute, machines.exchange, shares[i]));
  }
  return latest;
}

/// The least step time over every split of `samples` within the limits; infinity when there is none.
double exhaustive(const cluster& machines, const std::vector<std::size_t>& limits, std::size_t samples,
                  std::vector<std::size_t>& shares, std::size_t rank = 0) {
  if (rank + 1 == machines.ranks.size()) {
    if (samples > limits[rank]) return infinity;
    shares[rank] = samples;
    return step_s(machines, shares);
  }
  double best = infinity;
  for (std::size_t take = 0; take <= std::min(samples, limits[rank]); ++take) {
    shares[rank] = take;
    best = std::min(best, exhaustive(machines, limits, samples - take, shares, rank + 1));
  }
  return best;
}

struct random_case {
  cluster machines;
  std::size_t samples = 0;
  std::vector<std::size_t> limits;
};

random_case draw(std::mt19937_64& random) {
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<>{low, high}(random); };
  const auto whole = [&](std::size_t low, std::size_t high) {
    return std::uniform_int_distribution<std::size_t>{low, high}(random);
  };
  random_case c;
  const std::size_t ranks = whole(1, 4);
  c.samples = whole(1, ranks == 4 ? 16 : 40);
  const bool round_numbers = whole(0, 2) == 0;  // these make ties
  for (std::size_t i = 0; i < ranks; ++i) {
    compute_model m;
    m.per_sample_s = round_numbers ? static_cast<double>(whole(1, 4)) : std::exp(uniform(-3, 1));
    m.fixed_s = whole(0, 1) == 0 ? 0 : (round_numbers ? static_cast<double>(whole(0, 8)) : uniform(0, 4));
    m.backward_share = whole(0, 3) == 0 ? static_cast<double>(whole(0, 1)) : uniform(0, 1);
    if (whole(0, 19) == 0) m.per_sample_s = infinity;  // cannot compute at all
    c.machines.ranks.push_back({.device = "cpu:1", .compute = m});
    c.limits.push_back(whole(0, 2) == 0 ? whole(0, c.samples) : c.samples);
  }
  switch (whole(0, 2)) {
    case 0:
      break;
    case 1:
      c.machines.exchange = {uniform(0, 3), uniform(0, 1), uniform(0, 1)};
      break;
    default:
      c.machines.exchange = {uniform(5, 30), uniform(0, 1), uniform(0, 0.3)};  // bound by the network
  }
  return c;
}

}  // namespace

TEST_CASE("optperf equals exhaustive integer search") {
  std::mt19937_64 random{2402'05302};
  int solved = 0;
  int impossible = 0;
  int proportional_is_worse = 0;
  int even_is_worse = 0;
  int idle = 0;
  while (solved < 1500) {
    const random_case c = draw(random);
    std::vector<std::size_t> scratch(c.machines.ranks.size());
    const double best = exhaustive(c.machines, c.limits, c.samples, scratch);
    if (std::isinf(best)) {
      CHECK_THROWS_WITH(optperf_splitter{}.split(c.samples, c.machines, c.limits),
                        ContainsSubstring("plan_does_not_fit"));
      ++impossible;
      continue;
    }
    const auto shares = optperf_splitter{}.split(c.samples, c.machines, c.limits);
    REQUIRE(std::accumulate(shares.begin(), shares.end(), std::size_t{0}) == c.samples);
    for (std::size_t i = 0; i < shares.size(); ++i) REQUIRE(shares[i] <= c.limits[i]);
    INFO("case " << solved << ": " << shares.size() << " ranks, " << c.samples << " samples");
    REQUIRE(step_s(c.machines, shares) == best);
    REQUIRE(optperf_splitter{}.split(c.samples, c.machines, c.limits) == shares);
    idle += static_cast<int>(std::count(shares.begin(), shares.end(), 0U));
    ++solved;

    // Control: were the other splitters optimal too, the comparison above would prove nothing.
    const bool unlimited = std::all_of(c.limits.begin(), c.limits.end(), [&](auto l) { return l == c.samples; });
    if (unlimited) {
      proportional_is_worse += step_s(c.machines, proportional_splitter{}.split(c.samples, c.machines)) > best ? 1 : 0;
      even_is_worse += step_s(c.machines, even_splitter{}.split(c.samples, c.machines)) > best ? 1 : 0;
    }
  }
  CHECK(proportional_is_worse > 100);
  CHECK(even_is_worse > 300);
  CHECK(impossible > 10);
  CHECK(idle > 50);
}

TEST_CASE("optperf is exact in the last bit on large batches too") {
  // Too many splits to search; instead: no split can end before step_s, because at any earlier deadline the ranks
  // together have too little room.
  std::mt19937_64 random{7};
  std::uniform_real_distribution<> speed{1e-4, 1e-2};
  for (int repeat = 0; repeat < 50; ++repeat) {
    cluster machines;
    for (int i = 0; i < 12; ++i) {
      machines.ranks.push_back({.device = "cpu:1", .compute = {speed(random), speed(random), 0.6}});
    }
    machines.exchange = {speed(random) * 10, speed(random), 0.15};
    const std::size_t samples = 4096 + static_cast<std::size_t>(repeat);
    const auto shares = optperf_splitter{}.split(samples, machines);
    const double step = step_s(machines, shares);
    std::size_t room = 0;
    for (const auto& rank : machines.ranks) {
      std::size_t count = 0;
      while (finish_s(rank.compute, machines.exchange, count + 1) < step) ++count;
      room += count;
    }
    CHECK(room < samples);
    CHECK(std::accumulate(shares.begin(), shares.end(), std::size_t{0}) == samples);
  }
}

TEST_CASE("optperf sees fixed costs and a network that a ratio of speeds does not") {
  cluster machines;
  machines.ranks = {{.device = "fast", .compute = {0.0, 1.0}}, {.device = "slow to start", .compute = {20.0, 1.0}}};
  CHECK(optperf_splitter{}.split(40, machines) == std::vector<std::size_t>{30, 10});
  CHECK(proportional_splitter{}.split(40, machines) == std::vector<std::size_t>{20, 20});  // control
  CHECK(optperf_splitter{}.split(10, machines) == std::vector<std::size_t>{10, 0});        // one sample would take 21 s

  // Both finish with the network; only forward and the first tenth of backward delay it.
  machines.ranks = {{.device = "a", .compute = {0.0, 1.0, 0.9}}, {.device = "b", .compute = {0.0, 2.0, 0.5}}};
  machines.exchange = {.overlapped_s = 100, .exposed_s = 0, .first_bucket_at = 0};
  const auto shares = optperf_splitter{}.split(33, machines);
  CHECK(shares == std::vector<std::size_t>{30, 3});  // 0.1 s against 1 s per sample: 10 to 1
}

TEST_CASE("optperf balances the compute of ranks that wait for the network anyway") {
  cluster machines;
  machines.ranks = {{.device = "a", .compute = {0.0, 1.0, 1.0}}, {.device = "b", .compute = {0.0, 1.0, 1.0}}};
  machines.exchange = {.overlapped_s = 100, .exposed_s = 1, .first_bucket_at = 0};  // any split takes 101 s
  CHECK(optperf_splitter{}.split(20, machines) == std::vector<std::size_t>{10, 10});
  CHECK(optperf_splitter{}.split(21, machines) == std::vector<std::size_t>{11, 10});
}

TEST_CASE("optperf and one rank, no samples, more ranks than samples") {
  cluster machines;
  machines.ranks = {{.device = "only", .compute = {1.0, 1.0}}};
  CHECK(optperf_splitter{}.split(5, machines) == std::vector<std::size_t>{5});
  CHECK(optperf_splitter{}.split(0, machines) == std::vector<std::size_t>{0});
  machines.ranks.assign(5, {.device = "same", .compute = {0.5, 1.0}});
  CHECK(optperf_splitter{}.split(3, machines) == std::vector<std::size_t>{1, 1, 1, 0, 0});
  CHECK(optperf_splitter{}.split(12, machines) == std::vector<std::size_t>{3, 3, 2, 2, 2});
}

TEST_CASE("splitters refuse what is no measurement") {
  const auto refused = [](compute_model m, const char* text) {
    cluster machines;
    machines.ranks = {{.device = "good", .compute = {0.0, 1.0}}, {.device = "bad", .compute = m}};
    CHECK_THROWS_WITH(optperf_splitter{}.split(4, machines),
                      ContainsSubstring("invalid_argument") && ContainsSubstring(text));
    CHECK_THROWS_WITH(proportional_splitter{}.split(4, machines), ContainsSubstring("rank 1 (bad)"));
    CHECK_NOTHROW(even_splitter{}.split(4, machines));  // control: it needs no speeds
  };
  refused({0.0, 0.0}, "rank 1 (bad)");
  refused({0.0, std::nan("")}, "rank 1 (bad)");
  refused({0.0, -1.0}, "no measurement");
  refused({-1.0, 1.0}, "fixed time");
  refused({infinity, 1.0}, "fixed time");
  refused({0.0, 1.0, 1.5}, "backward share");

  cluster machines;
  machines.ranks = {{.device = "good", .compute = {0.0, 1.0}}, {.device = "dead", .compute = {0.0, infinity}}};
  CHECK(optperf_splitter{}.split(4, machines) == std::vector<std::size_t>{4, 0});
  CHECK(proportional_splitter{}.split(4, machines) == std::vector<std::size_t>{4, 0});
  machines.ranks[0].compute.per_sample_s = infinity;
  CHECK_THROWS_WITH(optperf_splitter{}.split(4, machines), ContainsSubstring("can take 0 of 4 samples"));
  CHECK_THROWS_WITH(proportional_splitter{}.split(4, machines), ContainsSubstring("plan_does_not_fit"));
  machines.ranks[0].compute.per_sample_s = 1;
  machines.exchange.first_bucket_at = 2;
  CHECK_THROWS_WITH(optperf_splitter{}.split(4, machines), ContainsSubstring("gradient exchange"));
}
