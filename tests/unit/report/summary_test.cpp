// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <utility>

#include <hetero/report/summary.hpp>

#include "support/catch.hpp"

using namespace hetero;

namespace {

step_report step(double seconds, std::uint64_t share0, double busy0, std::uint64_t share1, double busy1) {
  step_report report;
  report.step = 7;
  report.loss = 2.5;
  report.seconds = seconds;
  report.samples = share0 + share1;
  report.tokens = 10 * report.samples;
  report.ranks = {{.rank = 0, .device = "cpu:0", .share = share0, .busy = busy0, .wait_s = 0.25},
                  {.rank = 1, .device = "cpu:1", .share = share1, .busy = busy1, .wait_s = 0.5}};
  return report;
}

}  // namespace

TEST_CASE("summary: totals over totals, never means of means") {
  run_summary summary;
  summary.add(step(1.0, 9, 1.0, 3, 0.5));
  summary.add(step(3.0, 6, 0.5, 6, 0.5));
  CHECK(summary.steps() == 2);
  CHECK(summary.seconds() == 4.0);
  CHECK(summary.samples() == 24);
  CHECK(summary.samples_per_second() == 6.0);  // the mean of the rates would be 8
  CHECK(summary.tokens_per_second() == 60.0);
  const auto ranks = summary.ranks();
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[0].samples == 15);
  CHECK(ranks[0].last_share == 6);
  CHECK(ranks[0].busy == Approx(0.625));  // (1 * 1.0 + 3 * 0.5) / 4; the mean of the fractions would be 0.75
  CHECK(ranks[0].samples_per_second == Approx(3.75));
  CHECK(ranks[1].wait_s == Approx(1.0));
}

TEST_CASE("summary: ranks may come late, leave and stay idle") {
  run_summary summary;
  auto first = step(1.0, 9, 1.0, 0, 0.0);
  std::swap(first.ranks[0], first.ranks[1]);
  summary.add(first);
  auto second = step(1.0, 9, 1.0, 0, 0.0);
  second.ranks[1].rank = 5;
  second.ranks[1].share = 2;
  second.rebalanced = true;
  summary.add(second);
  const auto ranks = summary.ranks();
  REQUIRE(ranks.size() == 3);
  CHECK(ranks[0].rank == 0);
  CHECK(ranks[1].rank == 1);
  CHECK(ranks[2].rank == 5);
  CHECK(ranks[1].last_share == 0);
  CHECK_THAT(summary.text(), ContainsSubstring("idle") && ContainsSubstring("shares changed 1 time\n"));
}

TEST_CASE("summary: the text has the ranks, the rates and only what was measured") {
  run_summary summary;
  CHECK(summary.text() == "no steps were run\n");
  summary.add(step(2.0, 9, 0.98, 3, 0.95));
  CHECK(summary.text() ==
        "rank  device   share  samples  samples/s    busy  waited\n"
        "----  ------  ------  -------  ---------  ------  ------\n"
        "   0  cpu:0   75.0 %        9       4.50  98.0 %   0.2 s\n"
        "   1  cpu:1   25.0 %        3       1.50  95.0 %   0.5 s\n"
        "\n"
        "1 steps in 0:02, 60.0 tokens/s, 6.00 samples/s\n"
        "loss of the last step 2.5000\n");
  CHECK_FALSE(summary.pool_efficiency());
  summary.set_pool_efficiency(0.981);
  summary.set_validation_loss(1.875);
  CHECK_THAT(summary.text(),
             ContainsSubstring("pool efficiency 98.1 %") && ContainsSubstring("validation loss 1.8750"));
}
