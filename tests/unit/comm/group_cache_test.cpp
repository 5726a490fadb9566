// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"

#include <hetero/comm/counted.hpp>
#include <hetero/comm/group_cache.hpp>
#include <hetero/comm/run_ranks.hpp>

#include <vector>

using namespace hetero;
using conformance::expect;

namespace {

std::vector<rank_id> ranks_of(std::uint32_t mask, std::uint32_t n) {
  std::vector<rank_id> members;
  for (std::uint32_t r = 0; r < n; ++r) {
    if ((mask >> r) & 1U) members.push_back(rank_id{r});
  }
  return members;
}

}  // namespace

TEST_CASE("a thousand groups cost no message, and a group asked for again goes on", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(10, [](world& w, rank_id rank) {
    group_cache groups{w};
    const auto before = w.counters();
    std::size_t mine = 0;
    for (std::uint32_t mask = 1; mask <= 1000; ++mask) {
      if (((mask >> index_of(rank)) & 1U) == 0) continue;
      world& g = groups.get(ranks_of(mask, 10));
      expect(g.world_size() == ranks_of(mask, 10).size(), "size");
      ++mine;
    }
    expect(groups.size() == mine && mine > 450, "each list is a group");
    expect(w.counters() == before, "no message and no round");

    const std::vector<rank_id> members{rank_id{7}, rank_id{2}, rank_id{4}};
    if (rank != rank_id{7} && rank != rank_id{2} && rank != rank_id{4}) return;
    world& g = groups.get(members);
    expect(members[index_of(g.rank())] == rank, "ranks in the order of the list");
    for (int use = 0; use < 3; ++use) {
      world& again = groups.get(members);
      expect(&again == &g, "the same handle");
      const int sum = static_cast<int>(again.all_reduce(index_of(rank), reduce_op::sum));
      expect(sum == 13, "its ranks alone take part");
    }
    groups.clear();
    expect(groups.get(members).all_reduce(1, reduce_op::sum) == 3, "made anew on all ranks at the same point");
  }));
}

TEST_CASE("the sequence of a cached group goes on where others use it for the first time", "[comm]") {
  // Control: a rank that throws its cache away alone starts a new sequence, and the deadline finds it.
  const auto run = [](bool forget) {
    return conformance::errors_of<world>(
        [](std::uint32_t n, const std::function<void(world&)>& body) { run_ranks(n, body); }, 2,
        [&](world& w) {
          w.set_timeout(std::chrono::milliseconds{forget ? 100 : 20000});
          group_cache groups{w};
          const std::vector<rank_id> both{rank_id{1}, rank_id{0}};
          groups.get(both).barrier();
          if (forget && w.rank() == rank_id{1}) groups.clear();
          groups.get(both).barrier();
        });
  };
  REQUIRE_FALSE(run(false).errors[0]);
  REQUIRE_NOTHROW(conformance::expect_errors(run(true), errc::timeout, {"group(1,0)"}));
}

TEST_CASE("a list that is no group is refused", "[comm]") {
  const auto refused = [](std::vector<rank_id> members, const char* words) {
    REQUIRE_THROWS_WITH(run_ranks(3,
                                  [&](world& w, rank_id rank) {
                                    if (rank == rank_id{0}) (void)w.group(members);
                                  }),
                        ContainsSubstring(words));
  };
  refused({rank_id{0}, rank_id{1}, rank_id{0}}, "rank 0 is listed twice");
  refused({rank_id{0}, rank_id{3}}, "rank 3 is not among its 3 ranks");
  refused({rank_id{1}, rank_id{2}}, "only members can ask");
  refused({}, "only members can ask");
}

TEST_CASE("groups of decorated handles and of groups", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(4, [](world& w, rank_id rank) {
    if (rank == rank_id{0}) return;
    counted c{w.channel("counted")};
    group_cache groups{c};
    counted<world>& three = groups.get(std::vector{rank_id{3}, rank_id{1}, rank_id{2}});
    expect(three.all_reduce(1, reduce_op::sum) == 3, "a group of three");
    expect(c.passed().total().rounds > 0, "counted with its parent");
    if (three.rank() == rank_id{0}) return;
    counted<world> two = three.group(std::vector{rank_id{1}, rank_id{2}});
    expect(two.all_reduce(static_cast<int>(index_of(rank)), reduce_op::sum) == 3, "ranks 1 and 2 of the world");
  }));
}
