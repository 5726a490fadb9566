// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <hetero/core/rng.hpp>
#include <hetero/device/cpu/dispatch.hpp>
#include <hetero/device/cpu/simd.hpp>
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/op/elementwise.hpp>

namespace hetero::detail {

/// The random numbers of one dropout op. Element e of sample s takes word e % 4 of block s * blocks_per_sample + e / 4;
/// the step goes into the key through a bijective mix, so that no two steps of a run share a mask.
struct dropout_mask {
  counter_rng rng;
  std::uint64_t blocks_per_sample;
  std::uint32_t threshold;  ///< an element whose 32 random bits are below it is dropped

  dropout_mask(const op::dropout& o, std::size_t elements_per_sample) noexcept
      : rng{o.seed ^ mix(o.step), rng_purpose::dropout, o.layer},
        blocks_per_sample{(elements_per_sample + 3) / 4},
        threshold{static_cast<std::uint32_t>(std::min(std::round(o.probability * 0x1p32), 0x1p32 - 1))} {}

  [[nodiscard]] bool keeps(std::uint64_t sample, std::uint64_t element) const noexcept {
    return rng.block(sample * blocks_per_sample + element / 4)[element % 4] >= threshold;
  }

  /// A bijection of 64 bits without small patterns: two rounds of shift, xor and odd multiplication.
  [[nodiscard]] static constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x = (x ^ (x >> 32U)) * 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 29U)) * 0xD1B54A32D192ED03ULL;
    return x ^ (x >> 32U);
  }
};

}  // namespace hetero::detail

namespace hetero::detail::cpu {

/// The words of 16 consecutive blocks, in order. The loops run over blocks so that compilers vectorise the rounds.
inline void random_words(const counter_rng& rng, std::uint64_t first_block, std::uint32_t (&words)[64]) noexcept {
  for (std::size_t b = 0; b < 16; ++b) {
    const auto block = rng.block(first_block + b);
    for (std::size_t k = 0; k < 4; ++k) words[4 * b + k] = block[k];
  }
}

inline void run(const op::dropout& o, thread_team& team) {
  for_float_type("dropout", o.out.type(), [&]<class T>() {
    expect_alike("dropout", {{"out", o.out}, {"in", o.in}});
    require(o.probability >= 0 && o.probability < 1, errc::invalid_argument,
            [&] { return "dropout: the probability must be in [0, 1), not " + std::to_string(o.probability); });
    const std::size_t samples = o.in.dims() == 0 ? 1 : o.in.extent(0);
    const std::size_t elements = samples == 0 ? 0 : o.in.count() / samples;
    expect_dense("dropout", {"sample_ids", o.sample_ids}, samples, dtype::i64);
    const auto* ids = o.sample_ids.as<std::int64_t>();
    const dropout_mask mask{o, elements};
    const T factor = static_cast<T>(1 / (1 - o.probability));

    constexpr std::size_t piece = 64;  // elements that one call of random_words serves
    const std::size_t pieces_per_sample = (elements + piece - 1) / piece;
    team.parallel(samples * pieces_per_sample, 32, [&](std::size_t begin, std::size_t end, std::size_t) {
      std::uint32_t words[piece];
      for (std::size_t at = begin; at < end; ++at) {
        const std::size_t sample = at / pieces_per_sample;
        const std::size_t first = at % pieces_per_sample * piece;
        const std::size_t count = std::min(piece, elements - first);
        random_words(mask.rng, static_cast<std::uint64_t>(ids[sample]) * mask.blocks_per_sample + first / 4, words);
        const T* in = o.in.as<T>() + sample * elements + first;
        T* out = o.out.as<T>() + sample * elements + first;
        for (std::size_t i = 0; i < count; ++i) {
          const T scaled = in[i] * factor;
          out[i] = words[i] < mask.threshold ? T{0} : scaled;
        }
      }
    });
  });
}

}  // namespace hetero::detail::cpu
