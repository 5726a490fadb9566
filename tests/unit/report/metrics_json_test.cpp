// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <hetero/report/metrics_json.hpp>

#include "support/catch.hpp"
#include "support/temp_dir.hpp"

using namespace hetero;

namespace {

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream in{path};
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

step_report step(std::uint64_t number) {
  step_report report;
  report.step = number;
  report.loss = 2.5;
  report.seconds = 0.5;
  report.samples = 12;
  report.tokens = 768;
  report.tokens_per_second = 1536;
  report.ranks = {{.rank = 0, .device = "cpu:0", .share = 9, .busy = 0.98},
                  {.rank = 1, .device = "cpu:1", .share = 3, .busy = 0.94}};
  return report;
}

}  // namespace

TEST_CASE("metrics: a line per step, a summary last") {
  test::temp_dir dir{"metrics"};
  const auto path = dir / "m.jsonl";
  metrics_writer metrics{path.string()};
  run_summary summary;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    auto report = step(i);
    if (i == 2) report.validation_loss = 2.25;
    metrics.write(report);
    summary.add(report);
    CHECK(lines_of(path).size() == i);  // visible at once
  }
  metrics.write(summary);
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 4);
  const auto second = nlohmann::json::parse(lines[1]);
  CHECK(second["event"] == "step");
  CHECK(second["step"] == 2);
  CHECK(second["validation_loss"] == 2.25);
  CHECK_FALSE(nlohmann::json::parse(lines[0]).contains("validation_loss"));
  CHECK(second["ranks"][1]["share"] == 3);
  CHECK(second["ranks"][0]["device"] == "cpu:0");
  const auto last = nlohmann::json::parse(lines[3]);
  CHECK(lines[3].rfind(R"({"event":"summary")", 0) == 0);
  CHECK(last["validation_loss"] == 2.25);
  CHECK(last["tokens_per_second"] == 1536.0);
  CHECK(last["pool_efficiency"].is_null());  // it was not measured
  CHECK(last["ranks"].size() == 2);
  CHECK(last["ranks"][0]["samples"] == 27);
}

TEST_CASE("metrics: numbers that are not finite are null, and odd names stay JSON") {
  test::temp_dir dir{"metrics"};
  const auto path = dir / "m.jsonl";
  metrics_writer metrics{path.string()};
  auto report = step(1);
  report.loss = std::numeric_limits<double>::quiet_NaN();
  report.grad_norm = std::numeric_limits<double>::infinity();
  report.ranks[0].device = "a \"b\"\n\xff";
  metrics.write(report);
  REQUIRE(lines_of(path).size() == 1);
  const auto line = nlohmann::json::parse(lines_of(path)[0]);
  CHECK(line["loss"].is_null());
  CHECK(line["grad_norm"].is_null());
}

TEST_CASE("metrics: a fresh run starts anew, a resumed one goes on behind a cut line") {
  test::temp_dir dir{"metrics"};
  const auto path = dir / "m.jsonl";
  metrics_writer{path.string()}.write(step(1));
  metrics_writer{path.string()}.write(step(2));
  CHECK(lines_of(path).size() == 1);
  std::ofstream{path, std::ios::app} << R"({"event":"step","st)";  // killed here
  metrics_writer{path.string(), {.append = true}}.write(step(3));
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 3);
  CHECK(nlohmann::json::parse(lines[0])["step"] == 2);
  CHECK_THROWS(nlohmann::json::parse(lines[1]));
  CHECK(nlohmann::json::parse(lines[2])["step"] == 3);
}

TEST_CASE("metrics: a path that cannot be written is known before the run, a full disk when it fills") {
  test::temp_dir dir{"metrics"};
  REQUIRE_THROWS_WITH(metrics_writer{(dir / "none/m.jsonl").string()},
                      ContainsSubstring("io: cannot write metrics") && ContainsSubstring("create its folder first"));
  REQUIRE_THROWS_WITH(metrics_writer{dir.path().string()}, ContainsSubstring("io: cannot write metrics"));
  metrics_writer full{"/dev/full"};
  REQUIRE_THROWS_WITH(full.write(step(1)), ContainsSubstring("No space left") && ContainsSubstring("another disk"));
}
