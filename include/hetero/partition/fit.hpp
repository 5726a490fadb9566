// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/partition/finish_time.hpp>
#include <hetero/plan/cluster.hpp>

/// @file
/// From measured steps to the line seconds = fixed_s + per_sample_s * samples, once before a run and all through it.
namespace hetero {

/// One measured step of one rank: its samples, and the seconds it computed without waiting for others.
struct compute_observation {
  std::size_t samples = 0;
  double seconds = 0;
  friend bool operator==(const compute_observation&, const compute_observation&) = default;
};

namespace detail {

/// The middle value; of an even number the lower of the two middle ones. @pre not empty
[[nodiscard]] inline double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace detail

/// The line through observations of at least two different sample counts: the median of all pairwise slopes
/// (Theil-Sen), which nearly a third of the observations may spoil. Neither part comes out negative.
/// @throws error invalid_argument with fewer than two sample counts, or a time that is not a positive number
[[nodiscard]] inline compute_model fit_compute_model(std::span<const compute_observation> observations,
                                                     double backward_share = 2.0 / 3.0) {
  std::vector<double> slopes;
  for (std::size_t i = 0; i < observations.size(); ++i) {
    const auto& a = observations[i];
    require(std::isfinite(a.seconds) && a.seconds > 0 && a.samples > 0, errc::invalid_argument, [&] {
      return "observation " + std::to_string(i) + " is " + std::to_string(a.seconds) + " s for " +
             std::to_string(a.samples) + " samples; both must be positive";
    });
    for (std::size_t j = 0; j < i; ++j) {
      const auto& b = observations[j];
      if (a.samples == b.samples) continue;
      slopes.push_back((a.seconds - b.seconds) / (static_cast<double>(a.samples) - static_cast<double>(b.samples)));
    }
  }
  require(!slopes.empty(), errc::invalid_argument,
          "a line needs steps of at least two different sample counts; measure another one");
  const auto fixed_for = [&](double slope) {
    std::vector<double> rests;
    for (const auto& o : observations) rests.push_back(o.seconds - slope * static_cast<double>(o.samples));
    return detail::median_of(std::move(rests));
  };
  double slope = detail::median_of(slopes);
  double fixed = fixed_for(slope);
  if (fixed < 0 || slope <= 0) {  // noise: then the time per sample alone explains more than the line
    std::vector<double> rates;
    for (const auto& o : observations) rates.push_back(o.seconds / static_cast<double>(o.samples));
    slope = detail::median_of(std::move(rates));
    fixed = 0;
  }
  return {.fixed_s = fixed, .per_sample_s = slope, .backward_share = backward_share};
}

/// How a `compute_model_fitter` weighs news against noise.
struct fit_options {
  std::uint32_t confirm = 2;  ///< steps that must agree before a jump of the speed is believed
  std::uint32_t window = 16;  ///< steps between slow corrections
  double jump = 0.15;   ///< relative change that is a jump while the noise is unknown; a third of it when it is low
  double follow = 0.5;  ///< part of a slow deviation that one correction takes over
  friend constexpr bool operator==(const fit_options&, const fit_options&) = default;
};

/// Follows a rank's speed from its steps: a jump within `confirm` steps, a slow drift by corrections, noise not at all.
///
/// The *ratio* of measured to expected time moves the whole line. Refitting slope and intercept from a running job
/// would not work: shares change because speeds changed, so samples and seconds are not independent there.
class compute_model_fitter {
 public:
  /// Starts from a measured line, or from nothing: then the first step gives a line through zero.
  explicit compute_model_fitter(compute_model prior = {}, fit_options options = {}) : model_{prior}, options_{options} {
    require(
        options.confirm >= 1 && options.window >= 1 && options.jump > 0 && options.follow > 0 && options.follow <= 1,
        errc::invalid_argument, "a fitter needs confirm and window from 1, jump above 0 and follow in (0, 1]");
  }

  /// The line now; per_sample_s is 0 until something was measured.
  [[nodiscard]] const compute_model& estimate() const noexcept { return model_; }

  /// Takes one step into account. A step without samples, or one too short for the clock (0 s), says nothing and is
  /// ignored. Returns true when the estimate changed.
  /// @throws error invalid_argument for a time that is negative or not finite
  bool observe(std::size_t samples, double seconds) {
    require(std::isfinite(seconds) && seconds >= 0, errc::invalid_argument,
            [&] { return "a step took " + std::to_string(seconds) + " s; a time from 0 up is needed"; });
    if (samples == 0 || seconds == 0) return false;
    if (!(model_.per_sample_s > 0)) {
      model_.fixed_s = 0;
      model_.per_sample_s = seconds / static_cast<double>(samples);
      history_.push_back({samples, seconds});
      return true;
    }
    history_.push_back({samples, seconds});
    if (history_.size() > 2 * std::size_t{options_.window}) history_.pop_front();
    ++since_correction_;
    ++since_jump_;

    const std::size_t witnesses = 2 * std::size_t{options_.confirm} - 1;
    if (history_.size() >= witnesses) {
      const double recent = detail::median_of(ratios(history_.size() - witnesses));
      if (std::abs(std::log(recent)) > std::log1p(threshold())) {
        jump_to(recent, witnesses);
        return true;
      }
    }
    // A jump is believed after few steps, so its size is still uncertain: all steps since then settle it, at 4, 8, ...
    const bool settles =
        jumped_ && since_jump_ >= 4 && since_jump_ <= options_.window && std::has_single_bit(since_jump_);
    if (settles) {
      since_correction_ = 0;
      scale_by(detail::median_of(ratios(0)));
      return true;
    }
    if (since_correction_ < options_.window) return false;
    since_correction_ = 0;
    const std::size_t from = history_.size() > options_.window ? history_.size() - options_.window : 0;
    scale_by(1 + options_.follow * (detail::median_of(ratios(from)) - 1));
    return true;
  }

 private:
  [[nodiscard]] double ratio(const compute_observation& o) const { return o.seconds / compute_s(model_, o.samples); }

  [[nodiscard]] std::vector<double> ratios(std::size_t from) const {
    std::vector<double> all;
    for (std::size_t i = from; i < history_.size(); ++i) all.push_back(ratio(history_[i]));
    return all;
  }

  /// Six deviations of a median of three, from the noise seen; the deviation is taken robustly, so the jump that is to
  /// be found does not hide itself.
  [[nodiscard]] double threshold() const {
    constexpr std::size_t enough_to_know = 16;
    if (history_.size() < enough_to_know) return options_.jump;
    std::vector<double> distances = ratios(0);
    const double middle = detail::median_of(distances);
    for (double& d : distances) d = std::abs(d - middle);
    constexpr double deviation_per_median_distance = 1.4826;
    constexpr double deviation_of_median_of_three = 0.67;
    const double noise = deviation_per_median_distance * detail::median_of(std::move(distances)) / middle;
    return std::max(options_.jump / 3, 6 * deviation_of_median_of_three * noise);
  }

  void jump_to(double factor, std::size_t witnesses) {
    history_.erase(history_.begin(), history_.end() - static_cast<std::ptrdiff_t>(witnesses));
    scale_by(factor);
    std::erase_if(history_, [&](const auto& o) { return std::abs(std::log(ratio(o))) > std::log1p(options_.jump); });
    since_correction_ = 0;
    since_jump_ = static_cast<std::uint32_t>(history_.size());
    jumped_ = true;
  }

  void scale_by(double factor) noexcept {
    model_.fixed_s *= factor;
    model_.per_sample_s *= factor;
  }

  compute_model model_;
  fit_options options_;
  std::deque<compute_observation> history_{};  ///< since the last jump, at most two windows
  std::uint32_t since_correction_ = 0;
  std::uint32_t since_jump_ = 0;
  bool jumped_ = false;
};

}  // namespace hetero
