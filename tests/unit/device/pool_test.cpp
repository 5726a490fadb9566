// SPDX-License-Identifier: Apache-2.0
#include "conformance/device_backend.hpp"

#include <string>
#include <vector>

#include <hetero/device/pool.hpp>

using namespace hetero;
using test::code_of;

namespace {

std::string refusal(const std::string& text) {
  std::string what;
  CHECK(code_of([&] { (void)parse_pool(text); }, &what) == errc::invalid_argument);
  return what;
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr auto cpu = device_kind::cpu;
constexpr auto cuda = device_kind::cuda;

}  // namespace

TEST_CASE("a pool is read as written and written as read") {
  CHECK(parse_pool("cpu:1,cpu:1@0.33") == device_pool{{cpu, 1, 1.0}, {cpu, 1, 0.33}});
  CHECK(parse_pool(" cuda:1 , cpu , cuda ") == device_pool{{cuda, 1, 1.0}, {cpu, 1, 1.0}, {cuda, 0, 1.0}});
  CHECK(parse_pool("cpu:2@1") == device_pool{{cpu, 2, 1.0}});
  for (const char* text : {"cpu:1,cpu:1@0.33", "cuda:0,cpu:16@0.001", "cpu:3@0.1"}) {
    CHECK(to_string(parse_pool(text)) == text);
  }
  const device_pool third{{cpu, 1, 1.0 / 3}};
  CHECK(parse_pool(to_string(third)) == third);  // every digit survives
}

TEST_CASE("a bad pool is refused with the item and what would work") {
  CHECK(holds(refusal(""), "empty item"));
  CHECK(holds(refusal("cpu:1,,cpu:1"), "empty item"));
  CHECK(holds(refusal("cpu:1,"), "cpu:1,cpu:1@0.33"));
  const std::string unknown = refusal("cpu:1,tpu:4");
  CHECK(holds(unknown, "\"tpu:4\""));
  CHECK(holds(unknown, "cpu (cpu:2"));
  CHECK(holds(unknown, "cuda (cuda:0"));
  for (const char* speed : {"0", "-0.5", "1.01", "nan", "inf"}) {
    const std::string what = refusal(std::string{"cpu:1@"} + speed);
    CHECK(holds(what, speed));
    CHECK(holds(what, "above 0 and at most 1"));
  }
  for (const char* speed : {"", "fast", "0.5x", "0.5.1"}) {
    CHECK(holds(refusal(std::string{"cpu:1@"} + speed), "not a number"));
  }
  CHECK(holds(refusal("cpu:0"), "1 to 1024"));
  CHECK(holds(refusal("cpu:2000"), "1 to 1024"));
  for (const char* threads : {"", "two", "-1", "1.5", "99999999999"}) {
    CHECK(holds(refusal(std::string{"cpu:"} + threads), "threads"));
  }
  CHECK(holds(refusal("cuda:x"), "index"));
  CHECK(holds(refusal("CPU:1"), "CPU"));
}

TEST_CASE("CPU devices of a pool are numbered, and its speeds and budgets hold") {
  const device_pool pool = parse_pool("cpu:1,cpu:2@0.5");
  const any_device first = make_device(pool, 0, {.budget_bytes = 1000, .throttle = {}});
  any_device second = make_device(pool, 1);
  CHECK(first.id() == device_id{cpu, 0});
  CHECK(first.budget_bytes() == 1000);
  CHECK(second.id() == device_id{cpu, 1});
  CHECK(second.threads() == 2);
  CHECK(code_of([&] { (void)make_device(pool, 2); }) == errc::invalid_argument);
}

TEST_CASE("the default pool is the CPU with the cores this process may use") {
  CHECK(default_pool(device_registry{}) == device_pool{{cpu, usable_cores(), 1.0}});
  CHECK(usable_cores() >= 1);
}
