// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"

#include <hetero/comm/run_ranks.hpp>

#include <string>

using namespace hetero;
using conformance::expect;

TEST_CASE("byte strings of unequal lengths travel", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(5, [](world& w, rank_id rank) {
    const auto parts = w.all_gather(std::string(3 * index_of(rank), static_cast<char>('a' + index_of(rank))));
    for (std::uint32_t r = 0; r < 5; ++r)
      expect(parts[r] == std::string(3 * r, static_cast<char>('a' + r)), "gathered strings");
    std::string text = rank == rank_id{3} ? std::string(100000, 'x') : "short";
    w.broadcast(text, rank_id{3});
    expect(text == std::string(100000, 'x'), "broadcast string");
    w.broadcast(text, rank_id{3});
  }));
}

TEST_CASE("agreement names the thing, both values and both ranks", "[comm]") {
  const auto result = conformance::errors_of<world>(
      [](std::uint32_t n, const std::function<void(world&)>& body) { run_ranks(n, body); }, 3,
      [](world& w) {
        w.agree("plan hash", "same");  // control: no error
        w.agree("model hash", w.rank() == rank_id{1} ? "7f" : "a1");
      });
  REQUIRE_NOTHROW(
      conformance::expect_errors(result, errc::mismatch, {"model hash", "rank 0 has 'a1'", "rank 1 has '7f'"}));
}

TEST_CASE("weighted sums have a mean only after all ranks added theirs", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(3, [](world& w, rank_id rank) {
    // Rank 2 holds no work at all: a mean of means would divide by three ranks or by zero.
    const double weight = rank == rank_id{0} ? 5 : rank == rank_id{1} ? 1 : 0;
    const double sum = rank == rank_id{0} ? 10 : rank == rank_id{1} ? 8 : 0;
    const global_sum total = w.all_reduce(weighted_sum{sum, weight});
    expect(total.weight() == 6 && total.mean() == 3, "18 / 6");
    const double mean_of_means = (10.0 / 5 + 8.0 / 1) / 2;
    expect(total.mean() != mean_of_means, "control");
  }));
}

TEST_CASE("one number per rank", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(3, [](world& w, rank_id rank) {
    expect(w.all_reduce(index_of(rank), reduce_op::sum) == 3, "integers");
    expect(w.all_reduce(0.5 * index_of(rank), reduce_op::max) == 1.0, "doubles");
    expect(w.all_reduce(std::uint8_t{1}, reduce_op::min) == 1, "bytes");
  }));
  REQUIRE_THROWS_WITH(run_ranks(3, [](world& w) { (void)w.all_reduce(std::uint8_t{200}, reduce_op::sum); }),
                      ContainsSubstring("does not fit its type"));
}

TEST_CASE("a channel costs no message and needs equal requests", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(2, [](world& w) {
    const auto before = w.counters();
    world a = w.channel("a");
    world b = a.channel("b");
    expect(w.counters() == before, "no message");
    expect(b.name() == "world/a/b" && w.channel("a").name() == "world/a#2", "names");
    b.barrier();
  }));
  // Control: a rank that asks once more is on another channel, and the deadline says so.
  const auto result = conformance::errors_of<world>(
      [](std::uint32_t n, const std::function<void(world&)>& body) { run_ranks(n, body); }, 2,
      [](world& w) {
        w.set_timeout(std::chrono::milliseconds{50});
        if (w.rank() == rank_id{1}) (void)w.channel("a");
        w.channel("a").barrier();
      });
  REQUIRE_NOTHROW(conformance::expect_errors(result, errc::timeout, {"world/a"}));
}

TEST_CASE("an asynchronous error surfaces at wait, and the handle may go first", "[comm]") {
  const auto result = conformance::errors_of<world>(
      [](std::uint32_t n, const std::function<void(world&)>& body) { run_ranks(n, body); }, 2,
      [](world& w) {
        std::vector<float> values(w.rank() == rank_id{0} ? 10 : 11, 1);
        pending running;
        {
          world mine = w.channel("buckets");
          running = mine.all_reduce_async(tensor_view{std::span{values}}, reduce_op::sum);
        }
        expect(running.ready(), "the handle finished its work before it went");
        running.wait();
      });
  REQUIRE_NOTHROW(conformance::expect_errors(result, errc::mismatch, {"world/buckets/async", "10 f32", "11 f32"}));
  pending nothing;
  REQUIRE_NOTHROW(nothing.wait());
}
