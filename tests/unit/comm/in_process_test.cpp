// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"

#include <hetero/comm/run_ranks.hpp>

#include <memory>
#include <stdexcept>

using namespace hetero;

namespace {
void run(std::uint32_t ranks, const std::function<void(world&)>& body) { run_ranks(ranks, body); }
}  // namespace

TEST_CASE("ranks as threads behave as a communicator", "[comm]") {
  const std::uint32_t ranks = GENERATE(1U, 2U, 3U, 5U, 7U);
  CAPTURE(ranks);
  REQUIRE_NOTHROW(conformance::check_behaviour<world>(run, ranks));
}

TEST_CASE("failures of ranks as threads reach every rank", "[comm]") {
  const std::uint32_t ranks = GENERATE(2U, 3U, 5U);
  CAPTURE(ranks);
  REQUIRE_NOTHROW(conformance::check_failures<world>(run, ranks));
}

TEST_CASE("run_ranks rethrows the cause and not its consequences", "[comm]") {
  REQUIRE_THROWS_WITH(run_ranks(3,
                                [](world& w, rank_id rank) {
                                  if (rank == rank_id{2}) throw std::runtime_error{"the cause"};
                                  w.barrier();
                                }),
                      "the cause");
  // Control: without a cause nothing is thrown.
  REQUIRE_NOTHROW(run_ranks(3, [](world& w) { w.barrier(); }));
  REQUIRE_THROWS_AS(run_ranks(0, [](world&) {}), error);
}

TEST_CASE("a message of a direct copy is not staged", "[comm]") {
  // The receiver's memory is written by the sender's post when the receive came first, and the other way round.
  auto transports = in_process_transports(2);
  int from = 42;
  int to = 0;
  const auto prepare = [](transfer& t, transfer::way way, std::uint32_t peer, int& value) {
    t.direction = way;
    t.peer = peer;
    t.what.count = 1;
    t.what.type = dtype::i32;
    t.data = reinterpret_cast<std::byte*>(&value);
    t.bytes = sizeof value;
  };
  transfer receive;
  transfer send;
  prepare(receive, transfer::way::recv, 0, to);
  prepare(send, transfer::way::send, 1, from);
  transports[1]->post(receive);
  receive.carrier = transports[1].get();
  REQUIRE(to == 0);
  transports[0]->post(send);
  REQUIRE(to == 42);

  SECTION("a transfer that nobody meets can be taken back") {
    transfer lonely;
    prepare(lonely, transfer::way::recv, 0, to);
    lonely.carrier = transports[1].get();
    transports[1]->post(lonely);
    const auto now = transport::clock::now();
    transfer* const one = &lonely;
    REQUIRE(transports[1]->wait({&one, 1}, now + std::chrono::milliseconds{5}) == transport::status::timeout);
  }
}
