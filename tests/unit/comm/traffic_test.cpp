// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <hetero/comm/run_ranks.hpp>
#include <hetero/comm/self.hpp>
#include <hetero/comm/traffic.hpp>

#include <mutex>
#include <vector>

using namespace hetero;

TEST_CASE("counters subtract and add up by class", "[comm]") {
  detail::traffic_meter meter;
  meter.sent(traffic_class::gradient, 10);
  const traffic_counters before = meter.snapshot();
  meter.sent(traffic_class::gradient, 5);
  meter.received(traffic_class::data, 7);
  meter.round(traffic_class::control);
  const traffic_counters spent = meter.snapshot() - before;
  REQUIRE(spent[traffic_class::gradient] == traffic_totals{5, 0, 1, 0});
  REQUIRE(spent[traffic_class::data] == traffic_totals{0, 7, 0, 0});
  REQUIRE(spent.total() == traffic_totals{5, 7, 1, 1});
  REQUIRE(spent[traffic_class::other] == traffic_totals{});
}

TEST_CASE("traffic is counted under its class, over all handles of a rank", "[comm]") {
  std::mutex mutex;
  std::vector<traffic_counters> seen;
  run_ranks(2, [&](world& w) {
    std::vector<float> values(8);
    world other = w.channel("elsewhere");
    other.all_reduce(tensor_view{std::span{values}}, reduce_op::sum, traffic_class::gradient);
    w.broadcast(tensor_view{std::span{values}}, rank_id{0}, traffic_class::parameter);
    const std::lock_guard lock{mutex};
    seen.push_back(w.counters());
  });
  for (const traffic_counters& c : seen) {
    REQUIRE(c[traffic_class::gradient].bytes_sent == 32);
    REQUIRE(c[traffic_class::gradient].rounds == 1);
    REQUIRE(c[traffic_class::parameter].bytes_sent + c[traffic_class::parameter].bytes_received == 32);
    REQUIRE(c[traffic_class::other] == traffic_totals{});
  }
}

TEST_CASE("a rank alone moves nothing", "[comm]") {
  world w = self();
  std::vector<float> values(8);
  w.all_reduce(tensor_view{std::span{values}}, reduce_op::sum);
  w.barrier();
  REQUIRE(w.counters() == traffic_counters{});
}
