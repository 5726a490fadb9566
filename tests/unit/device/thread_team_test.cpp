// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include <hetero/device/cpu/thread_team.hpp>

using namespace hetero;

namespace {

struct piece {
  std::size_t begin = 0, end = 0;
  std::thread::id thread;
};

std::vector<piece> pieces_of(thread_team& team, std::size_t count, std::size_t grain) {
  std::vector<piece> pieces(team.size());
  std::atomic<std::size_t> calls{0};
  team.parallel(count, grain, [&](std::size_t begin, std::size_t end, std::size_t worker) {
    pieces[worker] = {begin, end, std::this_thread::get_id()};
    ++calls;
  });
  pieces.resize(calls);
  return pieces;
}

}  // namespace

TEST_CASE("a team covers every index once, in equal contiguous ranges") {
  for (const std::size_t threads : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}}) {
    thread_team team{threads};
    CHECK(team.size() == threads);
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{64}, std::size_t{1001}}) {
      for (const std::size_t grain : {std::size_t{1}, std::size_t{2}, std::size_t{100}}) {
        const auto pieces = pieces_of(team, count, grain);
        CHECK(pieces.size() == (count == 0 ? 0 : team.ranges(count, grain)));
        std::size_t expected = 0;
        for (const piece& each : pieces) {
          CHECK(each.begin == expected);
          CHECK(each.end > each.begin);
          if (pieces.size() > 1) CHECK(each.end - each.begin >= grain);
          expected = each.end;
        }
        CHECK(expected == count);
      }
    }
  }
}

TEST_CASE("the caller is worker 0, and a single range runs inline") {
  thread_team team{2};
  CHECK(pieces_of(team, 10, 10)[0].thread == std::this_thread::get_id());
  const auto pieces = pieces_of(team, 10, 5);
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[0].thread == std::this_thread::get_id());
  CHECK(pieces[1].thread != std::this_thread::get_id());
}

TEST_CASE("an exception comes out after all ranges ended, that of the lowest range first") {
  thread_team team{3};
  std::atomic<int> ended{0};
  const auto loop = [&](std::size_t, std::size_t, std::size_t worker) {
    ++ended;
    if (worker > 0) throw std::runtime_error{"range " + std::to_string(worker)};
  };
  CHECK_THROWS_WITH(team.parallel(3, 1, loop), "range 1");
  CHECK(ended == 3);
  team.parallel(3, 1, [&](std::size_t, std::size_t, std::size_t) { --ended; });  // the team still works
  CHECK(ended == 0);
}

TEST_CASE("a loop inside a loop, and loops from several threads, run with the same partition") {
  thread_team team{2};
  std::atomic<std::size_t> indices{0};
  std::atomic<std::size_t> calls{0};
  team.parallel(2, 1, [&](std::size_t, std::size_t, std::size_t) {
    team.parallel(10, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
      indices += end - begin;
      ++calls;
    });
  });
  CHECK(indices == 20);
  CHECK(calls == 4);

  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        team.parallel(10, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
          indices += end - begin;
          ++calls;
        });
      }
    });
  }
  for (std::thread& each : callers) each.join();
  CHECK(indices == 20 + 3 * 50 * 10);
  CHECK(calls == 4 + 3 * 50 * 2);
}

TEST_CASE("workers that slept wake up, with and without polling") {
  for (const auto spin : {std::chrono::nanoseconds{0}, std::chrono::nanoseconds{200}}) {
    thread_team team{2, {.name = "test", .spin = spin}};
    std::size_t sums[2] = {};
    for (int i = 0; i < 300; ++i) {
      team.parallel(2, 1, [&](std::size_t begin, std::size_t, std::size_t worker) { sums[worker] += begin + 1; });
    }
    CHECK(sums[0] == 300);
    CHECK(sums[1] == 600);
  }
}

TEST_CASE("the team reports by how much its busiest worker outworked the caller") {
  thread_team team{2};
  (void)team.take_excess_s();
  std::atomic<std::uint64_t> sink{0};
  const auto burn = [&](double seconds) {
    for (const double until = detail::thread_cpu_s() + seconds; detail::thread_cpu_s() < until;) ++sink;
  };
  team.parallel(2, 1, [&](std::size_t, std::size_t, std::size_t worker) { burn(worker == 1 ? 0.020 : 0.001); });
  const double excess_s = team.take_excess_s();
  CHECK(excess_s > 0.017);
  CHECK(excess_s < 0.025);
  CHECK(team.take_excess_s() == 0);
  team.parallel(2, 1, [&](std::size_t, std::size_t, std::size_t worker) { burn(worker == 0 ? 0.010 : 0.001); });
  CHECK(team.take_excess_s() == 0);  // the caller was the busiest
}

TEST_CASE("a team of no threads is refused") { CHECK_THROWS_AS(thread_team{0}, error); }
