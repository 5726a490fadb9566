// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"

#include <hetero/comm/run_ranks.hpp>
#include <hetero/comm/shaped.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

using namespace hetero;
using conformance::expect;

namespace {

using namespace std::chrono_literals;

const conformance::rank_runner<world> threads = [](std::uint32_t n, const std::function<void(world&)>& body) {
  run_ranks(n, body);
};

tensor_view view_of(std::vector<float>& values) { return tensor_view{std::span{values}}; }

/// True when a small urgent operation, started last, was done before the large one on every rank.
bool overtakes(queue_order order) {
  std::atomic<int> early{0};
  run_ranks(2, [&](world& w) {
    shaped link{w.channel("link"), link_shape{.bytes_per_second = 40e6}};
    link.set_queue_order(order, std::size_t{128} << 10U);
    std::vector<float> large(1'000'000, 1), small(1000, 2);  // 100 ms and 0.1 ms
    pending first = link.all_reduce_async(view_of(large), reduce_op::sum, task_options{.needed_by = 9});
    pending urgent = link.all_reduce_async(view_of(small), reduce_op::sum, task_options{.priority = 1});
    urgent.wait();
    if (!first.ready()) ++early;
    first.wait();
    expect(large.back() == 2 && small.back() == 4, "sums");
  });
  return early == 2;
}

}  // namespace

TEST_CASE("a late urgent operation overtakes a large one on an emulated link", "[comm]") {
  REQUIRE(overtakes(queue_order::priority));
  REQUIRE_FALSE(overtakes(queue_order::fifo));  // control
}

TEST_CASE("the most urgent is next: priority, then the step that needs it, then the start", "[comm]") {
  std::vector<int> order;
  REQUIRE_NOTHROW(run_ranks(2, [&](world& w, rank_id rank) {
    w.set_queue_order(queue_order::priority);
    shaped link{w.channel("link"), link_shape{.latency = 20ms}};
    link.set_queue_order(queue_order::priority);
    std::vector<std::vector<float>> data(5, std::vector<float>(4, 1));
    const task_options wishes[] = {
        {.priority = 5}, {.needed_by = 7}, {.needed_by = 2}, {.priority = 1, .needed_by = 9}, {.needed_by = 2}};
    std::vector<pending> running;
    for (std::size_t i = 0; i < data.size(); ++i)
      running.push_back(link.all_reduce_async(view_of(data[i]), reduce_op::sum, wishes[i]));
    std::vector<int> done;
    while (done.size() < running.size()) {
      for (std::size_t i = 0; i < running.size(); ++i) {
        if (running[i].ready() && std::find(done.begin(), done.end(), static_cast<int>(i)) == done.end())
          done.push_back(static_cast<int>(i));
      }
      std::this_thread::sleep_for(1ms);
    }
    if (rank == rank_id{0}) order = done;
  }));
  REQUIRE(order == std::vector<int>{0, 3, 2, 4, 1});
}

TEST_CASE("both orders give the same bits, and only priority sends choices", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(3, [](world& w, rank_id rank) {
    const auto run = [&](queue_order order, std::size_t chunk_bytes, std::uint64_t& control) {
      world lane = w.channel("lane");
      lane.set_queue_order(order, chunk_bytes);
      std::vector<float> values(10'007);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = 1.0F / static_cast<float>(1 + (i * 31 + index_of(rank) * 17) % 1009);
      w.barrier();
      const auto before = w.counters();
      lane.all_reduce_async(view_of(values), reduce_op::sum, traffic_class::gradient).wait();
      control = (w.counters() - before)[traffic_class::control].bytes_sent;
      return values;
    };
    std::uint64_t none = 0, choices = 0;
    const auto fifo = run(queue_order::fifo, 4096, none);
    const auto priority = run(queue_order::priority, 4096, choices);
    expect(std::memcmp(fifo.data(), priority.data(), fifo.size() * sizeof(float)) == 0, "equal chunks, equal bits");
    expect(none == 0, "first come, first served needs no message");
    const auto all = w.all_reduce(static_cast<std::int64_t>(choices), reduce_op::sum);
    expect(all == 2 * 10 * 48, "48 bytes to each of two ranks for each of ten chunks");
  }));
}

TEST_CASE("ranks may start operations in any order", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(3, [](world& w, rank_id rank) {
    w.set_queue_order(queue_order::priority, 4096);
    for (std::uint32_t round = 0; round < 15; ++round) {
      constexpr std::size_t tasks = 30;
      std::mt19937 shared{round};
      std::vector<std::vector<float>> data;
      std::vector<task_options> wishes;
      for (std::size_t t = 0; t < tasks; ++t) {
        data.emplace_back(shared() % 5000 * (shared() % 4 != 0 ? 1U : 0U), static_cast<float>(t));
        wishes.push_back({.priority = static_cast<int>(shared() % 4), .needed_by = shared() % 3, .id = t});
      }
      std::vector<std::size_t> order(tasks);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), std::mt19937{round * 10 + index_of(rank)});
      world lane = round % 3 == 0 ? w.channel("round") : w.split(0, 0);
      std::vector<pending> running;
      for (const std::size_t t : order)
        running.push_back(lane.all_reduce_async(view_of(data[t]), reduce_op::sum, wishes[t]));
      std::vector<float> own(10, 1);
      lane.all_reduce(view_of(own), reduce_op::sum);  // blocking calls are independent
      if (round % 2 == 0) {
        for (auto& r : running) r.wait();
      } else {
        running.clear();  // waits
      }
      for (std::size_t t = 0; t < tasks; ++t) {
        for (const float v : data[t]) expect(v == 3 * static_cast<float>(t), "each sum is its own");
      }
    }
  }));
}

TEST_CASE("the same operations without ids meet in the order of their start", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(2, [](world& w) {
    w.set_queue_order(queue_order::priority);
    conformance::async_runs_in_order_beside_blocking_calls(w);
    conformance::async_runs_in_order_beside_blocking_calls(w);
  }));
  REQUIRE_NOTHROW(run_ranks(1, [](world& w) {
    w.set_queue_order(queue_order::priority);
    conformance::async_runs_in_order_beside_blocking_calls(w);
  }));
}

TEST_CASE("operations that do not meet are errors on every rank", "[comm]") {
  const auto start = [](world& w, std::vector<float>& values, std::uint64_t id, int priority = 0) {
    return w.all_reduce_async(view_of(values), reduce_op::sum, task_options{.priority = priority, .id = id});
  };
  const auto counts = conformance::errors_of<world>(threads, 3, [&](world& w) {
    w.set_queue_order(queue_order::priority, 40);
    std::vector<float> values(w.rank() == rank_id{2} ? 10 : 20, 1);
    start(w, values, 5).wait();
  });
  REQUIRE_NOTHROW(conformance::expect_errors(counts, errc::mismatch, {"of 10 f32", "of 20 f32", "id 5", "rank 2"}));

  const auto missing = conformance::errors_of<world>(threads, 2, [&](world& w) {
    std::vector<float> a(10, 1), b(10, 1);
    pending first, second;
    {
      world lane = w.channel("lane");
      lane.set_queue_order(queue_order::priority);
      if (w.rank() == rank_id{0}) second = start(lane, b, 2, 1);
      if (w.rank() == rank_id{0}) w.barrier();
      first = start(lane, a, 1);
      if (w.rank() == rank_id{1}) w.barrier();
    }
    if (w.rank() == rank_id{0}) second.wait();
    first.wait();
  });
  REQUIRE_NOTHROW(conformance::expect_errors(missing, errc::mismatch, {"rank 1 never started", "id 2"}));

  const auto waits = conformance::errors_of<world>(threads, 2, [&](world& w) {
    w.set_timeout(60ms);
    w.set_queue_order(queue_order::priority);
    std::vector<float> a(10, 1), b(10, 1);
    if (w.rank() == rank_id{0}) {
      pending urgent = start(w, b, 2, 1);
      pending first = start(w, a, 1);
      urgent.wait();
    } else {
      start(w, a, 1).wait();  // before it started the other one
      start(w, b, 2, 1).wait();
    }
  });
  REQUIRE_NOTHROW(conformance::expect_errors(waits, errc::timeout, {"60 ms"}));

  const auto orders = conformance::errors_of<world>(threads, 2, [&](world& w) {
    w.set_queue_order(w.rank() == rank_id{0} ? queue_order::priority : queue_order::fifo);
  });
  REQUIRE_NOTHROW(conformance::expect_errors(orders, errc::mismatch, {"the queue order", "priority", "fifo"}));

  const auto aborted = conformance::errors_of<world>(threads, 3, [&](world& w) {
    w.set_queue_order(queue_order::priority, 4096);
    std::vector<float> a(100'000, 1);
    pending first = start(w, a, 1);
    if (w.rank() == rank_id{1}) w.abort("stop");
    first.wait();
    start(w, a, 1).wait();
  });
  for (const auto& e : aborted.errors) REQUIRE((!e || e->code() == errc::aborted));
}
