// SPDX-License-Identifier: Apache-2.0
// Other communicators under an unchanged trainer: islands, decorators and queues with priorities.
#include "support/catch.hpp"

#include "laws/training.hpp"

#include <hetero/comm/counted.hpp>
#include <hetero/comm/hierarchical.hpp>
#include <hetero/comm/shaped.hpp>

using namespace hetero;
using namespace hetero::test;

namespace {

batches<ragged_data> points() { return {data_for(small_mlp()), {.global_batch = 6, .seed = 3}}; }

/// The parameters after five steps of three unequal ranks, whose world `dress(world, rank)` replaces.
template <class Dress>
std::vector<tensors> trained(Dress dress, numerics mode, all_reduce_synchronizer sync = {}) {
  std::vector<tensors> result(3);
  run_ranks(3, [&](world& w, rank_id rank) {
    auto c = dress(w, rank);
    trainer t{small_mlp(), c, ratio_partitioner{.ratio = {5, 3, 1}}, untimed(mode), one_thread(), sync};
    const auto source = points();
    for (int i = 0; i < 5; ++i) (void)t.step(source);
    result[index_of(rank)] = parameters_of(t);
  });
  return result;
}

auto plain = [](world& w, rank_id) { return w.channel("plain"); };
auto islands = [](world& w, rank_id rank) { return make_hierarchical(w, rank == rank_id{1} ? 0 : 1); };
auto dressed = [](world& w, rank_id) {
  return counted{shaped{w.channel("dressed"), link_shape{.latency = std::chrono::microseconds{50}}}};
};

}  // namespace

TEST_CASE("a trainer runs on any communicator, to the same bits in reproducible mode", "[trainer]") {
  const auto reference = trained(plain, numerics::reproducible);
  for (const auto& other :
       {trained(islands, numerics::reproducible), trained(dressed, numerics::reproducible),
        trained(plain, numerics::reproducible, {.bucket_bytes = 64, .order = queue_order::priority})}) {
    for (const auto& mine : other) REQUIRE(same_bits(mine, reference[0]));
  }
}

TEST_CASE("in fast mode all ranks of any communicator end with the same bits", "[trainer]") {
  const auto reference = trained(plain, numerics::fast);
  const all_reduce_synchronizer urgent{.bucket_bytes = 64, .order = queue_order::priority};
  for (const auto& other : {trained(islands, numerics::fast), trained(dressed, numerics::fast),
                            trained(islands, numerics::fast, urgent), trained(plain, numerics::fast, urgent)}) {
    for (const auto& mine : other) {
      REQUIRE(same_bits(mine, other[0]));
      REQUIRE(relative_distance(mine, reference[0]) < 1e-5);
    }
  }
}
