// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "machine.hpp"

#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// What every benchmark program shares: its options, the refusal to measure a busy machine, and the record of figures.
namespace hetero::bench {

/// Options of every benchmark program; `add_options` puts them on a command line.
struct options {
  std::string json;  ///< file that receives one JSON line per figure; empty: none
  /// How long to wait for other processes to become quiet, and to repeat noisy figures; without it 30 s, or no time
  /// where noise is allowed.
  std::optional<double> wait_quiet_s{};
  bool allow_noise = false;        ///< report figures of a busy machine, marked `"noisy": true`
  bool quick = false;              ///< the same figures from fewer and shorter runs, marked `"quick": true`
  std::vector<std::string> peers;  ///< Python interpreters of the peers; empty: `default_interpreters()`
};

/// Adds the options to `app`; `target` must outlive the parse.
inline void add_options(CLI::App& app, options& target) {
  app.add_option("--json", target.json, "Write one JSON line per figure to this file");
  app.add_option("--wait-quiet", target.wait_quiet_s,
                 "Seconds to wait for other processes to become quiet (default 30; 0 with --allow-noise)")
      ->check(CLI::NonNegativeNumber)
      ->envname("HETERO_BENCH_WAIT_QUIET");
  app.add_flag("--allow-noise", target.allow_noise, "Report although other processes use the cores; marks the figures")
      ->envname("HETERO_BENCH_ALLOW_NOISE");
  app.add_flag("--quick", target.quick, "The same figures from fewer and shorter runs, to try it; marks the figures")
      ->envname("HETERO_BENCH_QUICK");
  app.add_option("--peer", target.peers,
                 "Python interpreter that imports torch (repeatable); overrides HETERO_PEER_PYTHON");
}

enum class direction { at_least, at_most };

/// One figure as a program reports it. `samples` are the repeated measurements behind `value`, in the unit of `value`.
struct figure {
  std::string name;
  std::optional<double> value;  ///< absent: could not be measured, `note` says why, and the goal counts as missed
  std::string unit;
  std::optional<double> goal = std::nullopt;
  direction better = direction::at_least;
  std::string peer = {};  ///< what it was compared with, version included
  std::vector<double> samples = {};
  std::string note = {};
};

/// Minimum, median and maximum of `samples`; the median of an even count is the mean of the middle two.
/// @pre `samples` is not empty
[[nodiscard]] inline std::vector<double> spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto middle = samples.size() / 2;
  const double median = samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  return {samples.front(), median, samples.back()};
}

[[nodiscard]] inline double median_of(std::vector<double> samples) { return spread_of(std::move(samples))[1]; }

/// A figure whose value is the median of its samples.
/// @pre `samples` is not empty
[[nodiscard]] inline figure median_figure(std::string name, std::vector<double> samples, std::string unit) {
  figure result{.name = std::move(name), .value = median_of(samples), .unit = std::move(unit)};
  result.samples = std::move(samples);
  return result;
}

/// Per round, `theirs / ours`: how many times faster we were than a peer that ran right beside us. Pairing by round
/// cancels the slow drift of a shared machine, which a ratio of two medians keeps.
/// @pre both have the same length
[[nodiscard]] inline std::vector<double> paired_ratios(const std::vector<double>& theirs,
                                                       const std::vector<double>& ours) {
  std::vector<double> ratios(ours.size());
  std::transform(theirs.begin(), theirs.end(), ours.begin(), ratios.begin(), [](double a, double b) { return a / b; });
  return ratios;
}

/// Collects figures, prints them as a table and writes them as JSON lines. Not thread-safe.
class figures {
 public:
  explicit figures(options settings) : options_{std::move(settings)} {}

  /// Calls `measure` on a quiet machine and returns its result; figures added afterwards carry the foreign load seen
  /// during the call. Blocks until the machine is quiet, at most `wait_quiet_s`; a call that was disturbed is repeated
  /// while that time lasts. `measure` may therefore run several times.
  template <class Measure> auto quietly(Measure&& measure) {
    using namespace std::chrono;
    const duration<double> patience{options_.wait_quiet_s.value_or(options_.allow_noise ? 0 : 30)};
    const auto deadline = steady_clock::now() + duration_cast<steady_clock::duration>(patience);
    for (;;) {
      if (patience.count() > 0 || !options_.allow_noise) wait_until_quiet(deadline);
      const foreign_load load;
      auto result = measure();
      foreign_share_ = load.share();
      if (foreign_share_ <= quiet_share || options_.allow_noise || steady_clock::now() >= deadline) return result;
      fmt::print("disturbed: other processes used {:.0f} % of the cores; measuring again\n", 100 * foreign_share_);
    }
  }

  /// Adds one figure and prints its row. A figure of a busy machine is left out of the record unless noise is allowed.
  void add(figure entry) {
    if (rows_++ == 0)
      fmt::print("{:<44} {:>12} {:<12} {:>10} {:<6} {:<32} {}\n", "figure", "value", "unit", "goal", "met",
                 "spread (min, median, max)", "peer, note");
    const bool noisy = foreign_share_ > quiet_share;
    const bool refused = noisy && !options_.allow_noise;
    refused_ += refused ? 1U : 0U;
    const auto met = goal_met(entry);
    const auto spread = entry.samples.empty() ? std::vector<double>{} : spread_of(entry.samples);
    const std::string said = (options_.quick ? "quick; " : "") + entry.note;
    const std::string note =
        refused ? fmt::format("REFUSED: other processes used {:.0f} % of the cores", 100 * foreign_share_)
        : noisy ? fmt::format("noisy ({:.0f} %); {}", 100 * foreign_share_, said)
                : said;
    fmt::print(
        "{:<44} {:>12} {:<12} {:>10} {:<6} {:<32} {}{}{}\n", entry.name,
        entry.value && !refused ? fmt::format("{:.4g}", *entry.value) : "-", entry.unit,
        entry.goal ? fmt::format("{} {:.4g}", entry.better == direction::at_least ? ">=" : "<=", *entry.goal) : "",
        !met || refused ? "" : (*met ? "yes" : "NO"),
        spread.empty() ? "" : fmt::format("{:.4g}, {:.4g}, {:.4g}", spread[0], spread[1], spread[2]), entry.peer,
        entry.peer.empty() || note.empty() ? "" : "; ", note);
    if (refused) return;

    nlohmann::ordered_json line;
    line["figure"] = entry.name;
    line["value"] = entry.value ? nlohmann::ordered_json(*entry.value) : nlohmann::ordered_json(nullptr);
    line["unit"] = entry.unit;
    if (entry.goal) {
      line["goal"] = *entry.goal;
      line["direction"] = entry.better == direction::at_least ? "at least" : "at most";
    }
    if (met) line["met"] = *met;
    line["peer"] = entry.peer.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(entry.peer);
    line["runs"] = entry.samples.empty() ? std::size_t{1} : entry.samples.size();
    line["spread"] = spread;
    line["machine"] = describe_machine();
    line["foreign_share"] = foreign_share_;
    if (noisy) line["noisy"] = true;
    if (options_.quick) line["quick"] = true;
    if (!entry.note.empty()) line["note"] = entry.note;
    lines_.push_back(line.dump());
  }

  /// The options the figures are measured under.
  [[nodiscard]] const options& settings() const noexcept { return options_; }

  /// Adds a figure that could not be measured, such as one whose peer is not installed: no value, goal missed, `why`
  /// said.
  void add_missing(std::string name, std::string unit, std::optional<double> goal, std::string why) {
    figure entry{.name = std::move(name), .value = std::nullopt, .unit = std::move(unit), .goal = goal};
    entry.note = std::move(why);
    add(std::move(entry));
  }

  /// Writes the JSON file and returns the exit status of the program: 0, 2 when the file could not be written, 3 when
  /// figures were refused because the machine was busy. A missed goal is a result, not a failure.
  [[nodiscard]] int finish() const {
    if (!options_.json.empty()) {
      std::ofstream out{options_.json, std::ios::trunc};
      for (const auto& line : lines_) out << line << '\n';
      if (!out.flush()) {
        fmt::print(stderr, "cannot write figures to '{}'; give --json a file in a folder that exists and is writable\n",
                   options_.json);
        return 2;
      }
    }
    if (refused_ > 0) {
      fmt::print(stderr,
                 "{} figure(s) refused: other processes used more than {:.0f} % of the cores; "
                 "try --wait-quiet SECONDS, or --allow-noise to report them marked as noisy\n",
                 refused_, 100 * quiet_share);
      return 3;
    }
    return 0;
  }

 private:
  [[nodiscard]] static std::optional<bool> goal_met(const figure& entry) {
    if (!entry.goal) return std::nullopt;
    if (!entry.value) return false;
    return entry.better == direction::at_least ? *entry.value >= *entry.goal : *entry.value <= *entry.goal;
  }

  options options_;
  std::vector<std::string> lines_;
  double foreign_share_ = 0;
  std::size_t rows_ = 0;
  std::size_t refused_ = 0;
};

}  // namespace hetero::bench
