// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hetero/report/progress.hpp>
#include <hetero/report/step_report.hpp>
#include <hetero/report/table.hpp>

namespace hetero {

/// One rank over a whole run. Fractions are totals over totals, never means of means.
struct rank_summary {
  std::uint32_t rank = 0;
  std::string device{};
  std::uint64_t samples = 0;     ///< in the whole run
  std::uint64_t last_share = 0;  ///< in the last step
  double busy = 0;               ///< time it computed / time of the run's steps
  double samples_per_second = 0;
  double wait_s = 0;
};

/// Adds up the steps of a run. Local; one thread.
class run_summary {
 public:
  /// Counts one step.
  void add(const step_report& report) {
    ++steps_;
    seconds_ += report.seconds;
    samples_ += report.samples;
    tokens_ += report.tokens;
    last_step_ = report.step;
    loss_ = report.loss;
    if (report.validation_loss) validation_loss_ = report.validation_loss;
    if (report.rebalanced) ++rebalances_;
    for (totals& rank : ranks_) rank.last_share = 0;  // one that is missing from this step did nothing in it
    for (const rank_report& rank : report.ranks) {
      totals& sum = of(rank.rank);
      sum.device = rank.device;
      sum.samples += rank.share;
      sum.last_share = rank.share;
      sum.busy_s += rank.busy * report.seconds;
      sum.wait_s += rank.wait_s;
    }
  }

  /// Records a pool efficiency that was measured; it is not derived from the steps.
  void set_pool_efficiency(double efficiency) { pool_efficiency_ = efficiency; }
  /// Records a loss that was evaluated after the last step.
  void set_validation_loss(double loss) { validation_loss_ = loss; }

  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::uint64_t last_step() const noexcept { return last_step_; }
  /// Seconds in steps; saving and evaluating are not in it.
  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  [[nodiscard]] std::uint64_t samples() const noexcept { return samples_; }
  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }
  [[nodiscard]] double samples_per_second() const noexcept { return rate(samples_); }
  [[nodiscard]] double tokens_per_second() const noexcept { return rate(tokens_); }
  /// Loss of the last step.
  [[nodiscard]] double loss() const noexcept { return loss_; }
  [[nodiscard]] std::optional<double> validation_loss() const noexcept { return validation_loss_; }
  [[nodiscard]] std::optional<double> pool_efficiency() const noexcept { return pool_efficiency_; }
  [[nodiscard]] std::uint64_t rebalances() const noexcept { return rebalances_; }

  /// Every rank that took part, by rank.
  [[nodiscard]] std::vector<rank_summary> ranks() const {
    std::vector<rank_summary> list;
    for (const totals& sum : ranks_) {
      list.push_back({.rank = sum.rank,
                      .device = sum.device,
                      .samples = sum.samples,
                      .last_share = sum.last_share,
                      .busy = seconds_ > 0 ? sum.busy_s / seconds_ : 0,
                      .samples_per_second = rate(sum.samples),
                      .wait_s = sum.wait_s});
    }
    return list;
  }

  /// A table of the ranks and the figures of the run, ended by a newline.
  [[nodiscard]] std::string text() const {
    if (steps_ == 0) return "no steps were run\n";
    using side = table::align;
    table rows{{{"rank"}, {"device", side::left}, {"share"}, {"samples"}, {"samples/s"}, {"busy"}, {"waited"}}};
    for (const rank_summary& rank : ranks()) {
      const double part = samples_ > 0 ? 100 * static_cast<double>(rank.samples) / static_cast<double>(samples_) : 0;
      rows.add_row({std::to_string(rank.rank), rank.device, detail::printed("%.1f %%", part),
                    std::to_string(rank.samples), detail::short_number(rank.samples_per_second),
                    rank.samples == 0 ? "idle" : detail::printed("%.1f %%", 100 * rank.busy),
                    detail::printed("%.1f s", rank.wait_s)});
    }
    std::string out = ranks_.empty() ? "" : rows.text() + '\n';
    out += std::to_string(steps_) + " steps in " + detail::clock_time(seconds_) + ", ";
    if (tokens_ > 0) out += detail::short_number(tokens_per_second()) + " tokens/s, ";
    out += detail::short_number(samples_per_second()) + " samples/s\n";
    out += detail::printed("loss of the last step %.4f", loss_);
    if (validation_loss_) out += detail::printed(", validation loss %.4f", *validation_loss_);
    out += '\n';
    if (pool_efficiency_) out += detail::printed("pool efficiency %.1f %%\n", 100 * *pool_efficiency_);
    if (rebalances_ > 0)
      out += "shares changed " + std::to_string(rebalances_) + (rebalances_ == 1 ? " time\n" : " times\n");
    return out;
  }

  /// Prints `text()` to standard output.
  void print() const {
    const std::string all = text();
    std::fwrite(all.data(), 1, all.size(), stdout);
    std::fflush(stdout);
  }

 private:
  struct totals {
    std::uint32_t rank = 0;
    std::string device;
    std::uint64_t samples = 0;
    std::uint64_t last_share = 0;
    double busy_s = 0;
    double wait_s = 0;
  };

  [[nodiscard]] totals& of(std::uint32_t rank) {
    const auto place = std::lower_bound(ranks_.begin(), ranks_.end(), rank,
                                        [](const totals& t, std::uint32_t r) { return t.rank < r; });
    if (place != ranks_.end() && place->rank == rank) return *place;
    totals fresh;
    fresh.rank = rank;
    return *ranks_.insert(place, std::move(fresh));
  }

  [[nodiscard]] double rate(std::uint64_t count) const noexcept {
    return seconds_ > 0 ? static_cast<double>(count) / seconds_ : 0;
  }

  std::uint64_t steps_ = 0;
  std::uint64_t last_step_ = 0;
  double seconds_ = 0;
  std::uint64_t samples_ = 0;
  std::uint64_t tokens_ = 0;
  double loss_ = 0;
  std::optional<double> validation_loss_;
  std::optional<double> pool_efficiency_;
  std::uint64_t rebalances_ = 0;
  std::vector<totals> ranks_;
};

}  // namespace hetero
