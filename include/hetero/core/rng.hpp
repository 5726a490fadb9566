// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

/// @file
/// Counter-based randomness (Philox 4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
/// A number is a pure function of (seed, purpose, global index), so it does not depend on who draws it or when.
namespace hetero {

/// What a random number is for; two purposes never share numbers.
enum class rng_purpose : std::uint32_t { initialise = 1, shuffle = 2, dropout = 3, sample_text = 4, test = 5, user = 1024 };

/// Four 32-bit random words for one 128-bit counter under one 64-bit key.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                                std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32U) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32U) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// Random numbers for one (seed, purpose, stream): `word(i)` and friends are pure functions of i.
///
/// `stream` separates users of one purpose, for example the layers that drop out; `index` is global (a sample id, an
/// element number), never one that depends on rank.
class counter_rng {
 public:
  constexpr counter_rng(std::uint64_t seed, rng_purpose purpose, std::uint32_t stream = 0) noexcept
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)},
        purpose_{static_cast<std::uint32_t>(purpose)},
        stream_{stream} {}

  /// Four words of block `index`; a block holds the numbers 4 * index to 4 * index + 3.
  [[nodiscard]] constexpr std::array<std::uint32_t, 4> block(std::uint64_t index) const noexcept {
    return philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32U), purpose_, stream_},
                      key_);
  }

  [[nodiscard]] constexpr std::uint32_t word(std::uint64_t index) const noexcept {
    return block(index / 4)[index % 4];
  }

  /// Uniform in [0, 1), 24 random bits.
  [[nodiscard]] constexpr float uniform(std::uint64_t index) const noexcept { return to_unit(word(index)); }

  /// Standard normal by Box-Muller on the two words of an even-odd pair; never infinite.
  [[nodiscard]] float normal(std::uint64_t index) const noexcept {
    const auto words = block(index / 4);
    const std::size_t pair = (index % 4) & ~std::size_t{1};
    const double u = (static_cast<double>(words[pair]) + 1.0) * 0x1p-32;
    const double angle = 6.283185307179586 * (static_cast<double>(words[pair + 1]) * 0x1p-32);
    const double radius = std::sqrt(-2.0 * std::log(u));
    return static_cast<float>(radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle)));
  }

  [[nodiscard]] static constexpr float to_unit(std::uint32_t word) noexcept {
    return static_cast<float>(word >> 8U) * 0x1p-24F;
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint32_t purpose_;
  std::uint32_t stream_;
};

}  // namespace hetero
