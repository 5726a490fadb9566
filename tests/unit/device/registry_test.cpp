// SPDX-License-Identifier: Apache-2.0
#include "conformance/device_backend.hpp"

#include <string>
#include <vector>

#include <hetero/device/pool.hpp>
#include <hetero/device/registry.hpp>

using namespace hetero;
using test::code_of;

namespace {

struct calls {
  int made = 0;
  int queried = 0;
};

device_factory counting_factory(calls& count, std::uint32_t devices) {
  return {.kind = device_kind::cuda,
          .make = [&count](const device_spec& spec, const device_options&) -> any_device {
            ++count.made;
            return cpu_device{{.ordinal = static_cast<std::uint16_t>(spec.index_or_threads), .team = {}}};
          },
          .available =
              [&count, devices] {
                ++count.queried;
                std::vector<device_spec> found;
                for (std::uint32_t i = 0; i < devices; ++i) found.push_back({device_kind::cuda, i, 1});
                return found;
              }};
}

}  // namespace

TEST_CASE("the CPU is registered by itself") {
  const any_device device = make_device({device_kind::cpu, 2, 1});
  CHECK(device.threads() == 2);
  CHECK(device.id() == device_id{device_kind::cpu, 0});
  bool found = false;
  for (const device_spec& each : available_devices()) found = found || each.kind == device_kind::cpu;
  CHECK(found);
}

TEST_CASE("a kind without a backend is refused, naming those there are") {
  const device_registry registry;
  std::string text;
  CHECK(code_of([&] { (void)registry.make({device_kind::cuda, 0, 1}); }, &text) == errc::unsupported);
  CHECK(text.find("cuda:0") != std::string::npos);
  CHECK(text.find("which has: cpu") != std::string::npos);
}

TEST_CASE("no factory runs before the first query, and the default pool prefers what it finds") {
  calls count;
  device_registry registry;
  CHECK(registry.add(counting_factory(count, 2)));
  CHECK(count.queried == 0);
  CHECK(count.made == 0);
  CHECK(default_pool(registry) == device_pool{{device_kind::cuda, 0, 1}, {device_kind::cuda, 1, 1}});
  CHECK(count.queried == 1);
  CHECK(count.made == 0);
  CHECK(registry.make({device_kind::cuda, 1, 1}).id().ordinal == 1);
  CHECK(count.made == 1);
}

TEST_CASE("a backend without devices leaves the CPU as the default, and a second one of its kind is ignored") {
  calls first, second;
  device_registry registry;
  CHECK(registry.add(counting_factory(first, 0)));
  CHECK_FALSE(registry.add(counting_factory(second, 3)));
  REQUIRE(default_pool(registry).size() == 1);
  CHECK(default_pool(registry)[0].kind == device_kind::cpu);
  CHECK(second.queried == 0);
}

TEST_CASE("a speed, or a throttle handle, makes an emulated device") {
  const auto busy_ratio = [](any_device device, double seconds) {
    test::device_fixture f{std::move(device)};
    op::custom_op o{.name = "burn"};
    double used_s = 0;
    o.launchers[device_kind::cpu] = [&](const op::custom_arguments&) {
      const double start_s = detail::thread_cpu_s();
      while (detail::thread_cpu_s() < start_s + seconds) {}
      used_s = detail::thread_cpu_s() - start_s;
    };
    f.run(o);
    return f.device().counters().busy_s / used_s;
  };
  CHECK(busy_ratio(make_device({device_kind::cpu, 1, 1}), 0.005) == Approx(1).epsilon(0.05));
  CHECK(busy_ratio(make_device({device_kind::cpu, 1, 0.25}), 0.005) == Approx(4).epsilon(0.05));
  const throttle_control control{0.5};
  CHECK(busy_ratio(make_device({device_kind::cpu, 1, 1}, {.throttle = control}), 0.005) == Approx(2).epsilon(0.05));
  CHECK(code_of([] { (void)make_device({device_kind::cpu, 1, 0}); }) == errc::invalid_argument);
  CHECK(code_of([] { (void)make_device({device_kind::cpu, 0, 1}); }) == errc::invalid_argument);
}
