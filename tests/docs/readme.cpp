// SPDX-License-Identifier: Apache-2.0
// docs: compile only (2000 steps take a minute)
// [example]
#include <hetero/trainer.hpp>

int main() {
  const hetero::text_corpus corpus{"input.txt"};
  const hetero::gpt model{{.layers = 4, .heads = 4, .width = 128, .context = 64, .vocabulary = corpus.vocabulary()}};

  // One rank per device; @0.5 emulates a device of half the speed. hetero::default_pool() is what the machine has.
  hetero::run_pool(hetero::parse_pool("cpu:1,cpu:1@0.5"), [&](hetero::pool_member& here) {
    hetero::trainer trainer{model, here.world, here.device,
                            hetero::adamw{.learning_rate = 1e-3},
                            hetero::balanced_partitioner{},
                            hetero::one_f_one_b_scheduler{.micro_batches = 1},
                            hetero::replicated_sharding{},
                            hetero::all_reduce_synchronizer{}};

    for (const auto& step : trainer.steps(corpus.batches({.global_batch = 12}), 2000)) hetero::report(step);
    trainer.save("gpt.safetensors");
  });
}
// [example]
