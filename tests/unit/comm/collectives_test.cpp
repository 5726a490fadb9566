// SPDX-License-Identifier: Apache-2.0
// ctest: timeout=240
#include "support/catch.hpp"

#include "conformance/collective_failures.hpp"
#include "conformance/collectives.hpp"
#include "tcp_ranks.hpp"

#include <hetero/comm/run_ranks.hpp>

using namespace hetero;

namespace {
void run_threads(std::uint32_t ranks, const std::function<void(world&)>& body) { run_ranks(ranks, body); }
}  // namespace

TEST_CASE("collectives over parts, ranks as threads", "[comm]") {
  const std::uint32_t ranks = GENERATE(1U, 2U, 3U, 5U, 7U);
  CAPTURE(ranks);
  REQUIRE_NOTHROW(conformance::check_parts<world>(run_threads, ranks));
}

TEST_CASE("collectives over parts, ranks over TCP", "[comm]") {
  const std::uint32_t ranks = GENERATE(1U, 2U, 3U, 5U);
  CAPTURE(ranks);
  REQUIRE_NOTHROW(conformance::check_parts<world>(test::run_tcp_ranks, ranks));
}

TEST_CASE("failures of collectives over parts, ranks as threads", "[comm]") {
  const std::uint32_t ranks = GENERATE(2U, 3U, 5U);
  CAPTURE(ranks);
  REQUIRE_NOTHROW(conformance::check_part_failures<world>(run_threads, ranks));
}

TEST_CASE("failures of collectives over parts, ranks over TCP", "[comm]") {
  const std::uint32_t ranks = GENERATE(2U, 3U, 5U);
  CAPTURE(ranks);
  REQUIRE_NOTHROW(conformance::check_part_failures<world>(test::run_tcp_ranks, ranks));
}

TEST_CASE("collectives over parts, ranks over shared memory and over several streams", "[comm]") {
  const std::uint32_t ranks = GENERATE(2U, 3U, 5U);
  CAPTURE(ranks);
  REQUIRE_NOTHROW(conformance::check_parts<world>(test::run_shared_memory_ranks, ranks));
  REQUIRE_NOTHROW(conformance::check_part_failures<world>(test::run_shared_memory_ranks, ranks));
  REQUIRE_NOTHROW(conformance::check_parts<world>(test::run_striped_ranks, ranks));
}
