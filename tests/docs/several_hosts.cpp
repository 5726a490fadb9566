// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <span>
#include <vector>

#include <hetero/comm/join.hpp>

// [join]
int main() try {
  hetero::world world = hetero::join({
      .settings = "my program, batch 16",
      .timeout = std::chrono::minutes{2},
      .allow_unauthenticated = true,  // this network is ours alone
  });
  // [join]
  std::vector<float> sum(4, 1.0F);
  world.all_reduce(hetero::tensor_view{std::span{sum}}, hetero::reduce_op::sum);
  std::printf("rank %u of %u: %g\n", static_cast<unsigned>(hetero::index_of(world.rank())),
              static_cast<unsigned>(world.world_size()), static_cast<double>(sum[0]));
} catch (const hetero::error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
