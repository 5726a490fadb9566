// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <hetero/report/progress.hpp>

#include "support/catch.hpp"

using namespace hetero;
using namespace std::chrono_literals;

namespace {

/// What is written to `descriptor`, collected without blocking.
class captured {
 public:
  explicit captured(bool terminal) {
    if (terminal) {
      reader_ = ::posix_openpt(O_RDWR | O_NOCTTY);
      if (reader_ >= 0 && ::grantpt(reader_) == 0 && ::unlockpt(reader_) == 0) {
        writer_ = ::open(::ptsname(reader_), O_RDWR | O_NOCTTY);
      }
    } else {
      int ends[2] = {-1, -1};
      if (::pipe(ends) != 0) return;
      reader_ = ends[0];
      writer_ = ends[1];
    }
    if (reader_ >= 0) ::fcntl(reader_, F_SETFL, O_NONBLOCK);
  }
  captured(const captured&) = delete;
  captured& operator=(const captured&) = delete;
  ~captured() {
    ::close(reader_);
    ::close(writer_);
  }
  [[nodiscard]] bool works() const { return writer_ >= 0; }
  [[nodiscard]] int descriptor() const { return writer_; }
  [[nodiscard]] int reader() const { return reader_; }
  void close_reader() { ::close(std::exchange(reader_, -1)); }
  [[nodiscard]] std::string text() const {
    std::string all;
    char piece[4096];
    for (ssize_t got = 0; (got = ::read(reader_, piece, sizeof piece)) > 0;)
      all.append(piece, static_cast<std::size_t>(got));
    return all;
  }

 private:
  int reader_ = -1;
  int writer_ = -1;
};

/// A variable of the environment for one test.
class variable {
 public:
  variable(const char* name, const char* value) : name_{name} {
    if (const char* old = std::getenv(name)) old_ = old;
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  variable(const variable&) = delete;
  variable& operator=(const variable&) = delete;
  ~variable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

step_report at(std::uint64_t step, std::uint64_t steps = 100) {
  step_report report;
  report.step = step;
  report.steps = steps;
  report.loss = 2.5;
  report.seconds = 0.5;
  report.samples_per_second = 24;
  report.tokens_per_second = 12345;
  report.ranks = {{.rank = 0, .device = "cpu:0", .share = 9, .busy = 0.98},
                  {.rank = 1, .device = "cpu:1", .share = 3, .busy = 0.94}};
  return report;
}

std::size_t lines_in(const std::string& text) { return static_cast<std::size_t>(std::ranges::count(text, '\n')); }

/// What stays on a terminal that obeys carriage return and erase-to-end.
std::size_t longest_visible(const std::string& text) {
  std::size_t longest = 0;
  std::size_t column = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm' && text[i] != 'K') ++i;
    } else if (text[i] == '\r' || text[i] == '\n') {
      column = 0;
    } else {
      longest = std::max(longest, ++column);
    }
  }
  return longest;
}

}  // namespace

TEST_CASE("progress: plain lines where there is no terminal") {
  captured out{false};
  REQUIRE(out.works());
  progress lines{{.descriptor = out.descriptor(), .every = 1h}};
  CHECK(lines.style() == progress_style::lines);
  for (std::uint64_t step = 1; step <= 100; ++step) {
    auto report = at(step);
    report.rebalanced = step == 40;
    if (step == 50) report.validation_loss = 2.25;
    lines.show(report);
  }
  const std::string text = out.text();
  CHECK(lines_in(text) == 4);  // the first, the new shares, the evaluation, the last
  CHECK(text.find("step 1/100  loss 2.5000  12.3k tokens/s  busy 96 %  left 0:50\n") == 0);
  CHECK_THAT(text, ContainsSubstring("step 40/100") && ContainsSubstring("(shares changed)"));
  CHECK_THAT(text, ContainsSubstring("step 50/100  loss 2.5000  validation 2.2500"));
  CHECK_THAT(text, ContainsSubstring("step 100/100"));
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find('\r') == std::string::npos);
}

TEST_CASE("progress: lines come at most as often as asked") {
  captured out{false};
  progress all{{.descriptor = out.descriptor(), .every = 1ms}};
  progress silent{{.descriptor = out.descriptor(), .style = progress_style::silent}};
  for (std::uint64_t step = 1; step <= 5; ++step) {
    silent.show(at(step));
    all.show(at(step));
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < 2ms) std::this_thread::yield();
  }
  CHECK(lines_in(out.text()) == 5);
}

TEST_CASE("progress: a bar on a terminal, within its width, in colour unless refused") {
  const variable term{"TERM", "xterm"};
  for (const bool refused : {false, true}) {
    const variable no_color{"NO_COLOR", refused ? "1" : nullptr};
    for (const int width : {30, 60, 80, 200}) {
      captured out{true};
      if (!out.works()) {
        WARN("no pseudo-terminal here: the bar was not tried");
        return;
      }
      winsize size{};
      size.ws_col = static_cast<unsigned short>(width);
      REQUIRE(::ioctl(out.descriptor(), TIOCSWINSZ, &size) == 0);
      progress bar{{.descriptor = out.descriptor()}};
      CHECK(bar.style() == progress_style::bar);
      for (const std::uint64_t step : {1U, 50U, 100U}) bar.show(at(step));
      const std::string text = out.text();
      CAPTURE(width, text);
      CHECK(longest_visible(text) < static_cast<std::size_t>(width));
      CHECK_THAT(text, ContainsSubstring("100/100 "));
      CHECK(lines_in(text) == 1);  // only the last step ends the line
      if (width >= 80) CHECK_THAT(text, ContainsSubstring("[") && ContainsSubstring("loss 2.5000"));
      CHECK((text.find("\x1b[32m") != std::string::npos) == (!refused && width >= 60));
    }
  }
}

TEST_CASE("progress: a dumb terminal gets lines") {
  captured out{true};
  if (!out.works()) return;
  const variable term{"TERM", "dumb"};
  CHECK(progress{{.descriptor = out.descriptor()}}.style() == progress_style::lines);
}

TEST_CASE("progress: a bar left open is closed, and text goes above it") {
  captured out{false};
  {
    progress bar{{.descriptor = out.descriptor(), .style = progress_style::bar, .width = 80}};
    bar.show(at(1));
    bar.print("saved gpt.safetensors");
    auto report = at(2);
    report.validation_loss = 2.0;
    bar.show(report);
  }
  const std::string text = out.text();
  CHECK_THAT(text, ContainsSubstring("\r\x1b[Ksaved gpt.safetensors\n"));
  CHECK_THAT(text, ContainsSubstring("step 2/100  loss 2.5000  validation 2.0000"));
  CHECK(text.back() == '\n');
}

TEST_CASE("progress: a closed pipe does not end the run") {
  captured out{false};
  const auto old = ::signal(SIGPIPE, SIG_IGN);
  progress lines{{.descriptor = out.descriptor(), .style = progress_style::lines}};
  out.close_reader();
  CHECK_NOTHROW(lines.show(at(1)));
  ::signal(SIGPIPE, old);
}

TEST_CASE("progress: ranks as threads may all report") {
  captured out{false};
  progress lines{{.descriptor = out.descriptor(), .style = progress_style::lines, .every = 1h}};
  std::vector<std::thread> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.emplace_back([&] {
      for (std::uint64_t step = 1; step <= 50; ++step) {
        auto report = at(step, 1000);
        report.rebalanced = true;
        lines.show(report);
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  const std::string text = out.text();
  CHECK(lines_in(text) == 200);
  CHECK(text.find("steps") == std::string::npos);  // no line starts inside another
}

TEST_CASE("progress: numbers and times in few characters") {
  CHECK(detail::short_number(0) == "0.00");
  CHECK(detail::short_number(9.99) == "9.99");
  CHECK(detail::short_number(12.34) == "12.3");
  CHECK(detail::short_number(999) == "999");
  CHECK(detail::short_number(999.7) == "1.00k");
  CHECK(detail::short_number(12345) == "12.3k");
  CHECK(detail::short_number(4.56e6) == "4.56M");
  CHECK(detail::short_number(7.8e9) == "7.80G");
  CHECK(detail::short_number(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(detail::clock_time(0) == "0:00");
  CHECK(detail::clock_time(61.4) == "1:01");
  CHECK(detail::clock_time(3600 * 3 + 25 * 60 + 1) == "3:25:01");
  CHECK(detail::clock_time(std::numeric_limits<double>::quiet_NaN()) == "?");
  CHECK(detail::clock_time(-1) == "?");
}
