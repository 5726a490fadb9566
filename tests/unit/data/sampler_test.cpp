// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include <hetero/data/sampler.hpp>

#include "support/catch.hpp"

using namespace hetero;

namespace {

std::vector<std::uint64_t> epoch_ids(const epoch_sampler& sampler, std::uint64_t epoch) {
  std::vector<std::uint64_t> all;
  for (std::uint64_t step = epoch * sampler.steps_per_epoch(); step < (epoch + 1) * sampler.steps_per_epoch(); ++step) {
    const auto ids = sampler.ids(step);
    CHECK(ids.size() == sampler.step_size(step));
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

std::vector<std::uint64_t> counted(std::uint64_t count) {
  std::vector<std::uint64_t> ids(count);
  std::iota(ids.begin(), ids.end(), std::uint64_t{0});
  return ids;
}

}  // namespace

static_assert(epoch_sampler{.samples = 10, .global_batch = 4}.steps_per_epoch() == 3,
              "the sampler works at compile time");
static_assert(epoch_sampler{.samples = 10, .global_batch = 4, .drop_last = true}.steps_per_epoch() == 2);
static_assert(detail::keyed_permutation{1000, 7, 3}(17) < 1000);

TEST_CASE("sampler: every sample exactly once per epoch, for every size") {
  for (std::uint64_t samples = 1; samples <= 70; ++samples) {
    for (const std::uint64_t global_batch : {1U, 3U, 8U, 64U, 100U}) {
      const epoch_sampler sampler{.samples = samples, .global_batch = global_batch, .seed = samples};
      for (const std::uint64_t epoch : {0U, 1U, 5U}) {
        auto ids = epoch_ids(sampler, epoch);
        std::sort(ids.begin(), ids.end());
        REQUIRE(ids == counted(samples));
      }
    }
  }
  const epoch_sampler large{.samples = 100'003, .global_batch = 512, .seed = 1};
  auto ids = epoch_ids(large, 2);
  std::sort(ids.begin(), ids.end());
  CHECK(ids == counted(100'003));
}

TEST_CASE("sampler: the order is a function of seed and epoch alone") {
  const epoch_sampler sampler{.samples = 1000, .global_batch = 10, .seed = 3};
  CHECK(epoch_ids(sampler, 1) == epoch_ids(sampler, 1));
  CHECK(epoch_ids(sampler, 0) != epoch_ids(sampler, 1));
  auto other_seed = sampler;
  other_seed.seed = 4;
  CHECK(epoch_ids(sampler, 0) != epoch_ids(other_seed, 0));
  auto other_batch = sampler;
  other_batch.global_batch = 7;  // another cut of the same order
  CHECK(epoch_ids(sampler, 0) == epoch_ids(other_batch, 0));
  CHECK(epoch_ids(sampler, 0) != counted(1000));
  auto plain = sampler;
  plain.shuffle = false;
  CHECK(epoch_ids(plain, 0) == counted(1000));
  CHECK(epoch_ids(plain, 7) == counted(1000));
}

TEST_CASE("sampler: a step costs the same anywhere in a huge epoch") {
  const epoch_sampler sampler{.samples = 3'000'000'000'017, .global_batch = 16, .seed = 9};
  const auto ids = sampler.ids(100'000'000'000);
  CHECK(ids.size() == 16);
  CHECK(std::all_of(ids.begin(), ids.end(), [&](std::uint64_t id) { return id < sampler.samples; }));
  CHECK(std::any_of(ids.begin(), ids.end(), [](std::uint64_t id) { return id > 0xffffffffU; }));
  // The smallest and the largest domain that the bit arithmetic must carry.
  CHECK(epoch_sampler{.samples = 1, .global_batch = 4}.ids(12) == std::vector<std::uint64_t>{0});
  CHECK(epoch_sampler{.samples = ~std::uint64_t{0}, .global_batch = 2}.ids(1).size() == 2);
}

TEST_CASE("sampler: the last step is smaller, or dropped when asked") {
  const epoch_sampler keep{.samples = 10, .global_batch = 4};
  CHECK(keep.ids(0).size() == 4);
  CHECK(keep.ids(2).size() == 2);
  CHECK(keep.ids(3).size() == 4);
  CHECK(keep.epoch_of(2) == 0);
  CHECK(keep.epoch_of(3) == 1);
  const epoch_sampler drop{.samples = 10, .global_batch = 4, .drop_last = true};
  CHECK(epoch_ids(drop, 0).size() == 8);
  CHECK(epoch_sampler{.samples = 3, .global_batch = 8}.ids(0).size() == 3);
}

TEST_CASE("sampler: small sets reach all orders about equally often") {
  // 24 orders of 4 samples over 4800 epochs: 200 each; chi-square with 23 degrees passes 70 once in a million.
  std::map<std::vector<std::uint64_t>, double> seen;
  const epoch_sampler sampler{.samples = 4, .global_batch = 4, .seed = 11};
  for (std::uint64_t epoch = 0; epoch < 4800; ++epoch) seen[sampler.ids(epoch)] += 1;
  CHECK(seen.size() == 24);
  double chi_square = 0;
  for (const auto& [order, count] : seen) chi_square += (count - 200) * (count - 200) / 200;
  CHECK(chi_square < 70);
}

TEST_CASE("sampler: neighbours are torn apart") {
  const epoch_sampler sampler{.samples = 5000, .global_batch = 5000, .seed = 2};
  const auto ids = sampler.ids(0);
  std::size_t neighbours = 0;
  double correlation = 0;
  for (std::size_t i = 1; i < ids.size(); ++i) {
    neighbours += ids[i] == ids[i - 1] + 1 ? 1 : 0;
    correlation += (static_cast<double>(ids[i]) - 2499.5) * (static_cast<double>(ids[i - 1]) - 2499.5);
  }
  CHECK(neighbours < 10);  // one is expected; in order it is 4999
  CHECK(std::abs(correlation / (5000.0 * 5000.0 * 5000.0 / 12)) < 0.08);
}

TEST_CASE("sampler: any ranks, any change of their number, see each sample once") {
  const epoch_sampler sampler{.samples = 103, .global_batch = 10, .seed = 5};
  const std::array<std::uint64_t, 4> worlds{1, 2, 3, 5};
  std::vector<std::uint64_t> all;
  for (std::uint64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    const std::uint64_t world = worlds[step % 4];  // ranks join and leave between steps
    const auto ids = sampler.ids(step);
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      const std::uint64_t begin = ids.size() * rank / world;
      const std::uint64_t end = ids.size() * (rank + 1) / world;
      for (std::uint64_t i = begin; i < end; ++i) all.push_back(ids[i]);
    }
  }
  std::sort(all.begin(), all.end());
  CHECK(all == counted(103));

  // Control: an order keyed by rank, the usual mistake, does not cover the set.
  std::vector<std::uint64_t> keyed_by_rank;
  for (std::uint64_t rank = 0; rank < 2; ++rank) {
    auto mine = sampler;
    mine.seed += rank;
    const auto ids = epoch_ids(mine, 0);
    keyed_by_rank.insert(keyed_by_rank.end(), ids.begin() + (rank == 0 ? 0 : 51),
                         rank == 0 ? ids.begin() + 51 : ids.end());
  }
  std::sort(keyed_by_rank.begin(), keyed_by_rank.end());
  CHECK(keyed_by_rank != counted(103));
}

TEST_CASE("sampler: nothing to draw from is refused") {
  REQUIRE_THROWS_WITH(epoch_sampler{.global_batch = 1}.ids(0), ContainsSubstring("data set is empty"));
  REQUIRE_THROWS_WITH(epoch_sampler{.samples = 1}.ids(0), ContainsSubstring("global batch is 0"));
  REQUIRE_THROWS_WITH((epoch_sampler{.samples = 3, .global_batch = 4, .drop_last = true}.ids(0)),
                      ContainsSubstring("drop_last = false"));
}

TEST_CASE("sampler: the fingerprint tells orders apart") {
  const epoch_sampler base{.samples = 10, .global_batch = 2, .seed = 1};
  CHECK(base.fingerprint() == epoch_sampler{base}.fingerprint());
  for (const int field : {0, 1, 2, 3, 4}) {
    epoch_sampler other = base;
    if (field == 0) ++other.samples;
    if (field == 1) ++other.global_batch;
    if (field == 2) ++other.seed;
    if (field == 3) other.shuffle = false;
    if (field == 4) other.drop_last = true;
    CHECK(other.fingerprint() != base.fingerprint());
  }
}
