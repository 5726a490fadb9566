// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hetero/data/concepts.hpp>

#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

namespace hetero::bench {

/// An endless batch source of random tokens: what a step costs does not depend on the text. Windows of `context`
/// tokens, each with as many random targets, all counted.
struct random_tokens {
  std::uint64_t samples = 1;  ///< global batch
  std::uint64_t context = 1;
  std::uint64_t vocabulary = 1;

  [[nodiscard]] std::uint64_t global_batch() const noexcept { return samples; }
  [[nodiscard]] std::uint64_t steps_per_epoch() const noexcept { return std::uint64_t{1} << 32U; }
  [[nodiscard]] std::vector<std::uint64_t> sample_ids(std::uint64_t step) const {
    std::vector<std::uint64_t> ids(samples);
    std::iota(ids.begin(), ids.end(), step * samples);
    return ids;
  }
  [[nodiscard]] batch load(std::span<const std::uint64_t> ids) const {
    batch out;
    out.prepare(ids, dtype::i32, {context}, dtype::i32, {context});
    const auto inputs = out.inputs.elements<std::int32_t>();
    const auto targets = out.targets.elements<std::int32_t>();
    std::uniform_int_distribution<std::int32_t> token{0, static_cast<std::int32_t>(vocabulary - 1)};
    for (std::size_t row = 0; row < ids.size(); ++row) {
      std::minstd_rand engine{static_cast<std::uint32_t>(ids[row] + 1)};
      for (std::size_t i = row * context; i < (row + 1) * context; ++i) {
        inputs[i] = token(engine);
        targets[i] = token(engine);
      }
    }
    return out;
  }
  [[nodiscard]] std::uint64_t fingerprint() const noexcept { return (samples << 40U) ^ (context << 20U) ^ vocabulary; }
};

static_assert(batch_source<random_tokens>);

}  // namespace hetero::bench
