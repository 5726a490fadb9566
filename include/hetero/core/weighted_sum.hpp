// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <hetero/core/error.hpp>

/// @file
/// Law 1 as types: a part of a sum has no mean; only the sum over all ranks has one.
namespace hetero {

/// A sum and the weight it was taken over, on one rank. It has no conversion to a mean: adding means is wrong as soon
/// as ranks hold unequal work. An `all_reduce` turns it into a `global_sum`.
struct weighted_sum {
  double sum = 0;
  double weight = 0;

  constexpr weighted_sum& operator+=(const weighted_sum& other) noexcept {
    sum += other.sum;
    weight += other.weight;
    return *this;
  }
  friend constexpr weighted_sum operator+(weighted_sum a, const weighted_sum& b) noexcept { return a += b; }
  friend constexpr bool operator==(const weighted_sum&, const weighted_sum&) = default;
};

/// The sum and weight over every rank; only this has a mean.
class global_sum {
 public:
  /// Wraps totals that really cover every rank; collectives and single-device programs are the callers.
  constexpr explicit global_sum(weighted_sum total) noexcept : total_{total} {}

  [[nodiscard]] constexpr double sum() const noexcept { return total_.sum; }
  [[nodiscard]] constexpr double weight() const noexcept { return total_.weight; }

  /// The one division.
  /// @throws error invalid_argument when nothing was counted on any rank
  [[nodiscard]] constexpr double mean() const {
    require(total_.weight > 0, errc::invalid_argument, [] {
      return std::string{"the mean of nothing: no rank counted a sample (are all targets ignored?)"};
    });
    return total_.sum / total_.weight;
  }

 private:
  weighted_sum total_;
};

}  // namespace hetero
