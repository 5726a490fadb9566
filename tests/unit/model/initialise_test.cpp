// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <thread>
#include <vector>

#include <hetero/model/initialise.hpp>

#include "support/catch.hpp"

using namespace hetero;

namespace {

template <class T = float>
std::vector<T> draw(const parameter_spec& spec, std::uint64_t seed, std::size_t begin, std::size_t end) {
  std::vector<T> values(end - begin);
  initialise(spec, seed, tensor_view{std::span{values}}, begin, end);
  return values;
}

parameter_spec normal_spec() { return {.name = "w", .extents = {13, 7}, .init = initializer::normal(0.5)}; }

}  // namespace

TEST_CASE("any shard of a parameter holds the same values", "[model]") {
  for (const auto& init : {initializer::normal(0.5), initializer::uniform(2), initializer::ones()}) {
    const parameter_spec spec{.name = "w", .extents = {13, 7}, .init = init};
    const auto whole = draw(spec, 3, 0, 91);
    for (std::size_t begin = 0; begin <= 91; begin += 5) {
      for (std::size_t end = begin; end <= 91; end += 3) {
        REQUIRE(draw(spec, 3, begin, end) == std::vector(whole.begin() + static_cast<std::ptrdiff_t>(begin),
                                                         whole.begin() + static_cast<std::ptrdiff_t>(end)));
      }
    }
  }
}

TEST_CASE("values depend on seed and name, and are the generator's", "[model]") {
  const parameter_spec spec = normal_spec();
  parameter_spec other = spec;
  other.name = "v";
  const auto values = draw(spec, 3, 0, 91);
  CHECK(draw(spec, 3, 0, 91) == values);
  CHECK(draw(spec, 4, 0, 91) != values);
  CHECK(draw(other, 3, 0, 91) != values);

  const std::uint64_t hash = stable_hash{}.add("w").value();
  const counter_rng rng{3, rng_purpose::initialise, static_cast<std::uint32_t>(hash ^ (hash >> 32U))};
  for (std::size_t i = 0; i < 91; ++i) CHECK(values[i] == 0.5F * rng.normal(i));
}

TEST_CASE("initial values have the distribution asked for", "[model]") {
  const auto moments = [](const std::vector<float>& values) {
    double sum = 0;
    double squares = 0;
    for (const float v : values) {
      sum += static_cast<double>(v);
      squares += static_cast<double>(v) * static_cast<double>(v);
    }
    const auto n = static_cast<double>(values.size());
    return std::pair{sum / n, std::sqrt(squares / n)};
  };
  constexpr std::size_t n = 100'000;
  const auto normal = draw({.name = "n", .extents = {n}, .init = initializer::normal(0.02)}, 1, 0, n);
  CHECK(std::abs(moments(normal).first) < 0.0003);
  CHECK(moments(normal).second == Approx(0.02).epsilon(0.01));
  const auto uniform = draw({.name = "u", .extents = {n}, .init = initializer::uniform(3)}, 1, 0, n);
  CHECK(std::abs(moments(uniform).first) < 0.03);
  CHECK(moments(uniform).second == Approx(std::sqrt(3.0)).epsilon(0.01));
  CHECK(*std::max_element(uniform.begin(), uniform.end()) < 3);
  CHECK(*std::min_element(uniform.begin(), uniform.end()) >= -3);
  CHECK(draw({.name = "c", .extents = {3}, .init = initializer::ones()}, 1, 0, 3) == std::vector<float>{1, 1, 1});
}

TEST_CASE("initial values come in every floating-point format", "[model]") {
  const auto f32 = draw(normal_spec(), 3, 0, 91);
  const auto f64 = draw<double>(normal_spec(), 3, 0, 91);
  const auto bf16 = draw<bfloat16>(normal_spec(), 3, 0, 91);
  const auto f16 = draw<float16>(normal_spec(), 3, 0, 91);
  for (std::size_t i = 0; i < 91; ++i) {
    CHECK(f64[i] == static_cast<double>(f32[i]));
    CHECK(bf16[i] == bfloat16{f32[i]});
    CHECK(f16[i] == float16{f32[i]});
  }
}

TEST_CASE("initialise refuses ranges that do not fit", "[model]") {
  std::vector<float> values(10);
  const tensor_view out{std::span{values}};
  CHECK_THROWS_WITH(initialise(normal_spec(), 1, out, 85, 95),
                    ContainsSubstring("[85, 95)") && ContainsSubstring("'w' [13, 7]"));
  CHECK_THROWS_WITH(initialise(normal_spec(), 1, out, 5, 10), ContainsSubstring("invalid_shape"));
  CHECK_THROWS_WITH(initialise(normal_spec(), 1, out), ContainsSubstring("[0, 91)"));
  std::vector<std::int32_t> integers(91);
  CHECK_THROWS_WITH(initialise(normal_spec(), 1, tensor_view{std::span{integers}}), ContainsSubstring("i32"));
}
