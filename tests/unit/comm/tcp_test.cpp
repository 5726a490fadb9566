// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"
#include "tcp_ranks.hpp"

using namespace hetero;

TEST_CASE("ranks over TCP behave as a communicator", "[comm]") {
  const std::uint32_t ranks = GENERATE(1U, 2U, 3U, 5U);
  CAPTURE(ranks);
  REQUIRE_NOTHROW(conformance::check_behaviour<world>(test::run_tcp_ranks, ranks));
}

TEST_CASE("failures over TCP reach every rank", "[comm]") {
  const std::uint32_t ranks = GENERATE(2U, 3U, 5U);
  CAPTURE(ranks);
  REQUIRE_NOTHROW(conformance::check_failures<world>(test::run_tcp_ranks, ranks));
}
