// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <hetero/core/error.hpp>
#include <hetero/report/step_report.hpp>
#include <hetero/report/summary.hpp>

/// @file
/// Metrics as JSON lines: one object per step, a summary last. A number that is not finite is written as null.
namespace hetero {

struct metrics_options {
  bool append = false;  ///< go on with a file that is there, as a resumed run does; otherwise start it anew
};

/// Appends one JSON object per line to a file. Each line is written at once and whole, so a reader that follows the
/// file, or a killed run, never leaves two lines mixed. Blocking; one thread.
class metrics_writer {
 public:
  /// Opens the file, so that a path that cannot be written is known before the run.
  /// @throws error io when the file cannot be opened for writing
  explicit metrics_writer(const std::string& path, const metrics_options& options = {}) : path_{path} {
    file_.fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (options.append ? 0 : O_TRUNC), 0666);
    const int why = errno;
    require(file_.fd >= 0, errc::io, [&] {
      return "cannot write metrics to '" + path_ + "': " + std::strerror(why) +
             (why == ENOENT || why == ENOTDIR ? "; create its folder first" : "; choose a file this user may write");
    });
    end_cut_line();
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// Writes `{"event": "step", ...}`.
  /// @throws error io when the disk is full
  void write(const step_report& report) {
    nlohmann::ordered_json line{{"event", "step"},
                                {"step", report.step},
                                {"loss", report.loss},
                                {"learning_rate", report.learning_rate},
                                {"grad_norm", report.grad_norm},
                                {"seconds", report.seconds},
                                {"samples", report.samples},
                                {"tokens", report.tokens},
                                {"samples_per_second", report.samples_per_second},
                                {"tokens_per_second", report.tokens_per_second},
                                {"rebalanced", report.rebalanced}};
    if (report.validation_loss) line["validation_loss"] = *report.validation_loss;
    auto& ranks = line["ranks"] = nlohmann::ordered_json::array();
    for (const rank_report& rank : report.ranks) {
      ranks.push_back({{"rank", rank.rank},
                       {"device", rank.device},
                       {"share", rank.share},
                       {"busy", rank.busy},
                       {"forward_backward_s", rank.forward_backward_s},
                       {"wait_s", rank.wait_s}});
    }
    write_line(line);
  }

  /// Writes `{"event": "summary", ...}`, the last line of a run. What was not measured is null.
  /// @throws error io when the disk is full
  void write(const run_summary& summary) {
    nlohmann::ordered_json line{{"event", "summary"},
                                {"steps", summary.steps()},
                                {"last_step", summary.last_step()},
                                {"seconds", summary.seconds()},
                                {"loss", summary.loss()},
                                {"validation_loss", or_null(summary.validation_loss())},
                                {"tokens_per_second", summary.tokens_per_second()},
                                {"samples_per_second", summary.samples_per_second()},
                                {"pool_efficiency", or_null(summary.pool_efficiency())},
                                {"rebalances", summary.rebalances()}};
    auto& ranks = line["ranks"] = nlohmann::ordered_json::array();
    for (const rank_summary& rank : summary.ranks()) {
      ranks.push_back({{"rank", rank.rank},
                       {"device", rank.device},
                       {"samples", rank.samples},
                       {"last_share", rank.last_share},
                       {"busy", rank.busy},
                       {"samples_per_second", rank.samples_per_second},
                       {"wait_s", rank.wait_s}});
    }
    write_line(line);
  }

  /// Writes any other object as a line.
  /// @throws error io when the disk is full
  void write_line(const nlohmann::ordered_json& object) {
    write_all(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
  }

 private:
  struct closing_fd {
    int fd = -1;
    ~closing_fd() {
      if (fd >= 0) ::close(fd);
    }
  };

  [[nodiscard]] static nlohmann::ordered_json or_null(const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  }

  // A killed run may have left half a line; what follows must not be glued to it.
  void end_cut_line() {
    struct stat info {};
    if (::fstat(file_.fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return;
    char last = '\n';
    if (::pread(file_.fd, &last, 1, info.st_size - 1) == 1 && last != '\n') write_all("\n");
  }

  void write_all(std::string_view text) {
    while (!text.empty()) {
      const ssize_t put = ::write(file_.fd, text.data(), text.size());
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) {
        const int why = put == 0 ? ENOSPC : errno;
        throw error{errc::io, "writing metrics to '" + path_ + "' failed: " + std::strerror(why) +
                                  (why == ENOSPC ? "; free some space, or write them to another disk" : "")};
      }
      text.remove_prefix(static_cast<std::size_t>(put));
    }
  }

  std::string path_;
  closing_fd file_;
};

}  // namespace hetero
