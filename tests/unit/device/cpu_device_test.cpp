// SPDX-License-Identifier: Apache-2.0
#include "conformance/device_backend.hpp"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <pthread.h>

#include <hetero/device/buffer.hpp>
#include <hetero/device/cpu_device.hpp>
#include <hetero/device/stream.hpp>

using namespace hetero;
using test::code_of;
using test::device_fixture;

TEST_CASE("a cpu_device reports what it was made with; copies share it") {
  cpu_device device{{.threads = 3, .ordinal = 2, .budget_bytes = 1 << 20, .team = {}}};
  CHECK(device.id() == device_id{device_kind::cpu, 2});
  CHECK(device.threads() == 3);
  CHECK(device.budget_bytes() == 1 << 20);
  cpu_device copy = device;
  const stream_id s = copy.create_stream();
  void* const memory = device.allocate(100, s);
  CHECK(copy.counters().bytes_in_use == 100);
  copy.deallocate(memory, 100, s);
  CHECK(device.counters().bytes_in_use == 0);
  CHECK(code_of([] { cpu_device{{.threads = 0, .team = {}}}; }) == errc::invalid_argument);
}

TEST_CASE("without a budget a cpu_device offers the machine's memory") {
  std::ifstream meminfo{"/proc/meminfo"};
  std::string label;
  std::size_t kibibytes = 0;
  meminfo >> label >> kibibytes;
  REQUIRE(label == "MemTotal:");
  CHECK(cpu_device{}.budget_bytes() == kibibytes * 1024);
}

TEST_CASE("errors of a cpu_device name the device and the call") {
  cpu_device device{{.ordinal = 1, .team = {}}};
  std::string text;
  CHECK(code_of([&] { device.synchronize(stream_id{12345}); }, &text) == errc::invalid_argument);
  CHECK(text.find("synchronize") != std::string::npos);
  CHECK(text.find("12345") != std::string::npos);
  CHECK(text.find("[cpu:1]") != std::string::npos);
}

TEST_CASE("a destroyed stream's place is taken by another id") {
  cpu_device device;
  const stream_id first = device.create_stream();
  device.destroy_stream(first);
  device.destroy_stream(first);  // again is harmless
  const stream_id second = device.create_stream();
  CHECK(first != second);
  CHECK(code_of([&] { device.synchronize(first); }) == errc::invalid_argument);
  device.synchronize(second);
  std::vector<stream_id> many;
  for (std::size_t i = 1; i < detail::cpu::stream_table::capacity; ++i) many.push_back(device.create_stream());
  CHECK(code_of([&] { (void)device.create_stream(); }) == errc::out_of_memory);
  device.destroy_stream(many.back());
  (void)device.create_stream();
}

TEST_CASE("large memory is aligned to huge pages, and released whole") {
  device_fixture f{cpu_device{}};
  const tensor_view large = f.tensor(dtype::u8, {(std::size_t{5} << 20U) + 3});
  CHECK(reinterpret_cast<std::uintptr_t>(large.data()) % detail::cpu::huge_page_bytes == 0);
  std::memset(large.data(), 1, large.size_bytes());  // an address sanitizer checks the end
}

TEST_CASE("strided copies keep rows and gaps apart") {
  device_fixture f{cpu_device{{.threads = 2, .team = {}}}};
  std::vector<float> values(6 * 8);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const tensor_view from = f.tensor(values, {6, 8});
  const tensor_view to = f.tensor(std::vector<float>(6 * 8, -1.0F), {6, 8});
  f.device().copy(to.slice(1, 2, 5), from.slice(1, 0, 3), f.stream());
  const auto result = f.read<float>(to);
  for (std::size_t row = 0; row < 6; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      const bool inside = column >= 2 && column < 5;
      CHECK(result[row * 8 + column] == (inside ? static_cast<float>(row * 8 + column - 2) : -1.0F));
    }
  }
  // Equal counts are not enough once there are gaps.
  CHECK(code_of([&] { f.device().copy(to.slice(1, 0, 4), from.slice(0, 0, 3), f.stream()); }) == errc::invalid_shape);
}

TEST_CASE("a copy shared between threads is exact at every size") {
  device_fixture f{cpu_device{{.threads = 3, .team = {}}}};
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{(1 << 20) + 17}}) {
    const auto values = test::random_values<double>(count, 1);
    CHECK(f.read<double>(f.tensor(values)) == values);
  }
}

TEST_CASE("a custom op is told the device's threads and may fail with its own error") {
  device_fixture f{cpu_device{{.threads = 2, .team = {}}}};
  std::size_t threads = 0;
  op::custom_op o{.name = "probe"};
  o.launchers[device_kind::cpu] = [&](const op::custom_arguments& arguments) {
    threads = arguments.threads;
    CHECK(arguments.native_stream == nullptr);
  };
  f.run(o);
  CHECK(threads == 2);
  o.launchers[device_kind::cpu] = [](const op::custom_arguments&) { throw error{errc::io, "mine"}; };
  CHECK(code_of([&] { f.run(o); }) == errc::io);
  o.launchers.clear();
  o.launchers[device_kind::cuda] = [](const op::custom_arguments&) {};
  std::string text;
  CHECK(code_of([&] { f.run(o); }, &text) == errc::unsupported);
  CHECK(text.find("it has: cuda") != std::string::npos);
}

TEST_CASE("failed launches are not counted") {
  device_fixture f{cpu_device{}};
  const tensor_view x = f.tensor(std::vector<float>{1, 2});
  const auto before = f.device().counters().launches;
  CHECK(code_of([&] { f.run(op::add{.out = x, .a = x, .b = {}}); }) == errc::invalid_shape);
  CHECK(f.device().counters().launches == before);
  f.run(op::add{.out = x, .a = x, .b = x});
  CHECK(f.device().counters().launches == before + 1);
}

TEST_CASE("busy time is CPU time: a launch that sleeps is not busy, one that computes is") {
  device_fixture f{cpu_device{}};
  op::custom_op o{.name = "sleep"};
  o.launchers[device_kind::cpu] = [](const op::custom_arguments&) {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  };
  f.run(o);
  CHECK(f.device().counters().busy_s < 0.010);
  o.launchers[device_kind::cpu] = [](const op::custom_arguments&) {
    for (const double until = detail::thread_cpu_s() + 0.020; detail::thread_cpu_s() < until;) {}
  };
  f.run(o);
  CHECK(f.device().counters().busy_s >= 0.020);
  CHECK(f.device().counters().busy_s < 0.035);
}

TEST_CASE("buffers give back what they took, moved or not") {
  any_device device{cpu_device{}};
  {
    stream s{device};
    buffer a{device, s.id(), dtype::f32, {10}};
    buffer b{device, s.id(), dtype::f64, {3, 4}};
    CHECK(device.counters().bytes_in_use == 40 + 96);
    CHECK(b.view().extents() == shape{3, 4});
    a = std::move(b);
    CHECK(device.counters().bytes_in_use == 96);
    const buffer c = std::move(a);
    const buffer nothing{device, s.id(), dtype::f32, {0}};
    CHECK(device.counters().bytes_in_use == 96);
    CHECK(c.view());
  }
  CHECK(device.counters().bytes_in_use == 0);
  CHECK(device.counters().allocations == 2);
}
