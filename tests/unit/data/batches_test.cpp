// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <hetero/data/batches.hpp>

#include "support/catch.hpp"

using namespace hetero;

namespace {

/// The smallest dataset: sample i is the number i. Its copies are counted.
struct squares {
  std::uint64_t count = 0;
  std::shared_ptr<int> copies = std::make_shared<int>(0);

  explicit squares(std::uint64_t samples) : count{samples} {}
  squares(const squares& other) : count{other.count}, copies{other.copies} { ++*copies; }

  [[nodiscard]] std::uint64_t size() const { return count; }
  [[nodiscard]] shape input_shape() const { return {1}; }
  [[nodiscard]] shape target_shape() const { return {1}; }
  [[nodiscard]] dtype input_type() const { return dtype::f32; }
  [[nodiscard]] dtype target_type() const { return dtype::f32; }
  void load(std::span<const std::uint64_t> ids, batch& out) const {
    out.prepare(ids, input_type(), input_shape(), target_type(), target_shape());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      out.inputs.elements<float>()[i] = static_cast<float>(ids[i]);
      out.targets.elements<float>()[i] = static_cast<float>(ids[i] * ids[i]);
    }
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return count; }
};

// Near misses: one thing wrong each.
struct load_is_not_const : squares {
  using squares::squares;
  void load(std::span<const std::uint64_t>, batch&) {}
};
struct size_is_int : squares {
  using squares::squares;
  [[nodiscard]] int size() const { return 0; }
};
struct without_fingerprint {
  [[nodiscard]] std::uint64_t size() const { return 0; }
  [[nodiscard]] shape input_shape() const { return {}; }
  [[nodiscard]] shape target_shape() const { return {}; }
  [[nodiscard]] dtype input_type() const { return dtype::f32; }
  [[nodiscard]] dtype target_type() const { return dtype::f32; }
  void load(std::span<const std::uint64_t>, batch&) const {}
};

static_assert(dataset<squares>);
static_assert(batch_source<batches<squares>>);
static_assert(!dataset<load_is_not_const>);
static_assert(!dataset<size_is_int>);
static_assert(!dataset<without_fingerprint>);
static_assert(!batch_source<squares>);

}  // namespace

TEST_CASE("batches: steps of a dataset, loaded by id") {
  const batches steps{squares{10}, {.global_batch = 4, .seed = 1}};
  CHECK(steps.global_batch() == 4);
  CHECK(steps.steps_per_epoch() == 3);
  std::vector<std::uint64_t> all;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto ids = steps.sample_ids(step);
    const batch loaded = steps.load(ids);
    REQUIRE(loaded.sample_ids == ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      CHECK(loaded.targets.elements<float>()[i] == static_cast<float>(ids[i] * ids[i]));
    }
    all.insert(all.end(), ids.begin(), ids.end());
  }
  std::sort(all.begin(), all.end());
  CHECK(all == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(steps.load({}).empty());
}

TEST_CASE("batches: copies share the data") {
  const squares data{10};
  const int before = *data.copies;
  const auto shared = std::make_shared<const squares>(data);
  const batches steps{shared, {.global_batch = 4}};
  const batches copy = steps;  // NOLINT: the copy is the point
  CHECK(&copy.data() == shared.get());
  CHECK(*data.copies == before + 1);
}

TEST_CASE("batches: fingerprints follow data and options; bad options are refused") {
  const auto print = [](std::uint64_t samples, const batch_options& options) {
    return batches{squares{samples}, options}.fingerprint();
  };
  const auto base = print(10, {.global_batch = 4});
  CHECK(base == print(10, {.global_batch = 4}));
  CHECK(base != print(11, {.global_batch = 4}));
  CHECK(base != print(10, {.global_batch = 5}));
  CHECK(base != print(10, {.global_batch = 4, .seed = 1}));
  CHECK(base != print(10, {.global_batch = 4, .shuffle = false}));
  REQUIRE_THROWS_WITH((batches{squares{10}, {}}), ContainsSubstring("global batch is 0"));
  REQUIRE_THROWS_WITH((batches{squares{0}, {.global_batch = 1}}.sample_ids(0)), ContainsSubstring("data set is empty"));
  REQUIRE_THROWS_WITH((batches<squares>{std::shared_ptr<const squares>{}, {.global_batch = 1}}),
                      ContainsSubstring("no data set"));
}
