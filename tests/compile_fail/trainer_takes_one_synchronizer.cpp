// SPDX-License-Identifier: Apache-2.0
// One policy of each kind: a second synchronizer is refused in one sentence.
// expect: hetero::trainer was given two synchronizers; pass one
#include <hetero/model/mlp.hpp>
#include <hetero/trainer/trainer.hpp>

void train(const hetero::mlp& model, hetero::world& world) {
#ifdef HETERO_CONTROL
  hetero::trainer trainer{model, world, hetero::all_reduce_synchronizer{}, hetero::adamw{}};
#else
  hetero::trainer trainer{model, world, hetero::all_reduce_synchronizer{}, hetero::all_reduce_synchronizer{}};
#endif
  trainer.update();
}
