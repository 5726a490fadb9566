// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <hetero/device/any_device.hpp>
#include <hetero/device/buffer.hpp>
#include <hetero/device/stream.hpp>

namespace hetero {

/// What a device can do, as measured; shares and plans start from it.
struct device_profile {
  device_id device{};
  std::string name;  ///< "cpu:0, 2 threads"
  std::size_t threads = 1;
  double speed = 1;              ///< relative to the fastest device profiled with it
  std::size_t memory_bytes = 0;  ///< its budget
  double flops_per_s = 0;        ///< fp32 matrix product
  double bytes_per_s = 0;        ///< memory traffic of out += in, reads and writes counted
};

struct device_measurement_options {
  std::size_t matrix_extent = 256;  ///< of square matrices: past the caches' start-up, far from a second
  std::size_t stream_count = std::size_t{4} << 20U;  ///< floats; larger than the caches of a core
  std::size_t repeats = 5;                           ///< of which the fastest counts
};

namespace detail {

/// Seconds the device was busy with `work`, by its own account; by the wall clock when it keeps none.
template <class Work> [[nodiscard]] double fastest_s(stream& s, std::size_t repeats, Work work) {
  double best_s = std::numeric_limits<double>::infinity();
  work();
  s.synchronize();  // once unmeasured: pages, caches and threads come to life
  for (std::size_t i = 0; i < repeats; ++i) {
    const double before_s = s.device().counters().busy_s;
    const auto start = std::chrono::steady_clock::now();
    work();
    s.synchronize();
    const double busy_s = s.device().counters().busy_s - before_s;
    best_s = std::min(
        best_s, busy_s > 0 ? busy_s : std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best_s;
}

}  // namespace detail

/// Measures matrix and memory throughput in some tens of milliseconds. Blocking. `speed` stays 1; `compare_speeds` sets
/// it. Time is the device's `busy_s`, so other jobs on the cores disturb little and an emulated device shows its
/// emulated speed.
/// @throws error out_of_memory
[[nodiscard]] inline device_profile measure_device(any_device& device, const device_measurement_options& options = {}) {
  stream s{device};
  const std::size_t n = options.matrix_extent;
  const buffer a{device, s.id(), dtype::f32, {n, n}};
  const buffer b{device, s.id(), dtype::f32, {n, n}};
  const buffer c{device, s.id(), dtype::f32, {n, n}};
  const buffer into{device, s.id(), dtype::f32, {options.stream_count}};
  const buffer from{device, s.id(), dtype::f32, {options.stream_count}};
  for (const buffer* each : {&a, &b, &into, &from}) s.launch(op::fill{.out = each->view(), .value = 0.5});

  constexpr std::size_t products = 4;
  const double product_s = detail::fastest_s(s, options.repeats, [&] {
    for (std::size_t i = 0; i < products; ++i) s.launch(op::matmul{.out = c.view(), .a = a.view(), .b = b.view()});
  });
  const double stream_s = detail::fastest_s(
      s, options.repeats, [&] { s.launch(op::accumulate{.into = into.view(), .from = from.view(), .factor = 0.5}); });
  const auto extent = static_cast<double>(n);
  return {.device = device.id(),
          .name = to_string(device.id()) + ", " + std::to_string(device.threads()) +
                  (device.threads() == 1 ? " thread" : " threads"),
          .threads = device.threads(),
          .speed = 1,
          .memory_bytes = device.budget_bytes(),
          .flops_per_s = static_cast<double>(products) * 2 * extent * extent * extent / product_s,
          .bytes_per_s = 3 * sizeof(float) * static_cast<double>(options.stream_count) / stream_s};
}

/// Sets each profile's speed to its matrix throughput over the largest one.
inline void compare_speeds(std::span<device_profile> profiles) noexcept {
  double fastest = 0;
  for (const device_profile& each : profiles) fastest = std::max(fastest, each.flops_per_s);
  for (device_profile& each : profiles) each.speed = fastest > 0 ? each.flops_per_s / fastest : 1;
}

}  // namespace hetero
