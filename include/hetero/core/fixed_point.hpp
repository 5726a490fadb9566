// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include <hetero/core/error.hpp>

/// @file
/// The arithmetic of reproducible mode: terms become 64-bit integers on a common scale, and integers add exactly in any order, so no split, bucket or algorithm can change a bit of the sum.
namespace hetero {

/// A power-of-two scale that all ranks share for one sum.
class fixed_point {
 public:
  /// The finest scale at which `terms` values of magnitude at most `max_magnitude` cannot overflow 63 bits. All ranks
  /// must pass equal numbers (the maximum and the count over every rank).
  /// @throws error invalid_argument when the maximum is not finite
  fixed_point(double max_magnitude, std::uint64_t terms) {
    require(std::isfinite(max_magnitude), errc::invalid_argument,
            [] { return std::string{"a reproducible sum over infinities or NaNs has no value"}; });
    int magnitude_exponent = 0;
    std::frexp(max_magnitude, &magnitude_exponent);  // max < 2^exponent
    int terms_exponent = 0;
    while ((std::uint64_t{1} << terms_exponent) < terms && terms_exponent < 62) ++terms_exponent;
    exponent_ = 62 - terms_exponent - magnitude_exponent;
    if (max_magnitude == 0) exponent_ = 0;
  }

  /// Rounds to the nearest multiple of 2^-exponent (ties to even, the default rounding mode).
  [[nodiscard]] std::int64_t encode(double value) const noexcept {
    return static_cast<std::int64_t>(std::nearbyint(std::ldexp(value, exponent_)));
  }

  [[nodiscard]] double decode(std::int64_t sum) const noexcept {
    return std::ldexp(static_cast<double>(sum), -exponent_);
  }

  /// value * 2^exponent is the integer.
  [[nodiscard]] int exponent() const noexcept { return exponent_; }

 private:
  int exponent_ = 0;
};

}  // namespace hetero
