// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"

#include <hetero/comm/compressed.hpp>
#include <hetero/comm/counted.hpp>
#include <hetero/comm/run_ranks.hpp>
#include <hetero/comm/shaped.hpp>
#include <hetero/comm/traced.hpp>

#include <chrono>
#include <cmath>
#include <mutex>
#include <vector>

using namespace hetero;
using conformance::expect;

namespace {

using namespace std::chrono_literals;

/// Ranks as threads, each world dressed by `dress(world)`.
template <class Dress> auto runner(Dress dress) {
  using C = decltype(dress(std::declval<world>()));
  return conformance::rank_runner<C>{[dress](std::uint32_t n, const std::function<void(C&)>& body) {
    run_ranks(n, [&](world& w) {
      C c = dress(std::move(w));
      body(c);
    });
  }};
}

template <class C> void check_everything(const conformance::rank_runner<C>& run) {
  for (const std::uint32_t n : {1U, 2U, 3U}) {
    INFO("ranks: " << n);
    REQUIRE_NOTHROW(conformance::check_behaviour<C>(run, n));
  }
}

/// A sink that keeps what it is told; copies share it.
struct recorder {
  struct log {
    std::mutex mutex;
    std::vector<trace_event> events;
  };
  std::shared_ptr<log> kept = std::make_shared<log>();
  void operator()(const trace_event& event) const {
    const std::lock_guard lock{kept->mutex};
    kept->events.push_back(event);
  }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A communicator that can do no more than the concept asks: decorators must not pretend more.
struct bare {
  [[nodiscard]] rank_id rank() const noexcept { return rank_id{0}; }
  [[nodiscard]] std::uint32_t world_size() const noexcept { return 1; }
  void send(const tensor_view&, rank_id, traffic_class = traffic_class::other) {}
  void recv(const tensor_view&, rank_id, traffic_class = traffic_class::other) {}
  void send_recv(const tensor_view&, rank_id, const tensor_view&, rank_id, traffic_class = traffic_class::other) {}
  void abort(std::string_view) const noexcept {}
  [[nodiscard]] bare channel(std::string_view) const { return {}; }
  [[nodiscard]] bare split(int, int) { return {}; }
  [[nodiscard]] traffic_counters counters() const { return {}; }
};

static_assert(communicator<bare> && communicator<counted<bare>> && communicator<shaped<bare>>);
static_assert(async_all_reducer<counted<world>> && all_gatherer<shaped<world>> && broadcaster<traced<world>> &&
              barrier_capable<compressed<world, bf16_codec>>);
static_assert(communicator<counted<shaped<traced<world>>>>, "decorators nest");
static_assert(sizeof(traced<world>) == sizeof(counted<world>) - sizeof(std::shared_ptr<int>),
              "a null sink has no size");

}  // namespace

TEST_CASE("counted, traced and shaped worlds are communicators like the one inside", "[comm]") {
  check_everything(runner([](world w) { return counted{std::move(w)}; }));
  check_everything(runner([](world w) { return traced{std::move(w), recorder{}}; }));
  check_everything(runner([](world w) { return shaped{std::move(w), link_shape{}}; }));
  check_everything(runner([](world w) { return compressed{std::move(w), identity_codec{}}; }));
  check_everything(runner([](world w) { return counted{traced{shaped{std::move(w), link_shape{}}}}; }));
  REQUIRE_NOTHROW(conformance::check_failures(runner([](world w) {
                                                return counted{traced{std::move(w), recorder{}}};
                                              }),
                                              2));
}

TEST_CASE("a decorator has the capabilities of what it decorates and no more", "[comm]") {
  STATIC_REQUIRE(all_reducer<counted<world>>);
  STATIC_REQUIRE_FALSE(all_reducer<counted<bare>>);
  STATIC_REQUIRE_FALSE(broadcaster<shaped<bare>>);
  STATIC_REQUIRE_FALSE(all_gatherer<traced<bare>>);
  STATIC_REQUIRE_FALSE(barrier_capable<counted<bare>>);
}

TEST_CASE("counted counts what passes through it alone", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(3, [](world& w) {
    counted mine{w.channel("mine")};
    std::vector<float> values(3000, 1);
    const tensor_view view{std::span{values}};
    w.all_reduce(view, reduce_op::sum, traffic_class::gradient);
    expect(mine.passed().total() == traffic_totals{}, "another handle of the rank");

    const auto before = mine.passed();
    const auto rank_before = w.counters();
    mine.all_reduce(view, reduce_op::sum, traffic_class::gradient);
    mine.barrier();
    const auto passed = mine.passed() - before;
    expect(passed == w.counters() - rank_before, "a blocking call is counted like the rank counts it");
    expect(passed[traffic_class::gradient].bytes_sent == 2 * 2 * 3000 * sizeof(float) / 3, "2(n-1)/n S");
    expect(passed[traffic_class::control].bytes_sent == 0 && passed[traffic_class::control].rounds == 2, "a barrier");

    // Its asynchronous operations and its channels, while another handle is busy in the same class.
    const auto start = mine.passed();
    std::vector<float> other(900, 1);
    pending running = mine.all_reduce_async(view, reduce_op::sum, traffic_class::gradient);
    for (int i = 0; i < 10; ++i) w.all_reduce(tensor_view{std::span{other}}, reduce_op::sum, traffic_class::gradient);
    running.wait();
    mine.channel("more").all_reduce(view, reduce_op::sum, traffic_class::gradient);
    expect((mine.passed() - start)[traffic_class::gradient].bytes_sent == 2 * (2 * 2 * 3000 * sizeof(float) / 3),
           "asynchronous and on a channel, and nothing of the neighbour");
  }));
}

TEST_CASE("an emulated link takes its latency and its bandwidth", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(2, [](world& w) {
    shaped slow{w.channel("slow"), link_shape{.latency = 5ms, .bytes_per_second = 10e6}};
    std::vector<float> values(50'000, 1);  // 200 kB: 20 ms each way
    const tensor_view view{std::span{values}};
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 3; ++i) slow.all_reduce(view, reduce_op::sum);
    expect(seconds_since(start) >= 3 * 0.025, "three all_reduces of 20 ms and a latency or more");
    start = std::chrono::steady_clock::now();
    if (w.rank() == rank_id{0}) {
      slow.send(view, rank_id{1});
    } else {
      slow.recv(view, rank_id{0});
    }
    expect(seconds_since(start) >= 0.025, "one message");
    // Control: the same calls without a shape.
    w.barrier();
    start = std::chrono::steady_clock::now();
    for (int i = 0; i < 3; ++i) w.all_reduce(view, reduce_op::sum);
    expect(seconds_since(start) < 0.060 * conformance::patience / 3, "no link, no wait");
  }));
  REQUIRE_THROWS_WITH(
      run_ranks(1, [](world& w) { (void)shaped(w.channel("none"), link_shape{.bytes_per_second = 0}); }),
      ContainsSubstring("above 0"));
}

TEST_CASE("emulated transfers overlap with sleeping compute and share one link", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(2, [](world& w) {
    shaped slow{w.channel("slow"), link_shape{.bytes_per_second = 20e6}};
    std::vector<float> values(500'000, 1);  // 2 MB: 100 ms
    const tensor_view view{std::span{values}};
    w.barrier();
    auto start = std::chrono::steady_clock::now();
    pending running = slow.all_reduce_async(view, reduce_op::sum);
    std::this_thread::sleep_for(100ms);
    running.wait();
    const double overlapped = seconds_since(start);
    expect(overlapped >= 0.1 && overlapped < 0.1 + 0.033 * conformance::patience, "the sum of both would be 200 ms");

    w.barrier();
    std::vector<float> more(500'000, 1);
    shaped second = slow.channel("second");
    start = std::chrono::steady_clock::now();
    running = slow.all_reduce_async(view, reduce_op::sum);
    pending other = second.all_reduce_async(tensor_view{std::span{more}}, reduce_op::sum);
    running.wait();
    other.wait();
    expect(seconds_since(start) >= 0.199, "two channels queue for the bandwidth of one link");
  }));
}

TEST_CASE("traced tells operation, count, bytes, rounds and time", "[comm]") {
  std::vector<trace_event> events;
  REQUIRE_NOTHROW(run_ranks(2, [&](world& w, rank_id rank) {
    recorder log;
    traced t{w.channel("traced"), log};
    std::vector<double> values(100, 1);
    t.all_reduce(tensor_view{std::span{values}}, reduce_op::sum, traffic_class::gradient);
    t.all_reduce_async(tensor_view{std::span{values}}, reduce_op::sum, traffic_class::activation).wait();
    if (rank == rank_id{0}) {
      t.send(tensor_view{std::span{values}}, rank_id{1});
      events = log.kept->events;
    } else {
      t.recv(tensor_view{std::span{values}}, rank_id{0});
    }
  }));
  REQUIRE(events.size() == 3);
  REQUIRE(events[0].call.kind == operation_kind::all_reduce);
  REQUIRE(events[0].call.count == 100);
  REQUIRE(events[0].call.type == dtype::f64);
  REQUIRE(events[0].call.traffic == traffic_class::gradient);
  REQUIRE(events[0].bytes == 2 * 100 * sizeof(double));
  REQUIRE(events[0].rounds >= 1);
  REQUIRE(events[0].end >= events[0].begin);
  REQUIRE(events[1].call.traffic == traffic_class::activation);
  REQUIRE(events[2].call.kind == operation_kind::message);
  REQUIRE(events[2].call.peer == rank_id{1});
  REQUIRE(events[2].bytes == 100 * sizeof(double));
}

TEST_CASE("a bf16 wire halves the bytes of gradients and only of gradients", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(3, [](world& w, rank_id rank) {
    counted wire{w.channel("wire")};
    const auto sum = [&](auto& c, traffic_class traffic) {
      std::vector<float> values(30'000);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0F / static_cast<float>(1 + i + index_of(rank));
      const auto before = wire.passed();
      c.all_reduce(tensor_view{std::span{values}}, reduce_op::sum, traffic);
      return std::pair{values, (wire.passed() - before).total().bytes_sent};
    };
    const auto [exact, whole] = sum(wire, traffic_class::gradient);
    compressed half{std::move(wire), bf16_codec{}};
    const auto measured = [&](traffic_class traffic) {
      std::vector<float> values(30'000);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0F / static_cast<float>(1 + i + index_of(rank));
      const auto before = half.inner().passed();
      half.all_reduce(tensor_view{std::span{values}}, reduce_op::sum, traffic);
      return std::pair{values, (half.inner().passed() - before).total().bytes_sent};
    };
    const auto [rounded, fewer] = measured(traffic_class::gradient);
    expect(2 * fewer == whole, "half the bytes");
    for (std::size_t i = 0; i < exact.size(); ++i)
      expect(std::abs(rounded[i] - exact[i]) <= exact[i] * 0x1.02p-7F, "the documented bound");
    expect(rounded != exact, "it is inexact, and says so");
    static_assert(!decltype(half)::exact);
    const auto [parameters, all] = measured(traffic_class::parameter);
    expect(parameters == exact && all == whole, "control: other traffic goes as it is");

    std::vector<float> of_root = rounded;
    w.broadcast(tensor_view{std::span{of_root}}, rank_id{0});
    expect(of_root == rounded, "equal bits on all ranks");
  }));
}
