// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <hetero/model/sampling.hpp>

#include "support/catch.hpp"

using namespace hetero;

TEST_CASE("temperature 0 takes the likeliest token", "[model]") {
  const std::vector<float> logits{0.5F, 2.0F, -1.0F, 2.0F};
  for (std::uint64_t i = 0; i < 20; ++i) CHECK(sample_token(logits, {.temperature = 0}, i) == 1);
}

TEST_CASE("tokens are drawn with their probabilities", "[model]") {
  const std::vector<float> logits{std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  const auto shares = [&](const sampling& how) {
    std::array<double, 3> counts{};
    for (std::uint64_t i = 0; i < 20'000; ++i)
      counts[static_cast<std::size_t>(sample_token(logits, how, i))] += 1.0 / 20'000;
    return counts;
  };
  const auto plain = shares({.seed = 4});
  CHECK(plain[0] == Approx(0.5).margin(0.015));
  CHECK(plain[1] == Approx(0.3).margin(0.015));
  CHECK(plain[2] == Approx(0.2).margin(0.015));
  const auto sharp = shares({.temperature = 0.5, .seed = 4});  // probabilities squared
  CHECK(sharp[0] == Approx(0.25 / 0.38).margin(0.015));
  const auto top = shares({.top_k = 2, .seed = 4});
  CHECK(top[0] == Approx(0.5 / 0.8).margin(0.015));
  CHECK(top[2] == 0);
}

TEST_CASE("a draw depends on seed and position alone", "[model]") {
  const std::vector<float> logits(50);
  const auto series = [&](std::uint64_t seed) {
    std::vector<std::int32_t> tokens;
    for (std::uint64_t i = 0; i < 30; ++i) tokens.push_back(sample_token(logits, {.seed = seed}, i));
    return tokens;
  };
  CHECK(series(1) == series(1));
  CHECK(series(1) != series(2));
}

TEST_CASE("sampling survives extreme logits and refuses meaningless ones", "[model]") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(sample_token(std::vector<float>{-infinity, 1e30F, -1e30F}, {}, 0) == 1);
  CHECK(sample_token(std::vector<float>{-infinity, infinity, 0}, {}, 0) == 1);
  CHECK_THROWS_WITH(sample_token({}, {}, 0), ContainsSubstring("empty"));
  CHECK_THROWS_WITH(sample_token(std::vector<float>{0, std::nanf("")}, {}, 0), ContainsSubstring("NaN"));
  CHECK_THROWS_WITH(sample_token(std::vector<float>{0}, {.temperature = -1}, 0), ContainsSubstring("temperature"));
  CHECK_THROWS_WITH(sample_token(std::vector<float>{0}, {.temperature = std::nan("")}, 0),
                    ContainsSubstring("temperature"));
}

TEST_CASE("generate continues a prompt inside a context", "[model]") {
  std::vector<std::size_t> lengths;
  const auto successor = [&](std::span<const std::int32_t> window) {
    lengths.push_back(window.size());
    std::vector<float> logits(10);
    logits[static_cast<std::size_t>((window.back() + 1) % 10)] = 1;
    return logits;
  };
  const std::vector<std::int32_t> prompt{7, 8};
  CHECK(generate(successor, prompt, 5, 4, {.temperature = 0}) == std::vector<std::int32_t>{9, 0, 1, 2, 3});
  CHECK(lengths == std::vector<std::size_t>{2, 3, 4, 4, 4});
  CHECK(generate(successor, prompt, 0, 4).empty());
  CHECK_THROWS_WITH(generate(successor, std::span<const std::int32_t>{}, 5, 4), ContainsSubstring("at least one"));
  CHECK_THROWS_WITH(generate(successor, prompt, 5, 0), ContainsSubstring("at least one"));
}
