// SPDX-License-Identifier: Apache-2.0
// ctest: serial
#include "support/catch.hpp"

#include "conformance/communicator.hpp"

#include <hetero/comm/decorator.hpp>
#include <hetero/comm/probe.hpp>
#include <hetero/comm/run_ranks.hpp>
#include <hetero/comm/shaped.hpp>

#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace hetero;
using conformance::expect;

namespace {

using namespace std::chrono_literals;

/// Messages between ranks 2 and 3 come late, or slowly: an emulated bad cable.
class bad_cable : public detail::decorator<bad_cable, world> {
  using base = detail::decorator<bad_cable, world>;
  friend base;

 public:
  bad_cable(world inner, std::chrono::microseconds late, double bytes_per_second)
      : base{std::move(inner)}, late_{late}, bytes_per_second_{bytes_per_second} {}
  [[nodiscard]] std::string path_to(rank_id peer) const { return "interface eth" + std::to_string(index_of(peer)); }

 private:
  [[nodiscard]] bad_cable wrap(world inner) const { return {std::move(inner), late_, bytes_per_second_}; }
  template <class Body> void around(const comm_call& call, Body& body) {
    body();
    const auto bytes = static_cast<double>(call.count * size_of(call.type));
    if (call.peer && index_of(*call.peer) + index_of(rank()) == 5 && index_of(rank()) / 2 == 1)
      std::this_thread::sleep_for(late_ + std::chrono::duration<double>(bytes / bytes_per_second_));
  }
  std::chrono::microseconds late_;
  double bytes_per_second_;
};

template <class Dress>
std::vector<link_report> reports_of(std::uint32_t ranks, const probe_options& options, Dress dress) {
  std::vector<link_report> reports(ranks);
  run_ranks(ranks, [&](world& w, rank_id rank) {
    auto c = dress(w.channel("probed"));
    reports[index_of(rank)] = probe(c, options);
  });
  return reports;
}

world plain(world w) { return w; }

}  // namespace

TEST_CASE("in a tournament everybody meets everybody once", "[comm]") {
  for (std::uint32_t n = 0; n < 20; ++n) {
    std::set<std::pair<std::uint32_t, std::uint32_t>> met;
    for (std::uint32_t round = 0; round < detail::tournament_rounds(n); ++round) {
      for (std::uint32_t r = 0; r < n; ++r) {
        const std::uint32_t o = detail::opponent(r, round, n);
        REQUIRE((o < n && detail::opponent(o, round, n) == r));
        if (r < o) REQUIRE(met.emplace(r, o).second);
      }
    }
    REQUIRE(met.size() == n * (n - (n > 0 ? 1 : 0)) / 2);
  }
}

TEST_CASE("the one slow link is named, on every rank", "[comm]") {
  const auto reports = reports_of(5, {.pings = 3}, [](world w) { return bad_cable{std::move(w), 5ms, 1e12}; });
  for (const link_report& r : reports) {
    REQUIRE(r.links.size() == 10);
    REQUIRE(r.slow.size() == 1);
    const link_measurement& l = r.links[r.slow[0].link];
    REQUIRE((l.a == rank_id{2} && l.b == rank_id{3}));
    REQUIRE(l.latency_s >= 0.005);
    const std::string text = to_string(r);
    REQUIRE_THAT(text,
                 ContainsSubstring("slow: rank 2 <-> rank 3: ") && ContainsSubstring(" x the median of its siblings"));
    REQUIRE_THAT(text, ContainsSubstring("interface eth3"));
    REQUIRE(text == to_string(reports[0]));
    REQUIRE(r.hosts == std::vector<std::string>(5, detail::host_name()));
  }
}

TEST_CASE("links of one speed are not named", "[comm]") {
  for (const auto& r : reports_of(6, {}, plain)) {
    REQUIRE(r.slow.empty());
    for (const auto& l : r.links) REQUIRE(l.latency_s > 0);
    REQUIRE_THAT(to_string(r), !ContainsSubstring("slow"));
  }
  // All of them equally far: nothing stands out.
  const auto far = reports_of(4, {.pings = 2}, [](world w) {
    return shaped{std::move(w), link_shape{.latency = 2ms}};
  });
  REQUIRE(far[0].slow.empty());
  REQUIRE(far[0].links[0].latency_s >= 0.002);
  // One pair, or one rank, has no siblings.
  REQUIRE(reports_of(2, {.bandwidth = true}, plain)[0].slow.empty());
  REQUIRE(reports_of(1, {.bandwidth = true}, plain)[0].links.empty());
}

TEST_CASE("bandwidth is measured for pairs and ports, and a thin link is named", "[comm]") {
  const auto shaped_reports = reports_of(3, {.pings = 2, .bandwidth = true}, [](world w) {
    return shaped{std::move(w), link_shape{.bytes_per_second = 50e6}};
  });
  for (const auto& l : shaped_reports[0].links) {
    REQUIRE(l.bytes_per_second > 30e6 * 3 / conformance::patience);  // emulated
    REQUIRE(l.bytes_per_second < 50.1e6);
  }
  for (const double port : shaped_reports[0].port_bytes_per_second) {
    REQUIRE(port > 30e6 * 3 / conformance::patience);
    REQUIRE(port < 50.1e6);
  }
  REQUIRE(shaped_reports[0].suggest() == tuning{});  // equal ports need no rules
  const link_report unequal{
      .hosts = {"a", "b", "c"}, .links = {}, .port_bytes_per_second = {4e8, 1e8, 2e8}, .slow = {}};
  REQUIRE(unequal.suggest().bytes_per_second == unequal.port_bytes_per_second);
  const auto thin = reports_of(4, {.pings = 2, .bandwidth = true, .least_latency_s = 1}, [](world w) {
    return bad_cable{std::move(w), 0us, 2e6};
  });
  REQUIRE(thin[3].slow.size() == 1);
  REQUIRE_FALSE(thin[3].slow[0].by_latency);
  REQUIRE_THAT(to_string(thin[3]), ContainsSubstring("slow: rank 2 <-> rank 3: ") && ContainsSubstring("MB/s, a "));
}

TEST_CASE("the self-test of 32 ranks is cheap", "[comm]") {
  double seconds = 0;
  std::int64_t messages = 0;
  run_ranks(32, [&](world& w, rank_id rank) {
    w.barrier();
    const auto before = w.counters().total().messages;
    const auto start = std::chrono::steady_clock::now();
    const link_report report = probe(w, self_test_options);
    w.barrier();
    const auto sent = static_cast<std::int64_t>(w.counters().total().messages - before);
    const auto all = w.all_reduce(sent, reduce_op::sum);
    if (rank != rank_id{0}) return;
    messages = all;
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    expect(report.links.size() == 496, "every pair");
  });
  WARN("self-test of 32 in-process ranks: " << 1000 * seconds << " ms");
  // Three for each pair, and what 32 ranks exchange in the gathers and the barrier; suspects are asked again.
  REQUIRE(messages >= 3 * 496);
  REQUIRE(messages < 3 * 496 + 3000 + 128 * 9);
  REQUIRE(seconds < conformance::patience);
}

TEST_CASE("the self-test of a join leaves the world as it was, and finds a rank that does not answer", "[comm]") {
  const auto test = [](bool silent) {
    return conformance::errors_of<world>(
        [](std::uint32_t n, const std::function<void(world&)>& body) { run_ranks(n, body); }, 3,
        [&](world& w) {
          if (silent && w.rank() == rank_id{2}) return w.barrier();  // elsewhere, until the others gave up
          detail::self_test(w, std::chrono::milliseconds{silent ? 50 : 20000});
          expect(w.timeout() == world::default_timeout, "its own deadline");
          w.barrier();
        });
  };
  for (const auto& e : test(false).errors) REQUIRE_FALSE(e);
  REQUIRE_NOTHROW(conformance::expect_errors(test(true), errc::timeout, {"world/self-test", "for rank 2"}));
}

TEST_CASE("a probe with options that mean nothing is refused", "[comm]") {
  REQUIRE_THROWS_WITH(reports_of(2, {.pings = 0}, plain), ContainsSubstring("needs a ping"));
}
