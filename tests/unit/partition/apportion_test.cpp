// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <hetero/partition/apportion.hpp>
#include <hetero/partition/even.hpp>
#include <hetero/partition/fixed.hpp>

#include "support/catch.hpp"

namespace {

using namespace hetero;

cluster of_ranks(std::size_t count) {
  cluster machines;
  machines.ranks.assign(count, {.device = "cpu:1", .compute = {0.0, 1.0}});
  return machines;
}

}  // namespace

TEST_CASE("largest remainder: parts add up, keep their quota, and follow the weights") {
  std::mt19937_64 random{11};
  std::uniform_real_distribution<> weight{0.001, 10};
  int rounded_naively_wrong = 0;
  for (int repeat = 0; repeat < 2000; ++repeat) {
    std::vector<double> weights(1 + random() % 8);
    for (double& w : weights) w = random() % 6 == 0 ? 0.0 : weight(random);
    weights[0] += 0.5;
    const std::size_t total = random() % 200;
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const auto parts = apportion(total, weights);
    REQUIRE(std::accumulate(parts.begin(), parts.end(), std::size_t{0}) == total);
    std::size_t naive = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const double quota = static_cast<double>(total) * weights[i] / sum;
      REQUIRE(std::abs(static_cast<double>(parts[i]) - quota) < 1 + 1e-9);
      if (weights[i] == 0) REQUIRE(parts[i] == 0);
      for (std::size_t j = 0; j < parts.size(); ++j) {
        if (weights[i] > weights[j]) REQUIRE(parts[i] >= parts[j]);
      }
      naive += static_cast<std::size_t>(std::lround(quota));
    }
    rounded_naively_wrong += naive != total ? 1 : 0;
  }
  CHECK(rounded_naively_wrong > 200);  // control: rounding each part on its own loses or invents samples
}

TEST_CASE("largest remainder on known cases") {
  CHECK(apportion(9, std::vector<double>{5, 3, 1}) == std::vector<std::size_t>{5, 3, 1});
  CHECK(apportion(10, std::vector<double>{1, 1, 1}) == std::vector<std::size_t>{4, 3, 3});
  CHECK(apportion(7, std::vector<double>{3, 3, 1}) == std::vector<std::size_t>{3, 3, 1});
  CHECK(apportion(0, std::vector<double>{1, 2}) == std::vector<std::size_t>{0, 0});
  CHECK(apportion(1, std::vector<double>{1, 2}) == std::vector<std::size_t>{0, 1});
  CHECK(apportion(3, std::vector<double>{0.1, 0.1, 0.1}) == std::vector<std::size_t>{1, 1, 1});
  CHECK_THROWS_WITH(apportion(3, std::vector<double>{}), ContainsSubstring("invalid_argument"));
  CHECK_THROWS_WITH(apportion(3, std::vector<double>{0, 0}), ContainsSubstring("at least one positive"));
  CHECK_THROWS_WITH(apportion(3, std::vector<double>{1, -1}), ContainsSubstring("weight 1"));
  CHECK_THROWS_WITH(apportion(3, std::vector<double>{std::nan("")}), ContainsSubstring("weight 0"));
  CHECK_THROWS_WITH(apportion(3, std::vector<double>{std::numeric_limits<double>::infinity()}),
                    ContainsSubstring("weight 0"));
}

TEST_CASE("even, fixed and ratio splits") {
  CHECK(even_splitter{}.split(10, of_ranks(4)) == std::vector<std::size_t>{3, 3, 2, 2});
  CHECK(even_splitter{}.split(2, of_ranks(4)) == std::vector<std::size_t>{1, 1, 0, 0});
  CHECK_THROWS_WITH(even_splitter{}.split(2, {}), ContainsSubstring("without ranks"));

  const fixed_splitter fixed{.shares = {5, 0, 1}};
  CHECK(fixed.split(6, of_ranks(3)) == std::vector<std::size_t>{5, 0, 1});
  CHECK_THROWS_WITH(fixed.split(6, of_ranks(2)), ContainsSubstring("3 fixed shares were given for 2 ranks"));
  CHECK_THROWS_WITH(fixed.split(7, of_ranks(3)), ContainsSubstring("add up to 6, the global batch is 7"));

  const ratio_splitter ratio{.ratio = {5, 3, 1}};
  CHECK(ratio.split(18, of_ranks(3)) == std::vector<std::size_t>{10, 6, 2});
  CHECK(ratio.split(17, of_ranks(5)) == std::vector<std::size_t>{5, 3, 1, 5, 3});
  CHECK_THROWS_WITH(ratio_splitter{.ratio = {}}.split(3, of_ranks(2)), ContainsSubstring("invalid_argument"));
}
