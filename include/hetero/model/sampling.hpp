// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/core/rng.hpp>

/// @file
/// Text from logits. Knows nothing of models: logits in, token out.
namespace hetero {

/// How the next token is drawn.
struct sampling {
  double temperature = 1;  ///< 0 takes the likeliest token; below 1 sharpens, above 1 flattens
  std::size_t top_k = 0;   ///< draws among the k likeliest only; 0 for all
  std::uint64_t seed = 0;  ///< token number i of seed s is the same on every machine
  friend bool operator==(const sampling&, const sampling&) = default;
};

/// Draws token number `position` from its logits; ties go to the smaller id.
/// @throws error invalid_argument without logits, for a NaN among them, or for a temperature that is not finite and >=
/// 0
[[nodiscard]] inline std::int32_t sample_token(std::span<const float> logits, const sampling& how,
                                               std::uint64_t position) {
  require(!logits.empty(), errc::invalid_argument, "there is no token to draw: the logits are empty");
  require(std::isfinite(how.temperature) && how.temperature >= 0, errc::invalid_argument,
          [&] { return "temperature " + std::to_string(how.temperature) + " must be finite and at least 0"; });
  for (const float logit : logits) {
    require(!std::isnan(logit), errc::invalid_argument, "a logit is NaN: the model has diverged");
  }
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (how.temperature == 0) return static_cast<std::int32_t>(largest - logits.begin());

  float threshold = -std::numeric_limits<float>::infinity();
  if (how.top_k > 0 && how.top_k < logits.size()) {
    std::vector<float> sorted{logits.begin(), logits.end()};
    const auto kth = sorted.begin() + static_cast<std::ptrdiff_t>(how.top_k) - 1;
    std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>{});
    threshold = *kth;
  }
  std::vector<double> cumulative(logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= threshold) {
      sum += logits[i] == *largest
                 ? 1.0
                 : std::exp((static_cast<double>(logits[i]) - static_cast<double>(*largest)) / how.temperature);
    }
    cumulative[i] = sum;
  }
  const counter_rng rng{how.seed, rng_purpose::sample_text};
  const double target = static_cast<double>(rng.uniform(position)) * sum;
  const auto drawn = std::upper_bound(cumulative.begin(), cumulative.end(), target);
  return static_cast<std::int32_t>(std::min<std::ptrdiff_t>(drawn - cumulative.begin(), std::ssize(logits) - 1));
}

/// Continues `prompt` by `count` tokens and returns the new ones. `next_logits(window)` is given the last `context`
/// tokens at most and returns something that converts to std::span<const float>: the logits of the token after the
/// window.
/// @throws error invalid_argument for an empty prompt or context, and whatever `next_logits` and sample_token throw
template <class NextLogits>
[[nodiscard]] std::vector<std::int32_t> generate(NextLogits&& next_logits, std::span<const std::int32_t> prompt,
                                                 std::size_t count, std::size_t context, const sampling& how = {}) {
  require(!prompt.empty() && context > 0, errc::invalid_argument,
          "text is continued from at least one token, in a context of at least one");
  std::vector<std::int32_t> tokens{prompt.begin(), prompt.end()};
  tokens.reserve(prompt.size() + count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t length = std::min(context, tokens.size());
    const auto logits = next_logits(std::span<const std::int32_t>{tokens}.last(length));
    tokens.push_back(sample_token(std::span<const float>{logits}, how, i));
  }
  tokens.erase(tokens.begin(), tokens.begin() + std::ssize(prompt));
  return tokens;
}

}  // namespace hetero
