// SPDX-License-Identifier: Apache-2.0
// The test double must catch what it was made for.
#include "support/deferred_device.hpp"

#include "conformance/device_backend.hpp"

#include <cmath>
#include <vector>

using namespace hetero;
using test::code_of;
using test::deferred_device;

namespace {

/// fill on one stream, copy to the host on another; returns what the host sees.
std::vector<float> two_streams(bool ordered) {
  deferred_device device;
  const stream_id producer = device.create_stream();
  const stream_id consumer = device.create_stream();
  void* const memory = device.allocate(16, producer);
  const tensor_view x{memory, dtype::f32, {4}};
  device.launch(op::fill{.out = x, .value = 7}, producer);
  if (ordered) device.order(producer, consumer);
  std::vector<float> host(4, -1.0F);
  device.copy(tensor_view{std::span{host}}, x, consumer);
  CHECK(host[0] == -1.0F);  // nothing ran yet
  device.synchronize(consumer);
  device.deallocate(memory, 16, producer);
  device.destroy_stream(consumer);
  device.destroy_stream(producer);
  CHECK(device.counters().bytes_in_use == 0);
  return host;
}

}  // namespace

TEST_CASE("work of two streams is in order when order() says so, and NaN when it does not") {
  CHECK(two_streams(true) == std::vector<float>(4, 7.0F));
  for (const float each : two_streams(false)) CHECK(std::isnan(each));
}

TEST_CASE("order() covers what came before it, not what comes after") {
  deferred_device device;
  const stream_id a = device.create_stream();
  const stream_id b = device.create_stream();
  std::vector<float> values(1, 0.0F);
  const tensor_view x{std::span{values}};
  device.launch(op::fill{.out = x, .value = 1}, a);
  device.order(a, b);
  device.launch(op::fill{.out = x, .value = 2}, a);
  device.synchronize(b);
  CHECK(values[0] == 1);
  CHECK(device.pending(a) == 1);
  device.synchronize(a);
  CHECK(values[0] == 2);
  CHECK(device.pending(a) == 0);
}

TEST_CASE("memory given back too early is poisoned for later readers on another stream") {
  deferred_device device;
  const stream_id a = device.create_stream();
  const stream_id b = device.create_stream();
  void* const memory = device.allocate(4, a);
  const tensor_view x{memory, dtype::f32, {1}};
  device.launch(op::fill{.out = x, .value = 3}, a);
  std::vector<float> host(1, 0.0F);
  device.copy(tensor_view{std::span{host}}, x, a);
  device.deallocate(memory, 4, a);
  CHECK(device.counters().bytes_in_use == 4);  // not before the stream gets there
  device.synchronize(a);
  CHECK(host[0] == 3);
  CHECK(device.counters().bytes_in_use == 0);
  device.destroy_stream(b);
  device.destroy_stream(a);
}

TEST_CASE("an error of queued work is thrown where it is waited for, once") {
  deferred_device device;
  const stream_id s = device.create_stream();
  device.launch(op::add{}, s);  // legal: empty tensors
  device.launch(op::custom_op{.name = "nowhere"}, s);
  std::vector<float> values(1, 0.0F);
  device.launch(op::fill{.out = tensor_view{std::span{values}}, .value = 4}, s);
  CHECK(code_of([&] { device.synchronize(s); }) == errc::unsupported);
  device.synchronize(s);
  CHECK(values[0] == 4);
}
