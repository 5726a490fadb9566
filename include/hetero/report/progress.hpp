// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

#include <hetero/report/step_report.hpp>

namespace hetero {

/// How progress is shown.
enum class progress_style : std::uint8_t {
  automatic,  ///< a bar on a terminal, lines elsewhere
  bar,        ///< one line, drawn again in place
  lines,      ///< one line per report
  silent,
};

struct progress_options {
  int descriptor = STDERR_FILENO;
  progress_style style = progress_style::automatic;
  std::chrono::milliseconds every{0};  ///< shortest time between two drawings; 0 means 100 ms for a bar, 5 s for lines
  std::size_t width = 0;               ///< columns; 0 asks the terminal
};

namespace detail {

/// `text` from a printf format of numbers; the formats here are literals, so 128 bytes hold each.
template <class... Numbers> [[nodiscard]] std::string printed(const char* format, Numbers... numbers) {
  char text[128];
  const int length = std::snprintf(text, sizeof text, format, numbers...);
  return {text, static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof text) - 1))};
}

/// "987", "12.3k", "4.56M": three digits, for rates.
[[nodiscard]] inline std::string short_number(double value) {
  if (!(value >= 0) || value >= 1e18) return printed("%.3g", value);
  for (const auto& [unit, suffix] : {std::pair{1e9, 'G'}, std::pair{1e6, 'M'}, std::pair{1e3, 'k'}}) {
    if (value < unit * 0.9995) continue;
    const double scaled = value / unit;
    return printed(scaled < 9.995 ? "%.2f" : scaled < 99.95 ? "%.1f" : "%.0f", scaled) + suffix;
  }
  return printed(value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value);
}

/// "0:07", "12:34", "3:25:01".
[[nodiscard]] inline std::string clock_time(double seconds) {
  if (!(seconds >= 0) || seconds > 1e8) return "?";
  const auto whole = static_cast<long>(seconds + 0.5);
  if (whole < 3600) return printed("%ld:%02ld", whole / 60, whole % 60);
  return printed("%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
}

/// Share of the pool in use: the time ranks computed over the time they were there.
[[nodiscard]] inline double pool_busy(const step_report& report) noexcept {
  double busy = 0;
  for (const rank_report& rank : report.ranks) busy += rank.busy;
  return report.ranks.empty() ? 0 : busy / static_cast<double>(report.ranks.size());
}

}  // namespace detail

/// Shows how a run goes: a bar with loss, rate, pool use and remaining time on a terminal, plain lines elsewhere (no
/// control characters, so logs stay readable). Colours appear on a terminal only, and not where NO_COLOR is set.
/// Thread-safe. Output that cannot be written is dropped: a closed pipe must not end a training run.
class progress {
 public:
  explicit progress(const progress_options& options = {}) : options_{options} {
    const bool terminal = ::isatty(options.descriptor) == 1;
    const char* kind = std::getenv("TERM");
    const bool capable = terminal && kind != nullptr && std::string_view{kind} != "dumb";
    if (options_.style == progress_style::automatic)
      options_.style = capable ? progress_style::bar : progress_style::lines;
    const char* refused = std::getenv("NO_COLOR");
    colour_ = capable && (refused == nullptr || *refused == '\0');
    if (options_.every.count() == 0) {
      options_.every = std::chrono::milliseconds{options_.style == progress_style::bar ? 100 : 5000};
    }
  }
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  ~progress() { finish(); }

  /// The style in force, never `automatic`.
  [[nodiscard]] progress_style style() const noexcept { return options_.style; }

  /// Shows a step, unless the last drawing was a moment ago. First and last step, evaluations and changed shares always
  /// show.
  void show(const step_report& report) {
    const std::lock_guard lock{mutex_};
    if (report.step <= last_step_) pace_s_ = 0;  // another run began
    last_step_ = report.step;
    // A running mean over about 20 steps: quick to follow new shares, steady enough for a remaining time.
    pace_s_ = pace_s_ == 0 ? report.seconds : pace_s_ + (report.seconds - pace_s_) / 20;
    if (options_.style == progress_style::silent) return;
    const auto now = std::chrono::steady_clock::now();
    const bool last = report.steps != 0 && report.step >= report.steps;
    const bool notable = report.validation_loss || report.rebalanced || last || !shown_;
    if (!notable && now - drawn_ < options_.every) return;
    drawn_ = now;
    shown_ = true;
    if (options_.style == progress_style::lines) {
      write(line(report) + '\n');
      return;
    }
    std::string text;
    if (report.validation_loss || report.rebalanced) text += "\r\x1b[K" + line(report) + '\n';  // stays above the bar
    text += "\r" + bar(report) + "\x1b[K";
    if (last) text += '\n';
    open_ = !last;
    write(text);
  }

  /// Prints a line of text above the bar.
  void print(std::string_view text) {
    const std::lock_guard lock{mutex_};
    std::string out = open_ ? "\r\x1b[K" : "";
    out += text;
    if (out.empty() || out.back() != '\n') out += '\n';
    open_ = false;
    write(out);
  }

  /// Ends a bar that is still open, so that other output starts on a line of its own.
  void finish() noexcept {
    const std::lock_guard lock{mutex_};
    if (open_) write("\n");
    open_ = false;
  }

  /// "step 120/2000  loss 2.4513  ..." as it is printed without a terminal.
  [[nodiscard]] std::string line(const step_report& report) const {
    std::string text = "step " + std::to_string(report.step);
    if (report.steps != 0) text += '/' + std::to_string(report.steps);
    text += detail::printed("  loss %.4f", report.loss);
    if (report.validation_loss) text += detail::printed("  validation %.4f", *report.validation_loss);
    text += rates(report);
    if (report.rebalanced) text += "  (shares changed)";
    return text;
  }

 private:
  [[nodiscard]] std::string rates(const step_report& report) const {
    std::string text = "  ";
    text += report.tokens_per_second > 0 ? detail::short_number(report.tokens_per_second) + " tokens/s"
                                         : detail::short_number(report.samples_per_second) + " samples/s";
    if (!report.ranks.empty()) text += detail::printed("  busy %.0f %%", 100 * detail::pool_busy(report));
    if (report.steps > report.step) {
      text += "  left " + detail::clock_time(pace_s_ * static_cast<double>(report.steps - report.step));
    }
    return text;
  }

  [[nodiscard]] std::string bar(const step_report& report) const {
    const std::string head =
        std::to_string(report.step) + (report.steps != 0 ? '/' + std::to_string(report.steps) : "") + ' ';
    const std::string tail = detail::printed("  loss %.4f", report.loss) + rates(report);
    const std::size_t width = columns();
    const std::size_t text = head.size() + tail.size() + 2;
    if (report.steps == 0 || text + 8 > width) {  // too narrow for a bar: the numbers matter more
      return (head + tail).substr(0, width - 1);
    }
    const std::size_t cells = std::min<std::size_t>(40, width - text - 1);
    const double part = static_cast<double>(std::min(report.step, report.steps)) / static_cast<double>(report.steps);
    const auto full = static_cast<std::size_t>(part * static_cast<double>(cells));
    std::string line = head + '[';
    if (colour_) line += "\x1b[32m";
    line += std::string(full, '=');
    if (full < cells) line += '>' + std::string(cells - full - 1, ' ');
    if (colour_) line += "\x1b[0m";
    return line + ']' + tail;
  }

  [[nodiscard]] std::size_t columns() const {
    if (options_.width != 0) return std::max<std::size_t>(options_.width, 20);
    winsize size{};
    if (::ioctl(options_.descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) return size.ws_col;
    return 80;
  }

  void write(std::string_view text) const noexcept {
    while (!text.empty()) {
      const ssize_t put = ::write(options_.descriptor, text.data(), text.size());
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(put));
    }
  }

  progress_options options_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point drawn_{};
  double pace_s_ = 0;
  std::uint64_t last_step_ = 0;
  bool shown_ = false;
  bool open_ = false;  // a bar stands on the current line
  bool colour_ = false;
};

/// The progress that `report` draws on: a bar on standard error where that is a terminal, else lines on standard
/// output.
[[nodiscard]] inline progress& default_progress() {
  static progress shared{{.descriptor = ::isatty(STDERR_FILENO) == 1 ? STDERR_FILENO : STDOUT_FILENO}};
  return shared;
}

/// Shows a step of the run; only rank 0 prints, so every rank may call it. Local, thread-safe.
inline void report(const step_report& step) {
  if (step.rank == 0) default_progress().show(step);
}

}  // namespace hetero
