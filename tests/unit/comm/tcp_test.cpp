// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"
#include "tcp_ranks.hpp"

#include <hetero/comm/tcp_connection.hpp>

#include <vector>

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

TEST_CASE("ranks over several streams each behave as a communicator", "[comm]") {
  const std::uint32_t ranks = GENERATE(2U, 3U);
  CAPTURE(ranks);
  REQUIRE_NOTHROW(conformance::check_behaviour<world>(test::run_striped_ranks, ranks));
  REQUIRE_NOTHROW(conformance::check_failures<world>(test::run_striped_ranks, ranks));
}

TEST_CASE("a message that is cut over several streams arrives whole, in order and early", "[comm]") {
  // Lengths around the border, with rests that no cache line divides; every other one is received late.
  REQUIRE_NOTHROW(test::run_striped_ranks(2, [](world& w) {
    world late = w.channel("late");
    const std::size_t border = detail::tcp_connection::striped_bytes;
    for (const std::size_t bytes : {border - 1, border, border + 1, 3 * border + 77, std::size_t{1}}) {
      std::vector<std::uint8_t> first(bytes), second(bytes);
      for (std::size_t i = 0; i < bytes; ++i) {
        first[i] = static_cast<std::uint8_t>(i * 31 % 251);
        second[i] = static_cast<std::uint8_t>(i * 17 % 241);
      }
      if (w.rank() == rank_id{0}) {
        late.send(tensor_view{std::span{first}}, rank_id{1});
        w.send(tensor_view{std::span{second}}, rank_id{1});
      } else {
        std::vector<std::uint8_t> got(bytes);
        w.recv(tensor_view{std::span{got}}, rank_id{0});
        conformance::expect(got == second, "the message that was expected");
        late.recv(tensor_view{std::span{got}}, rank_id{0});
        conformance::expect(got == first, "the early message");
      }
    }
  }));
}
