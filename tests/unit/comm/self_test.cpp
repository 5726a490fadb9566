// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"

#include <hetero/comm/self.hpp>

using namespace hetero;

TEST_CASE("a rank alone behaves as a communicator", "[comm]") {
  REQUIRE_NOTHROW(conformance::check_behaviour<world>(
      [](std::uint32_t, const std::function<void(world&)>& body) {
        world w = self();
        body(w);
      },
      1));
}

TEST_CASE("a rank alone refuses what has no meaning", "[comm]") {
  world w = self();
  std::vector<float> values(4);
  const tensor_view view{std::span{values}};
  REQUIRE_THROWS_WITH(w.send(view, rank_id{0}),
                      ContainsSubstring("invalid_argument") && ContainsSubstring("not another rank"));
  REQUIRE_THROWS_WITH(w.recv(view, rank_id{1}), ContainsSubstring("invalid_argument"));
  REQUIRE_THROWS_WITH(w.broadcast(view, rank_id{1}), ContainsSubstring("root 1 is not among the 1 ranks"));
  REQUIRE_THROWS_WITH(w.split(-1, 0), ContainsSubstring("a color is 0 or above"));
}

TEST_CASE("views that cannot travel are refused before anything is sent", "[comm]") {
  world w = self();
  std::vector<float> values(12);
  const tensor_view grid{values.data(), dtype::f32, shape{3, 4}};
  REQUIRE_THROWS_WITH(w.all_reduce(grid.slice(1, 0, 2), reduce_op::sum), ContainsSubstring("without gaps"));
  REQUIRE_NOTHROW(w.all_reduce(grid.slice(0, 0, 2), reduce_op::sum));
  const tensor_view elsewhere{values.data(), dtype::f32, shape{12}, device_id{device_kind::cuda, 1}};
  REQUIRE_THROWS_WITH(w.all_reduce(elsewhere, reduce_op::sum),
                      ContainsSubstring("unsupported") && ContainsSubstring("cuda:1"));
  REQUIRE_THROWS_WITH(w.all_reduce_async(elsewhere, reduce_op::sum), ContainsSubstring("unsupported"));
  REQUIRE_THROWS_WITH(w.all_gather(grid, grid.slice(0, 0, 2)),
                      ContainsSubstring("invalid_shape") && ContainsSubstring("needs room for 12"));
}

TEST_CASE("single numbers and weighted sums", "[comm]") {
  world w = self();
  REQUIRE(w.all_reduce(7, reduce_op::sum) == 7);
  REQUIRE(w.all_reduce(std::size_t{8}, reduce_op::max) == 8);
  REQUIRE(w.all_reduce(2.5F, reduce_op::min) == 2.5F);
  REQUIRE(w.all_reduce(weighted_sum{6, 4}).mean() == 1.5);
  REQUIRE_THROWS_WITH(w.all_reduce(~std::uint64_t{0}, reduce_op::sum), ContainsSubstring("beyond 63 bits"));
  REQUIRE_THROWS_WITH(w.all_reduce(weighted_sum{}).mean(), ContainsSubstring("mean of nothing"));
}

TEST_CASE("a world of one can be aborted, and its timeout is finite", "[comm]") {
  world w = self();
  REQUIRE_THROWS_WITH(w.set_timeout(std::chrono::milliseconds{0}), ContainsSubstring("between 1 ms and 24 h"));
  REQUIRE_THROWS_WITH(w.set_timeout(std::chrono::hours{25}), ContainsSubstring("between 1 ms and 24 h"));
  w.abort("enough");
  REQUIRE_THROWS_WITH(w.barrier(), ContainsSubstring("aborted: rank 0 aborted: enough"));
}
