// SPDX-License-Identifier: Apache-2.0
#include "conformance/device_backend.hpp"

#include "support/deferred_device.hpp"

#include <hetero/device/any_device.hpp>
#include <hetero/device/cpu_device.hpp>
#include <hetero/device/throttled_device.hpp>

using namespace hetero;
using test::check_device_backend;

TEST_CASE("cpu_device with one thread keeps the device contract") {
  check_device_backend(
      [](std::size_t budget) { return cpu_device{{.threads = 1, .budget_bytes = budget, .team = {}}}; });
}

TEST_CASE("cpu_device with two threads keeps the device contract") {
  check_device_backend(
      [](std::size_t budget) { return cpu_device{{.threads = 2, .budget_bytes = budget, .team = {}}}; });
}

TEST_CASE("any_device keeps the device contract") {
  check_device_backend(
      [](std::size_t budget) { return any_device{cpu_device{{.threads = 1, .budget_bytes = budget, .team = {}}}}; });
}

TEST_CASE("throttled_device keeps the device contract") {
  check_device_backend([](std::size_t budget) {
    return any_device{throttled_device{cpu_device{{.threads = 1, .budget_bytes = budget, .team = {}}}, 0.5}};
  });
}

TEST_CASE("throttled_device over any_device keeps the device contract") {
  check_device_backend([](std::size_t budget) {
    return any_device{
        throttled_device{any_device{cpu_device{{.threads = 2, .budget_bytes = budget, .team = {}}}}, 0.9}};
  });
}

TEST_CASE("the deferred test double keeps the device contract") {
  check_device_backend(
      [](std::size_t budget) { return test::deferred_device{{.threads = 1, .budget_bytes = budget, .team = {}}}; });
}
