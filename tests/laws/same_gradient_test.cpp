// SPDX-License-Identifier: Apache-2.0
// Law 2: for an exact synchronizer, any split, number of ranks and transport gives the gradient of a single device.
// ctest: timeout=300
#include "support/catch.hpp"

#include "laws/mean_of_means.hpp"
#include "laws/processes.hpp"
#include "laws/training.hpp"
#include "unit/comm/tcp_ranks.hpp"

#include <set>

using namespace hetero;
using namespace hetero::test;

namespace {

constexpr std::uint64_t global_batch = 9;
constexpr std::uint64_t steps = 4;  // 9 + 9 + 5 samples are an epoch; the fourth begins another

struct setting {
  split shares = split::even;
  numerics mode = numerics::reproducible;
  dtype type = dtype::f32;
  double dropout = 0;
  std::uint32_t micro_batches = 1;
  all_reduce_synchronizer sync{};
  bool ragged = true;
};

std::string to_text(const setting& s, std::uint32_t ranks, const char* transport) {
  return std::string{transport} + ", " + std::to_string(ranks) + " ranks, " + to_string(s.shares) + ", " +
         std::to_string(s.micro_batches) + " micro-batches, buckets of " + std::to_string(s.sync.bucket_bytes) +
         (s.sync.overlap ? " overlapped" : "") + ", " + to_string(s.type);
}

gpt model_of(const gpt*, const setting& s) { return small_gpt(s.dropout); }
mlp model_of(const mlp*, const setting&) { return small_mlp(); }

/// What one rank of a job sees. Reproducible runs take AdamW and clipping; fast ones an optimizer that does not blow up
/// rounding errors: Adam turns a gradient that should be zero into steps of full size.
template <class Model, class Optimizer, class Synchronizer = all_reduce_synchronizer>
outcome train(world& w, const setting& s, const Optimizer& optimizer, const Synchronizer& sync = {}) {
  const Model m = model_of(static_cast<const Model*>(nullptr), s);
  ragged_data data = data_for(m, s.type);
  data.ragged = s.ragged;
  trainer t{m,
            w,
            optimizer,
            partitioner_for(s.shares, w.world_size()),
            one_f_one_b_scheduler{.micro_batches = s.micro_batches},
            sync,
            clip_norm{.max_norm = 0.7},
            untimed(s.mode, s.type),
            one_thread()};
  outcome out;
  note_steps(t, batches<ragged_data>{data, {.global_batch = global_batch, .seed = 3}}, steps, out);
  return out;
}

template <class Model> outcome train(world& w, const setting& s) {
  if (s.mode == numerics::reproducible) return train<Model>(w, s, adamw{.learning_rate = 0.01}, s.sync);
  return train<Model>(w, s, sgd{.learning_rate = 0.05, .momentum = 0.9}, s.sync);
}

using runner = void (*)(std::uint32_t, const std::function<void(world&)>&);
void in_process(std::uint32_t ranks, const std::function<void(world&)>& body) { run_ranks(ranks, body); }
void over_tcp(std::uint32_t ranks, const std::function<void(world&)>& body) { run_tcp_ranks(ranks, body); }

template <class Model> std::vector<outcome> run(runner start, std::uint32_t ranks, const setting& s) {
  std::vector<outcome> all(ranks);
  start(ranks, [&](world& w) { all[index_of(w.rank())] = train<Model>(w, s); });
  return all;
}

template <class Model> outcome alone(setting s) {
  s.micro_batches = 1;
  s.sync = {};
  return run<Model>(in_process, 1, s).front();
}

/// Bitwise in reproducible mode, else within `bound`.
void expect_same(const std::vector<outcome>& all, const outcome& reference, const setting& s, double bound,
                 const std::string& what) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    INFO(what << ", rank " << rank);
    CHECK(all[rank].losses.size() == steps);
    if (s.mode == numerics::reproducible) {
      CHECK(same_bits(all[rank], reference));
    } else {
      CHECK(relative_distance(all[rank], reference) <= bound);
    }
  }
}

template <class Model>
void expect_same_everywhere(setting s, double bound, std::initializer_list<std::uint32_t> rank_counts = {1, 2, 3, 5}) {
  const outcome reference = alone<Model>(s);
  const std::pair<const char*, runner> transports[] = {{"in process", &in_process}, {"tcp", &over_tcp}};
  for (const auto& [name, start] : transports) {
    for (const std::uint32_t ranks : rank_counts) {
      for (const split shares : all_splits) {
        s.shares = shares;
        expect_same(run<Model>(start, ranks, s), reference, s, bound, to_text(s, ranks, name));
      }
    }
  }
}

bool differs_by_more_than(double bound, const outcome& a, const outcome& b) {
  return relative_distance(a.gradients.front(), b.gradients.front()) > bound;
}

}  // namespace

TEST_CASE("reproducible mode: a gpt trains to the same bits for any split and transport", "[laws]") {
  expect_same_everywhere<gpt>({}, 0);
}

TEST_CASE("reproducible mode: dropout falls on the same elements for any split", "[laws]") {
  expect_same_everywhere<gpt>({.dropout = 0.3}, 0, {2, 3});
  REQUIRE_FALSE(same_bits(alone<gpt>({.dropout = 0.3}), alone<gpt>({})));
}

TEST_CASE("reproducible mode: an mlp in either precision trains to the same bits", "[laws]") {
  expect_same_everywhere<mlp>({}, 0);
  expect_same_everywhere<mlp>({.type = dtype::f64}, 0, {3, 5});
}

TEST_CASE("fast mode: any split and transport is within 1e-5 of a single device", "[laws]") {
  expect_same_everywhere<gpt>({.mode = numerics::fast}, 1e-5);
  expect_same_everywhere<mlp>({.mode = numerics::fast}, 1e-5, {2, 5});
}

TEST_CASE("fast mode: double precision is within 1e-12 of a single device", "[laws]") {
  expect_same_everywhere<gpt>({.mode = numerics::fast, .type = dtype::f64, .dropout = 0.2}, 1e-12, {2, 3, 5});
}

TEST_CASE("fast mode and reproducible mode compute the same gradient", "[laws]") {
  const outcome exact = alone<gpt>({.type = dtype::f64});
  const outcome fast = alone<gpt>({.mode = numerics::fast, .type = dtype::f64});
  REQUIRE(relative_distance(fast.gradients.front(), exact.gradients.front()) <= 1e-12);
  REQUIRE(fast.losses.front() == Approx(exact.losses.front()).epsilon(1e-12));
  REQUIRE(fast.norms.front() == Approx(exact.norms.front()).epsilon(1e-12));
}

TEST_CASE("micro-batches and buckets change nothing", "[laws]") {
  for (const numerics mode : {numerics::fast, numerics::reproducible}) {
    const outcome reference = alone<gpt>({.mode = mode});
    for (const std::uint32_t micro_batches : {1U, 2U, 3U, 5U}) {
      for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{3000}, std::size_t{4} << 20U}) {
        for (const bool overlap : {true, false}) {
          const setting s{.shares = split::five_three_one,
                          .mode = mode,
                          .micro_batches = micro_batches,
                          .sync = {.bucket_bytes = bucket_bytes, .overlap = overlap}};
          expect_same(run<gpt>(in_process, 3, s), reference, s, 1e-5, to_text(s, 3, "in process"));
        }
      }
    }
  }
}

TEST_CASE("control: a mean of means is another gradient, and this test sees it", "[laws]") {
  const setting s{.shares = split::five_three_one, .mode = numerics::fast};
  const outcome reference = alone<mlp>(s);
  std::vector<outcome> wrong(3);
  std::vector<outcome> right(3);
  run_ranks(3, [&](world& w) {
    const sgd optimizer{.learning_rate = 0.05, .momentum = 0.9};
    wrong[index_of(w.rank())] = train<mlp>(w, s, optimizer, mean_of_means_synchronizer{});
    right[index_of(w.rank())] = train<mlp>(w, s, optimizer, all_reduce_synchronizer{});
  });
  // A mean differs from a sum by its weight: gradients are compared by direction and the parameters as they are.
  const auto mean = [](outcome o, double weight) {
    for (auto& [name, values] : o.gradients.front()) {
      for (double& v : values) v /= weight;
    }
    return o;
  };
  const double weight = [&] {  // of the first step
    const ragged_data data = data_for(small_mlp());
    const batches<ragged_data> source{data, {.global_batch = global_batch, .seed = 3}};
    const batch first = source.load(source.sample_ids(0));
    double sum = 0;
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (first.targets.elements<std::int32_t>()[i] >= 0) sum += static_cast<double>(first.weights[i]);
    }
    return sum;
  }();
  for (std::size_t rank = 0; rank < 3; ++rank) {
    REQUIRE_FALSE(differs_by_more_than(1e-5, mean(right[rank], weight), mean(reference, weight)));
    REQUIRE(differs_by_more_than(1e-3, mean(wrong[rank], 3), mean(reference, weight)));
    REQUIRE(relative_distance(wrong[rank].parameters, reference.parameters) > 1e-3);
  }
}

TEST_CASE("control: one changed sample weight is seen by every comparison", "[laws]") {
  for (const numerics mode : {numerics::fast, numerics::reproducible}) {
    const outcome reference = alone<mlp>({.mode = mode});
    const outcome other = alone<mlp>({.mode = mode, .ragged = false});
    REQUIRE_FALSE(same_bits(other, reference));
    REQUIRE(relative_distance(other, reference) > 1e-3);
  }
}

// --- processes
// ---------------------------------------------------------------------------------------------------------

namespace {
constexpr setting process_settings[] = {
    {.shares = split::even},
    {.shares = split::five_three_one},
    {.shares = split::one_empty},
    {.shares = split::five_three_one, .mode = numerics::fast},
};

/// Every process compares its result with what it computes alone.
std::string difference_from_alone(world& w, const setting& s) {
  const outcome mine = train<gpt>(w, s);
  const outcome reference = alone<gpt>(s);
  if (s.mode == numerics::reproducible) return same_bits(mine, reference) ? "" : "other bits";
  const double distance = relative_distance(mine, reference);
  return distance <= 1e-5 ? "" : "relative distance " + std::to_string(distance);
}
}  // namespace

TEST_CASE("one process of a same-gradient job", "[.child]") {
  world w = join({.self_test = false});  // rank 0 does not come through join
  for (const setting& s : process_settings) REQUIRE(difference_from_alone(w, s).empty());
}

TEST_CASE("processes over tcp train to the bits of a single device", "[laws]") {
  for (const std::uint32_t ranks : {2U, 3U}) {
    process_job job{ranks, "one process of a same-gradient job"};
    for (const setting& s : process_settings) CHECK(difference_from_alone(job.communicator(), s).empty());
    REQUIRE(job.exits() == std::vector<int>(ranks - 1, 0));
  }
}
