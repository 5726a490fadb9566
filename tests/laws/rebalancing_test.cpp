// SPDX-License-Identifier: Apache-2.0
// Shares follow the speeds of the devices while a run goes on, and the maths does not notice.
// ctest: timeout=240
#include "support/catch.hpp"

#include "laws/training.hpp"
#include "laws/virtual_device.hpp"

#include <hetero/device/throttled_device.hpp>

using namespace hetero;
using namespace hetero::test;

namespace {

constexpr std::uint64_t global_batch = 128;

/// What a run noted, on rank 0.
struct history {
  std::vector<std::vector<std::size_t>> shares;  ///< in force during each step
  std::vector<share_record> records;
  tensors parameters;
  std::size_t changes = 0;
};

/// Part of the speed of all devices together that these shares use: 1 when all finish at the same time.
double efficiency(const std::vector<std::size_t>& shares, const std::vector<double>& speeds) {
  double slowest_s = 0;
  double pool = 0;
  for (std::size_t r = 0; r < shares.size(); ++r) {
    slowest_s = std::max(slowest_s, static_cast<double>(shares[r]) / speeds[r]);
    pool += speeds[r];
  }
  return static_cast<double>(global_batch) / slowest_s / pool;
}

ragged_data many_points() {
  ragged_data data = data_for(small_mlp());
  data.samples = 1000;
  return data;
}

trainer_options timed() { return {.seed = 7, .mode = numerics::fast, .measure = true, .rebalance = true}; }

/// Trains `steps` steps; `before_step(rank, step)` may turn speeds.
template <class BeforeStep>
history train(const std::vector<any_device>& devices, std::uint64_t steps, const trainer_options& options,
              BeforeStep&& before_step) {
  history result;
  const batches<ragged_data> source{many_points(), {.global_batch = global_batch, .seed = 4}};
  run_ranks(static_cast<std::uint32_t>(devices.size()), [&](world& w, rank_id rank) {
    trainer t{small_mlp(), w, sgd{}, balanced_partitioner{}, options, devices[index_of(rank)]};
    t.prepare(source);
    for (std::uint64_t i = 0; i < steps; ++i) {
      before_step(index_of(rank), i);
      const auto shares = shares_of(t.current_plan());
      const step_report report = t.step(source);
      if (rank != rank_id{0}) continue;
      result.shares.push_back(shares);
      result.changes += report.rebalanced ? 1 : 0;
    }
    if (rank == rank_id{0}) {
      result.records = t.share_history();
      result.parameters = parameters_of(t);
    }
  });
  return result;
}

}  // namespace

TEST_CASE("measured speeds decide the first shares", "[laws]") {
  const std::vector<double> speeds{1000, 250, 500};
  std::vector<any_device> devices;
  for (const double s : speeds) devices.emplace_back(virtual_device{s});
  const history run = train(devices, 3, timed(), [](auto, auto) {});
  REQUIRE(efficiency(run.shares.front(), speeds) >= 0.975);
  REQUIRE(efficiency({43, 43, 42}, speeds) < 0.5);  // control: an even split
  REQUIRE(run.changes == 0);
}

TEST_CASE("within 10 steps of a change the shares use 95 % of the new speeds", "[laws]") {
  struct change {
    double from, to;
  };
  for (const auto& [from, to] :
       {change{1000, 250}, change{250, 1000}, change{1000, 500}, change{500, 750}, change{1000, 50}}) {
    for (const double noise : {0.0, 0.05}) {
      const virtual_device second{from, noise, 11};
      const std::vector<any_device> devices{virtual_device{1000, noise, 12}, second};
      constexpr std::uint64_t change_at = 20;
      const history run = train(devices, change_at + 40, timed(), [&](std::size_t rank, std::uint64_t step) {
        if (rank == 1 && step == change_at) virtual_device{second}.set_speed(to);
      });
      INFO("from " << from << " to " << to << " samples per second, noise " << noise);
      REQUIRE(efficiency(run.shares[change_at - 1], {1000, from}) >= 0.95);
      REQUIRE(efficiency(run.shares[change_at], {1000, to}) < 0.95);  // control: the old shares do not do
      for (std::size_t step = change_at + 10; step < run.shares.size(); ++step) {
        INFO("step " << step << ": " << run.shares[step][0] << " and " << run.shares[step][1]);
        REQUIRE(efficiency(run.shares[step], {1000, to}) >= 0.95);
      }
    }
  }
}

TEST_CASE("control: without rebalancing the shares stay", "[laws]") {
  const virtual_device second{1000};
  trainer_options options = timed();
  options.rebalance = false;
  const history run = train({virtual_device{1000}, second}, 40, options, [&](std::size_t rank, std::uint64_t step) {
    if (rank == 1 && step == 20) virtual_device{second}.set_speed(250);
  });
  REQUIRE(run.changes == 0);
  REQUIRE(efficiency(run.shares.back(), {1000, 250}) < 0.5);
}

TEST_CASE("noise of 5 % does not make the shares flutter", "[laws]") {
  const history run =
      train({virtual_device{1000, 0.05, 21}, virtual_device{400, 0.05, 22}, virtual_device{700, 0.05, 23}}, 200,
            timed(), [](auto, auto) {});
  INFO(run.changes << " changes in 200 steps");
  REQUIRE(run.changes <= 10);
  for (const auto& shares : run.shares) REQUIRE(efficiency(shares, {1000, 400, 700}) >= 0.93);
}

TEST_CASE("replaying the recorded shares repeats a run bit by bit in fast mode", "[laws]") {
  const virtual_device second{1000, 0.05, 31};
  const history first =
      train({virtual_device{1000, 0.05, 32}, second}, 40, timed(), [&](std::size_t rank, std::uint64_t step) {
        if (rank == 1 && step == 10) virtual_device{second}.set_speed(300);
        if (rank == 1 && step == 25) virtual_device{second}.set_speed(800);
      });
  REQUIRE(first.records.size() >= 3);

  trainer_options replay = timed();
  replay.replay = first.records;
  const history again = train({virtual_device{100}, virtual_device{900}}, 40, replay, [](auto, auto) {});
  REQUIRE(again.shares == first.shares);
  REQUIRE(again.records == first.records);
  REQUIRE(same_bits(again.parameters, first.parameters));

  trainer_options fixed = timed();  // control: other shares, other bits
  fixed.replay = {first.records.front()};
  REQUIRE_FALSE(same_bits(train({virtual_device{100}, virtual_device{900}}, 40, fixed, [](auto, auto) {}).parameters,
                          first.parameters));
}

TEST_CASE("shares follow an emulated device that is turned while it works", "[laws]") {
  // The same with real work and the real decorator. Its seconds are CPU seconds of a machine that others use too, so
  // the bound is wider; the shares, not the clock, are judged.
  const mlp wide{{.widths = {64, 256, 256, 10}}};
  ragged_data data = data_for(wide);
  data.samples = 1000;
  data.ragged = false;
  const batches<ragged_data> source{data, {.global_batch = global_batch}};
  const throttle_control control{1.0};
  std::vector<std::vector<std::size_t>> shares;
  run_ranks(2, [&](world& w, rank_id rank) {
    any_device device =
        rank == rank_id{0} ? any_device{cpu_device{}} : any_device{throttled_device{cpu_device{}, control}};
    trainer t{wide, w, sgd{}, balanced_partitioner{}, timed(), device};
    for (int i = 0; i < 60; ++i) {
      if (rank == rank_id{1} && i == 20) throttle_control{control}.set_speed(0.25);
      (void)t.step(source);
      if (rank == rank_id{0}) shares.push_back(shares_of(t.current_plan()));
    }
  });
  const auto mean_efficiency = [&](std::size_t from, std::size_t to, const std::vector<double>& speeds) {
    double sum = 0;
    for (std::size_t i = from; i < to; ++i) sum += efficiency(shares[i], speeds);
    return sum / static_cast<double>(to - from);
  };
  INFO("before: " << shares[19][0] << ':' << shares[19][1] << ", after: " << shares[59][0] << ':' << shares[59][1]);
  CHECK(mean_efficiency(30, 60, {1, 0.25}) >= 0.85);
  REQUIRE(mean_efficiency(30, 60, {1, 1}) < mean_efficiency(10, 20, {1, 1}));
}
