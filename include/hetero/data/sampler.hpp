// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/core/hash.hpp>
#include <hetero/core/rng.hpp>

namespace hetero {

namespace detail {

/// A keyed permutation of [0, size): a Feistel network over the next power of two, walked until it lands inside. Any
/// position costs O(1) time and no table, so an epoch of 10^12 samples needs no memory and a resumed run no replay.
class keyed_permutation {
 public:
  constexpr keyed_permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch) noexcept
      : rng_{seed, rng_purpose::shuffle, static_cast<std::uint32_t>(epoch)}, size_{size} {
    const int bits = size <= 1 ? 0 : static_cast<int>(std::bit_width(size - 1));
    left_bits_ = bits / 2;
    right_bits_ = bits - left_bits_;
  }

  [[nodiscard]] constexpr std::uint64_t operator()(std::uint64_t position) const noexcept {
    if (size_ <= 1) return 0;
    do position = mix(position);
    while (position >= size_);  // under two turns on average, because the power of two is below 2 * size
    return position;
  }

 private:
  // Even, so that halves of unequal width end where they began; eight rounds make also sets of three or four samples
  // reach every order.
  static constexpr std::uint32_t rounds = 8;

  [[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) const noexcept {
    int left_bits = left_bits_;
    int right_bits = right_bits_;
    std::uint64_t left = value >> right_bits;
    std::uint64_t right = value & mask(right_bits);
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const auto words = rng_.block((std::uint64_t{round} << 32U) | right);
      const std::uint64_t next = left ^ (words[0] & mask(left_bits));
      left = right;
      right = next;
      const int width = left_bits;
      left_bits = right_bits;
      right_bits = width;
    }
    return (left << right_bits) | right;
  }

  [[nodiscard]] static constexpr std::uint64_t mask(int bits) noexcept { return (std::uint64_t{1} << bits) - 1; }

  counter_rng rng_;
  std::uint64_t size_;
  int left_bits_ = 0;
  int right_bits_ = 0;
};

}  // namespace detail

/// Says which global sample ids each step works on. Ranks do not appear in it: they take parts of a step's list, so any
/// number of ranks, and any change of it, sees every sample exactly once per epoch.
///
/// A plain value; the cursor is the step alone. Every epoch has its own order, keyed by (seed, epoch).
struct epoch_sampler {
  std::uint64_t samples = 0;       ///< samples in one epoch
  std::uint64_t global_batch = 0;  ///< samples per step over all ranks
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;  ///< skip a last step of an epoch that would be smaller than `global_batch`

  friend constexpr bool operator==(const epoch_sampler&, const epoch_sampler&) = default;

  /// @throws error invalid_argument when there is nothing to draw from
  constexpr void validate() const {
    require(global_batch > 0, errc::invalid_argument, "the global batch is 0; it must hold at least one sample");
    require(samples > 0, errc::invalid_argument, "the data set is empty; it must hold at least one sample");
    require(!drop_last || samples >= global_batch, errc::invalid_argument, [&] {
      return "a global batch of " + std::to_string(global_batch) + " with drop_last never fills from " +
             std::to_string(samples) + " samples; take at most " + std::to_string(samples) + ", or drop_last = false";
    });
  }

  /// @throws error invalid_argument when there is nothing to draw from
  [[nodiscard]] constexpr std::uint64_t steps_per_epoch() const {
    validate();
    return samples / global_batch + (!drop_last && samples % global_batch != 0 ? 1 : 0);
  }

  /// Number of the epoch that `step` belongs to, from 0.
  [[nodiscard]] constexpr std::uint64_t epoch_of(std::uint64_t step) const { return step / steps_per_epoch(); }

  /// Samples in `step`: `global_batch`, or fewer in the last step of an epoch.
  [[nodiscard]] constexpr std::uint64_t step_size(std::uint64_t step) const {
    const std::uint64_t begin = step % steps_per_epoch() * global_batch;
    return samples - begin < global_batch ? samples - begin : global_batch;
  }

  /// Global ids of all samples of `step`, in their order. O(batch).
  /// @throws error invalid_argument when there is nothing to draw from
  [[nodiscard]] constexpr std::vector<std::uint64_t> ids(std::uint64_t step) const {
    const std::uint64_t count = step_size(step);
    const std::uint64_t begin = step % steps_per_epoch() * global_batch;
    const detail::keyed_permutation order{samples, seed, epoch_of(step)};
    std::vector<std::uint64_t> list(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      list[static_cast<std::size_t>(i)] = shuffle ? order(begin + i) : begin + i;
    }
    return list;
  }

  /// Equal where the order of samples is equal.
  [[nodiscard]] constexpr std::uint64_t fingerprint() const noexcept {
    return stable_hash{}
        .add("epoch_sampler")
        .add(samples)
        .add(global_batch)
        .add(seed)
        .add((shuffle ? 1U : 0U) | (drop_last ? 2U : 0U))
        .value();
  }
};

}  // namespace hetero
