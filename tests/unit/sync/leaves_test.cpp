// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <array>
#include <bit>
#include <limits>

#include <hetero/comm/run_ranks.hpp>
#include <hetero/comm/self.hpp>
#include <hetero/core/rng.hpp>
#include <hetero/device/cpu_device.hpp>
#include <hetero/device/stream.hpp>
#include <hetero/model/mlp.hpp>
#include <hetero/sync/all_reduce.hpp>
#include <hetero/sync/leaves.hpp>

using namespace hetero;

namespace {

const parameter_layout& layout() {
  static const parameter_layout made = layout_of(mlp{{.widths = {3, 5, 2}}});
  return made;
}

/// Flat gradients of samples whose magnitudes differ by many orders: the sum in another order is another float.
std::vector<std::vector<float>> gradients(std::size_t samples) {
  const counter_rng rng{5, rng_purpose::shuffle, 0};
  std::vector<std::vector<float>> all(samples, std::vector<float>(layout().trainable_elements, 0.0F));
  for (std::size_t s = 0; s < samples; ++s) {
    for (const auto& entry : layout().entries) {
      for (std::size_t i = entry.offset; i < entry.end(); ++i) {
        const auto words = rng.block(s * 10000 + i);
        all[s][i] = std::ldexp(2 * counter_rng::to_unit(words[0]) - 1, static_cast<int>(words[1] % 24) - 12);
      }
    }
  }
  return all;
}

/// Sums `all` on ranks that hold `shares` samples each, visited in `order`.
std::vector<std::vector<float>> sum_on(const std::vector<std::vector<float>>& all,
                                       const std::vector<std::size_t>& shares, bool backwards = false) {
  std::vector<std::vector<float>> results(shares.size());
  run_ranks(static_cast<std::uint32_t>(shares.size()), [&](world& w) {
    const std::size_t r = index_of(w.rank());
    std::size_t first = 0;
    for (std::size_t i = 0; i < r; ++i) first += shares[i];
    any_device device = cpu_device{};
    stream on{device};
    std::vector<std::vector<float>> mine(all.begin() + static_cast<std::ptrdiff_t>(first),
                                         all.begin() + static_cast<std::ptrdiff_t>(first + shares[r]));
    if (backwards) std::reverse(mine.begin(), mine.end());
    std::vector<tensor_view> views;
    for (auto& each : mine) views.emplace_back(std::span{each});
    results[r].assign(layout().trainable_elements, std::numeric_limits<float>::quiet_NaN());
    replica_tensors tensors{device, on.id(), &layout(), {}, tensor_view{std::span{results[r]}}};
    reduce_leaves(w, tensors, {views});
    on.synchronize();
  });
  return results;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

}  // namespace

TEST_CASE("leaves add to the same bits for any split and order, near the true sum", "[sync]") {
  const auto all = gradients(11);
  const auto reference = sum_on(all, {11}).front();
  for (const auto& shares :
       std::vector<std::vector<std::size_t>>{{6, 5}, {0, 11}, {5, 3, 3}, {1, 0, 10}, {3, 2, 2, 2, 2}}) {
    for (const bool backwards : {false, true}) {
      for (const auto& result : sum_on(all, shares, backwards)) REQUIRE(same_bits(result, reference));
    }
  }
  std::vector<float> floats(reference.size(), 0);  // control: adding floats in another order gives other bits
  std::vector<float> floats_backwards = floats;
  for (std::size_t i = 0; i < floats.size(); ++i) {
    double exact = 0;
    double largest = 0;
    for (const auto& g : all) {
      exact += static_cast<double>(g[i]);
      largest = std::max(largest, std::abs(static_cast<double>(g[i])));
      floats[i] += g[i];
    }
    for (std::size_t s = all.size(); s-- > 0;) floats_backwards[i] += all[s][i];
    REQUIRE(static_cast<double>(reference[i]) == Approx(exact).epsilon(1e-6).margin(largest * 1e-9));
  }
  REQUIRE_FALSE(same_bits(floats, floats_backwards));
}

TEST_CASE("no leaves at all add to zero", "[sync]") {
  for (const auto& result : sum_on({}, {0, 0})) {
    for (const float v : result) REQUIRE(std::bit_cast<std::uint32_t>(v) == 0);
  }
}

TEST_CASE("one gradient that is not finite is an error on every rank", "[sync]") {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto all = gradients(4);
    all[3][layout().entries[1].offset] = bad;
    std::array<errc, 2> codes{errc::io, errc::io};
    run_ranks(2, [&](world& w) {
      any_device device = cpu_device{};
      stream on{device};
      std::vector<tensor_view> views;
      for (std::size_t i = 2 * index_of(w.rank()); i < 2 * index_of(w.rank()) + 2; ++i)
        views.emplace_back(std::span{all[i]});
      std::vector<float> sum(layout().trainable_elements);
      replica_tensors tensors{device, on.id(), &layout(), {}, tensor_view{std::span{sum}}};
      try {
        reduce_leaves(w, tensors, {views});
      } catch (const error& e) {
        codes[index_of(w.rank())] = e.code();
      }
    });
    REQUIRE(codes == std::array{errc::invalid_argument, errc::invalid_argument});
  }
}

TEST_CASE("weighted sums of samples add to the same bits for any split", "[sync]") {
  std::vector<weighted_sum> samples;
  const counter_rng rng{6, rng_purpose::shuffle, 0};
  for (std::size_t i = 0; i < 13; ++i) {
    samples.push_back(
        {static_cast<double>(counter_rng::to_unit(rng.block(i)[0])) * std::pow(10.0, static_cast<double>(i % 5)),
         0.1 * static_cast<double>(i)});
  }
  const auto total = [&](const std::vector<std::size_t>& borders) {
    std::vector<weighted_sum> all(borders.size() - 1);
    run_ranks(static_cast<std::uint32_t>(all.size()), [&](world& w) {
      const std::size_t r = index_of(w.rank());
      all[r] =
          reduce_leaves(w, std::span<const weighted_sum>{samples}.subspan(borders[r], borders[r + 1] - borders[r]));
    });
    return all;
  };
  const weighted_sum reference = total({0, 13}).front();
  for (const auto& borders :
       std::vector<std::vector<std::size_t>>{{0, 6, 13}, {0, 0, 13}, {0, 4, 4, 13}, {0, 2, 5, 6, 9, 13}}) {
    for (const auto& each : total(borders)) REQUIRE(each == reference);
  }
  weighted_sum plain;
  for (const auto& s : samples) plain += s;
  REQUIRE(reference.sum == Approx(plain.sum).epsilon(1e-12));
  REQUIRE(reference.weight == Approx(plain.weight).epsilon(1e-12));

  world w = self();
  samples.push_back({std::numeric_limits<double>::quiet_NaN(), 1});
  REQUIRE_THROWS_AS(reduce_leaves(w, std::span<const weighted_sum>{samples}), error);
}

TEST_CASE("an all_reduce session sums each bucket once and drains what is left", "[sync]") {
  for (const auto& [overlap, order] : {std::pair{true, queue_order::fifo}, std::pair{true, queue_order::priority},
                                       std::pair{false, queue_order::fifo}}) {
    const all_reduce_synchronizer sync{.bucket_bytes = 1, .overlap = overlap, .order = order};
    const auto buckets = sync.buckets(layout(), dtype::f32);
    REQUIRE(buckets.size() == (overlap ? 4U : 1U));
    std::vector<std::vector<float>> sums(3);
    run_ranks(3, [&](world& w) {
      any_device device = cpu_device{};
      stream on{device};
      auto& mine = sums[index_of(w.rank())];
      mine.assign(layout().trainable_elements, static_cast<float>(index_of(w.rank()) + 1));
      auto session = sync.start(w, {device, on.id(), &layout(), {}, tensor_view{std::span{mine}}});
      sync_step step{.weight = 5};
      session.before_forward(step);
      for (const auto& b : buckets) session.bucket_ready(b, step);
      session.before_update(step);
      require(step.apply && step.weight == 5, errc::invalid_argument, "an exact session leaves the step alone");
      session.after_update(step);
      session.drain();
      require(session.save().empty(), errc::invalid_argument, "there is no state between steps");
    });
    for (const auto& mine : sums) {
      for (const float v : mine) REQUIRE(v == 6);
    }
  }
  REQUIRE(all_reduce_synchronizer{}.extra_bytes(layout(), dtype::f32) == 0);
}
