// SPDX-License-Identifier: Apache-2.0
#include "conformance/device_backend.hpp"

#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include <hetero/device/any_device.hpp>
#include <hetero/device/cpu_device.hpp>
#include <hetero/device/throttled_device.hpp>

using namespace hetero;
using test::code_of;
using test::device_fixture;

namespace {

double wall_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// An op that computes for `seconds` of CPU time.
op::custom_op burn(double seconds) {
  op::custom_op o{.name = "burn"};
  o.launchers[device_kind::cpu] = [seconds](const op::custom_arguments&) {
    for (const double until = detail::thread_cpu_s() + seconds; detail::thread_cpu_s() < until;) {}
  };
  return o;
}

}  // namespace

TEST_CASE("a speed outside (0, 1] is refused") {
  for (const double speed : {0.0, -0.5, 1.5, std::nan(""), std::numeric_limits<double>::infinity()}) {
    CHECK(code_of([&] { throttled_device{cpu_device{}, speed}; }) == errc::invalid_argument);
    throttle_control control{0.5};
    CHECK(code_of([&] { control.set_speed(speed); }) == errc::invalid_argument);
    CHECK(control.speed() == 0.5);
  }
  throttled_device{cpu_device{}, 1.0};  // the control
}

TEST_CASE("an emulated device takes 1 / speed times the time, asleep for the rest") {
  for (const double speed : {0.25, 0.5, 1.0}) {
    cpu_device real;
    device_fixture f{throttled_device{real, speed}};
    const double busy_before_s = real.counters().busy_s;
    const double start_s = wall_s();
    const double cpu_start_s = detail::thread_cpu_s();
    for (int i = 0; i < 12; ++i) f.launch(burn(0.002));
    f.device().synchronize(f.stream());
    const double cpu_s = detail::thread_cpu_s() - cpu_start_s;
    const double elapsed_s = wall_s() - start_s;
    const double real_s = real.counters().busy_s - busy_before_s;
    CHECK(f.device().counters().busy_s == Approx(real_s / speed));
    // Other jobs on the cores can only make it longer. What is below one sleep stays owed.
    CHECK(elapsed_s >= real_s / speed - detail::throttle_debt::shortest_sleep_s);
    CHECK(cpu_s < 1.2 * real_s + 0.002);  // waiting is sleep: a spinning one would use elapsed_s
  }
}

TEST_CASE("debts below one sleep are carried over, not lost") {
  cpu_device real;
  device_fixture f{throttled_device{real, 0.5}};
  const double start_s = wall_s();
  for (int i = 0; i < 40; ++i) {
    f.launch(burn(0.0005));
    f.device().synchronize(f.stream());
  }
  CHECK(wall_s() - start_s >= 2 * real.counters().busy_s - detail::throttle_debt::shortest_sleep_s);
}

TEST_CASE("a sleep that lasts too long is credited, up to a bound") {
  detail::throttle_debt debt;
  const double start_s = wall_s();
  for (int i = 0; i < 20; ++i) {
    debt.owe(0.003);
    debt.pay();
  }
  CHECK(wall_s() - start_s >= 0.060 - detail::throttle_debt::shortest_sleep_s);
  detail::throttle_debt credit;
  credit.owe(-10);  // as if the machine had been suspended in a sleep
  credit.pay();
  const double second_s = wall_s();
  credit.owe(detail::throttle_debt::largest_credit_s + 0.005);
  credit.pay();
  CHECK(wall_s() - second_s >= 0.0049);
}

TEST_CASE("another thread changes the speed while the device works") {
  cpu_device real;
  throttled_device device{real, 1.0};
  throttle_control control = device.control();
  device_fixture f{any_device{std::move(device)}};
  f.run(burn(0.005));
  const device_counters fast = f.device().counters();
  CHECK(fast.busy_s == Approx(real.counters().busy_s));
  std::thread{[&] { control.set_speed(0.25); }}.join();
  f.run(burn(0.005));
  const double slow_s = f.device().counters().busy_s - fast.busy_s;
  CHECK(slow_s == Approx(4 * (real.counters().busy_s - fast.busy_s)));
  control.set_speed(1.0);
  const device_counters again = f.device().counters();
  const double before_s = real.counters().busy_s;
  f.run(burn(0.005));
  CHECK(f.device().counters().busy_s - again.busy_s == Approx(real.counters().busy_s - before_s));
}

TEST_CASE("counters can be read while the device sleeps") {
  device_fixture f{any_device{throttled_device{cpu_device{}, 0.01}}};
  std::thread worker{[&] { f.launch(burn(0.004)); }};  // sleeps for about 0.4 s
  const double start_s = wall_s();
  while (f.device().counters().busy_s < 0.3) {
    REQUIRE(wall_s() - start_s < 10);
    std::this_thread::yield();
  }
  const double seen_s = wall_s();
  (void)f.device().counters();
  worker.join();
  CHECK(wall_s() - seen_s > 0.2);  // it was asleep when the counters answered
}

TEST_CASE("with several threads the busiest one counts, not their sum") {
  cpu_device real{{.threads = 2, .team = {}}};
  device_fixture f{throttled_device{any_device{real}, 0.5}};
  const tensor_view x = f.tensor(std::vector<float>(1 << 22, 1.0F));
  const double before_s = real.counters().busy_s;
  const double cpu_start_s = detail::thread_cpu_s();
  for (int i = 0; i < 10; ++i) f.launch(op::scale{.values = x, .factor = 1.0});
  const double own_cpu_s = detail::thread_cpu_s() - cpu_start_s;
  const double busy_s = real.counters().busy_s - before_s;
  CHECK(busy_s > 0.3 * own_cpu_s);
  CHECK(busy_s < 3 * own_cpu_s);
  CHECK(f.device().counters().busy_s > 1.5 * busy_s);
}
