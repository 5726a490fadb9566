// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <vector>

#include <hetero/device/cpu_device.hpp>
#include <hetero/device/profile.hpp>
#include <hetero/device/throttled_device.hpp>

using namespace hetero;

TEST_CASE("a measured profile is that of the device, and leaves nothing behind") {
  any_device device{cpu_device{{.threads = 2, .ordinal = 3, .budget_bytes = std::size_t{64} << 20U, .team = {}}}};
  const device_profile profile = measure_device(device, {.matrix_extent = 64, .stream_count = 1 << 16, .repeats = 2});
  CHECK(profile.device == device_id{device_kind::cpu, 3});
  CHECK(profile.name == "cpu:3, 2 threads");
  CHECK(profile.threads == 2);
  CHECK(profile.memory_bytes == std::size_t{64} << 20U);
  CHECK(profile.flops_per_s > 1e8);  // any machine; nothing is claimed about this one
  CHECK(profile.bytes_per_s > 1e8);
  CHECK(device.counters().bytes_in_use == 0);
}

TEST_CASE("an emulated device is profiled at its emulated speed") {
  any_device real{cpu_device{}};
  any_device slow{throttled_device{cpu_device{}, 0.25}};
  const device_measurement_options options{.matrix_extent = 192, .stream_count = 1 << 18, .repeats = 7};
  std::vector<device_profile> profiles{measure_device(real, options), measure_device(slow, options)};
  compare_speeds(profiles);
  CHECK(profiles[0].speed == 1);
  // CPU clocks and caches still differ between two moments on a shared machine.
  CHECK(profiles[1].speed > 0.12);
  CHECK(profiles[1].speed < 0.5);
}

TEST_CASE("speeds are relative to the fastest, and defined without any measurement") {
  std::vector<device_profile> profiles(3);
  compare_speeds(profiles);
  CHECK(profiles[0].speed == 1);
  profiles[0].flops_per_s = 5e9;
  profiles[1].flops_per_s = 20e9;
  profiles[2].flops_per_s = 10e9;
  compare_speeds(profiles);
  CHECK(profiles[0].speed == 0.25);
  CHECK(profiles[1].speed == 1);
  CHECK(profiles[2].speed == 0.5);
}

TEST_CASE("a budget too small for the measurement is an error, not a figure") {
  any_device device{cpu_device{{.budget_bytes = 1000, .team = {}}}};
  CHECK_THROWS_AS(measure_device(device), error);
  CHECK(device.counters().bytes_in_use == 0);
}
