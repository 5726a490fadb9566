// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <hetero/comm/algorithm/reduce.hpp>
#include <hetero/comm/algorithm/ring.hpp>

#include <cmath>
#include <limits>
#include <vector>

using namespace hetero;
using namespace hetero::detail;

TEST_CASE("segments cover a range without gap or overlap", "[comm]") {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{6}, std::size_t{7}, std::size_t{1000003}}) {
    for (std::size_t parts = 1; parts <= 9; ++parts) {
      std::size_t next = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        const segment s = segment_of(count, parts, i);
        REQUIRE(s.begin == next);
        REQUIRE(s.count() <= segment_of(count, parts, 0).count());
        next = s.end;
      }
      REQUIRE(next == count);
    }
  }
  REQUIRE(pieces_for(0) == 1);
  REQUIRE(pieces_for(piece_bytes) == 1);
  REQUIRE(pieces_for(piece_bytes + 1) == 2);
}

TEST_CASE("integer sums that leave their type are found wherever they are", "[comm]") {
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{15}, std::size_t{16}, std::size_t{36}}) {  // in a full block and in the rest
    std::vector<std::int32_t> into(37, 1);
    std::vector<std::int32_t> from(37, 2);
    REQUIRE_NOTHROW(reduce_into(into.data(), from.data(), into.size(), reduce_op::sum));
    REQUIRE(into[at] == 3);
    into[at] = std::numeric_limits<std::int32_t>::max();
    REQUIRE_THROWS_AS(reduce_into(into.data(), from.data(), into.size(), reduce_op::sum), error);
    into.assign(37, 1);
    into[at] = std::numeric_limits<std::int32_t>::min();
    from[at] = -1;
    REQUIRE_THROWS_AS(reduce_into(into.data(), from.data(), into.size(), reduce_op::sum), error);
    into[at] = std::numeric_limits<std::int32_t>::min();
    REQUIRE_NOTHROW(reduce_into(into.data(), from.data(), into.size(), reduce_op::min));
  }
}

TEST_CASE("a NaN on either side stays", "[comm]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  REQUIRE(std::isnan(reduce_pair<reduce_op::max>(nan, 1.0F)));
  REQUIRE(std::isnan(reduce_pair<reduce_op::max>(1.0F, nan)));
  REQUIRE(std::isnan(reduce_pair<reduce_op::min>(nan, 1.0F)));
  REQUIRE(std::isnan(reduce_pair<reduce_op::min>(1.0F, nan)));
  REQUIRE(reduce_pair<reduce_op::max>(1.0F, 2.0F) == 2.0F);
  REQUIRE(reduce_pair<reduce_op::min>(1.0F, 2.0F) == 1.0F);
}
