// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <numeric>

#include <hetero/plan/share.hpp>

using namespace hetero;

namespace {

plan plan_of(const std::vector<std::size_t>& shares) {
  plan p{.num_layers = 2, .global_batch = std::accumulate(shares.begin(), shares.end(), std::size_t{0})};
  for (std::uint32_t r = 0; r < shares.size(); ++r) {
    p.roles.push_back(rank_role::worker);
    p.replicas.push_back({.stages = {{.end_layer = 2, .rank = rank_id{r}}}});
  }
  return with_shares(std::move(p), shares);
}

}  // namespace

TEST_CASE("a full step is cut by the shares, a short one in their proportion, each sample once", "[plan]") {
  for (const auto& shares :
       std::vector<std::vector<std::size_t>>{{9}, {5, 3, 1}, {0, 9}, {1, 0, 8, 0}, {3, 3, 3, 3, 3}}) {
    const plan p = plan_of(shares);
    for (std::size_t samples = 0; samples <= p.global_batch; ++samples) {
      std::size_t next = 0;
      for (std::uint32_t r = 0; r < shares.size(); ++r) {
        const sample_range mine = share_of(p, rank_id{r}, samples);
        INFO(samples << " samples, rank " << r);
        REQUIRE(mine.begin == next);
        next = mine.end;
        if (samples == p.global_batch) REQUIRE(mine.count() == shares[r]);
        if (shares[r] == 0) REQUIRE(mine.count() == 0);
        REQUIRE(mine.count() <= shares[r]);  // reproducible mode has one micro-batch per sample of the share
        const double exact = static_cast<double>(shares[r] * samples) / static_cast<double>(p.global_batch);
        REQUIRE(std::abs(static_cast<double>(mine.count()) - exact) < 1);
      }
      REQUIRE(next == samples);
    }
  }
}

TEST_CASE("a rank of another role has no samples", "[plan]") {
  plan p = plan_of({4, 2});
  p.roles.push_back(rank_role::server);
  REQUIRE(share_of(p, rank_id{2}, 6) == sample_range{});
}

TEST_CASE("other shares make other roles, and must fit", "[plan]") {
  plan p = plan_of({4, 2});
  p = with_shares(p, {0, 6});
  REQUIRE(p.roles == std::vector{rank_role::idle, rank_role::worker});
  REQUIRE(shares_of(p) == std::vector<std::size_t>{0, 6});
  p = with_shares(p, {6, 0});
  REQUIRE(p.roles == std::vector{rank_role::worker, rank_role::idle});
  REQUIRE_THROWS_WITH(with_shares(p, {3, 2}),
                      ContainsSubstring("plan_does_not_fit") && ContainsSubstring("global batch is 6"));
  REQUIRE_THROWS_WITH(with_shares(p, {6}), ContainsSubstring("1 shares were given for a plan of 2"));
  plan served = plan_of({4, 2});
  served.roles.push_back(rank_role::server);
  REQUIRE(with_shares(served, {3, 3}).roles.back() == rank_role::server);
}
