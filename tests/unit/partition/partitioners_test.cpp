// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <type_traits>
#include <vector>

#include <hetero/partition/partitioners.hpp>

#include "support/catch.hpp"

namespace {

using namespace hetero;

model_profile small_model() {
  model_profile m{.model = "small"};
  m.layers.push_back({.name = "a", .parameters = 100, .activation_bytes = 40, .output_bytes = 20});
  m.layers.push_back({.name = "b", .parameters = 50, .activation_bytes = 30, .output_bytes = 10});
  return m;
}

cluster speeds(std::vector<double> per_sample_s) {
  cluster machines;
  for (const double s : per_sample_s) machines.ranks.push_back({.device = "cpu:1", .compute = {0.0, s}});
  return machines;
}

std::vector<std::size_t> shares_of(const plan& p) {
  std::vector<std::size_t> shares;
  for (const auto& r : p.replicas) shares.push_back(r.share);
  return shares;
}

template <class P>
constexpr bool is_a_policy_value =
    partitioner<P>&& std::is_aggregate_v<P>&& std::equality_comparable<P>&& std::is_nothrow_move_constructible_v<P>;
static_assert(is_a_policy_value<balanced_partitioner> && is_a_policy_value<even_partitioner> &&
              is_a_policy_value<proportional_partitioner> && is_a_policy_value<fixed_partitioner> &&
              is_a_policy_value<ratio_partitioner>);

constexpr balanced_partitioner at_compile_time{.splitter = optperf_splitter{}};
static_assert(at_compile_time == balanced_partitioner{});

// Near misses of the concepts: each lacks one thing.
struct splitter_of_ints {
  std::vector<int> split(std::size_t, const cluster&) const { return {}; }
};
struct partitioner_without_kind {
  plan partition(const model_profile&, const cluster&, const workload&) const { return {}; }
};
struct partitioner_that_changes {
  using policy_kind = partitioner_policy;
  plan partition(const model_profile&, const cluster&, const workload&) { return {}; }
};
struct partitioner_of_another_kind {
  using policy_kind = scheduler_policy;
  plan partition(const model_profile&, const cluster&, const workload&) const { return {}; }
};
static_assert(!batch_splitter<splitter_of_ints> && !partitioner<partitioner_without_kind> &&
              !partitioner<partitioner_that_changes> && !partitioner<partitioner_of_another_kind>);

}  // namespace

TEST_CASE("the ready partitioners give every rank one replica of the whole model") {
  const auto check = [](const plan& p, std::vector<std::size_t> shares) {
    CHECK_NOTHROW(validate(p));
    CHECK(shares_of(p) == shares);
    REQUIRE(p.replicas.size() == 3);
    for (std::uint32_t i = 0; i < 3; ++i) {
      REQUIRE(p.replicas[i].stages.size() == 1);
      CHECK(p.replicas[i].stages[0].rank == rank_id{i});
      CHECK(p.replicas[i].micro_batches == 2);
      CHECK((p.roles[i] == rank_role::idle) == (shares[i] == 0));
    }
  };
  const auto machines = speeds({1, 2, 4});
  const workload work{.global_batch = 14, .micro_batches = 2};
  check(balanced_partitioner{}.partition(small_model(), machines, work), {8, 4, 2});
  check(proportional_partitioner{}.partition(small_model(), machines, work), {8, 4, 2});
  check(even_partitioner{}.partition(small_model(), machines, work), {5, 5, 4});
  check(fixed_partitioner{.shares = {0, 13, 1}}.partition(small_model(), machines, work), {0, 13, 1});
  check(ratio_partitioner{.ratio = {5, 3, 1}}.partition(small_model(), machines, work), {8, 5, 1});
}

TEST_CASE("equal inputs give plans of equal hash, unequal ones do not") {
  const workload work{.global_batch = 14, .micro_batches = 2};
  const auto p = balanced_partitioner{}.partition(small_model(), speeds({1, 2, 4}), work);
  CHECK(plan_hash(p) == plan_hash(balanced_partitioner{}.partition(small_model(), speeds({1, 2, 4}), work)));
  CHECK(plan_hash(p) != plan_hash(balanced_partitioner{}.partition(small_model(), speeds({1, 2, 2}), work)));
}

TEST_CASE("more ranks than samples is legal and says who is idle") {
  const workload work{.global_batch = 2};
  const auto machines = speeds({1, 1, 1, 1});
  const balanced_partitioner policy;
  const plan p = policy.partition(small_model(), machines, work);
  CHECK(shares_of(p) == std::vector<std::size_t>{1, 1, 0, 0});
  CHECK(p.roles == std::vector<rank_role>{rank_role::worker, rank_role::worker, rank_role::idle, rank_role::idle});
  const auto verdicts = policy.verdicts(p, small_model(), machines, work);
  REQUIRE(verdicts.size() == 4);
  CHECK_FALSE(verdicts[0].leave_out());
  CHECK(verdicts[0].text.empty());
  CHECK(verdicts[2].outcome == rank_outcome::no_samples);
  CHECK_THAT(verdicts[3].text, ContainsSubstring("leave rank 3 (cpu:1) out"));
}

TEST_CASE("memory limits shares, and a rank that cannot hold the model is left out with the reason") {
  const workload work{.global_batch = 40, .micro_batches = 2, .bytes_per_parameter = 16};
  const replicated_memory_model memory;
  const std::size_t model_bytes = 150 * 16;
  const std::size_t sample_bytes = 70 + 2 * 20;
  CHECK(memory.bytes(small_model(), work, 0, 2, 3) == model_bytes + 3 * sample_bytes);
  CHECK(memory.bytes(small_model(), work, 1, 2, 1) == 50 * 16 + 30 + 20);

  auto machines = speeds({1, 1, 1});
  machines.ranks[0].memory_bytes = model_bytes + 3 * sample_bytes;  // 3 per micro-batch, 6 in two
  machines.ranks[2].memory_bytes = model_bytes - 1;
  CHECK(sample_limits(memory, small_model(), machines, work) == std::vector<std::size_t>{6, 40, 0});
  const balanced_partitioner policy;
  const plan p = policy.partition(small_model(), machines, work);
  CHECK(shares_of(p) == std::vector<std::size_t>{6, 34, 0});
  const auto verdicts = policy.verdicts(p, small_model(), machines, work);
  CHECK(verdicts[2].outcome == rank_outcome::no_memory);
  CHECK_THAT(verdicts[2].text, ContainsSubstring("needs 2510 bytes, it has 2399"));

  // A splitter that knows no limits is refused rather than corrected.
  CHECK_THROWS_WITH(
      even_partitioner{}.partition(small_model(), machines, work),
      ContainsSubstring("plan_does_not_fit") && ContainsSubstring("rank 0") && ContainsSubstring("memory for 6"));
  machines.ranks[1].memory_bytes = machines.ranks[0].memory_bytes;
  CHECK_THROWS_WITH(policy.partition(small_model(), machines, work), ContainsSubstring("can take 12 of 40 samples"));
}

TEST_CASE("a rank too slow for one sample, and one that stands still, are left out with the reason") {
  const auto machines = speeds({1, 1000, std::numeric_limits<double>::infinity()});
  const workload work{.global_batch = 10};
  const balanced_partitioner policy;
  const plan p = policy.partition(small_model(), machines, work);
  CHECK(shares_of(p) == std::vector<std::size_t>{10, 0, 0});
  const auto verdicts = policy.verdicts(p, small_model(), machines, work);
  CHECK(verdicts[1].outcome == rank_outcome::too_slow);
  CHECK(verdicts[1].finish_s == Approx(1000));
  CHECK_THAT(verdicts[1].text, ContainsSubstring("the others finish the whole step in 10.0"));
  CHECK(verdicts[2].outcome == rank_outcome::no_speed);
}

TEST_CASE("a partitioner refuses what cannot be planned") {
  const workload work{.global_batch = 4};
  const balanced_partitioner policy;
  CHECK_THROWS_WITH(policy.partition(small_model(), {}, work), ContainsSubstring("at least one rank"));
  CHECK_THROWS_WITH(policy.partition({}, speeds({1}), work), ContainsSubstring("without layers"));
  CHECK_THROWS_WITH(policy.partition(small_model(), speeds({1}), {}), ContainsSubstring("global batch of 0"));
  CHECK_THROWS_WITH(policy.partition(small_model(), speeds({1}), {.global_batch = 1, .micro_batches = 0}),
                    ContainsSubstring("0 micro-batches"));
  CHECK_THROWS_WITH((fixed_partitioner{.shares = {4}}.partition(small_model(), speeds({1, 1}), work)),
                    ContainsSubstring("1 fixed shares were given for 2 ranks"));
}
