// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <fstream>
#include <string>

#include <hetero/model/sampling.hpp>
// [include]
#include <hetero/trainer.hpp>
#include <hetero/trainer/resume_json.hpp>
// [include]

namespace {

std::string write_input() {
  std::ofstream out{"input.txt"};
  for (int i = 0; i < 60; ++i) out << "The quick brown fox jumps over the lazy dog, " << i << " times.\n";
  return "input.txt";
}

template <class Trainer>
// [generate]
std::string continue_text(Trainer& trainer, const hetero::text_corpus& corpus, const std::string& prompt) {
  const std::vector<std::uint64_t> ids{0};
  const std::vector<float> weights{1};
  const auto next_logits = [&](std::span<const std::int32_t> window) {
    const hetero::tensor_view input{const_cast<std::int32_t*>(window.data()), hetero::dtype::i32, {1, window.size()}};
    const auto logits = trainer.predict({.sample_ids = ids, .weights = weights, .inputs = input, .targets = {}});
    return std::vector<float>{logits.end() - static_cast<std::ptrdiff_t>(corpus.vocabulary()), logits.end()};
  };
  const auto start = corpus.encode(prompt);
  return corpus.decode(hetero::generate(next_logits, start, 80, trainer.get_model().options().context));
}
// [generate]

void train(hetero::pool_member& here, const hetero::text_corpus& corpus) {
  // [trainer]
  const auto [training, validation] = corpus.split(0.9);
  const hetero::gpt model{{.layers = 1, .heads = 2, .width = 16, .context = 16, .vocabulary = corpus.vocabulary()}};
  const auto batches = training.batches({.global_batch = 8, .context = 16, .seed = 1});

  hetero::trainer trainer{model, here.world, here.device,
                          hetero::adamw{.learning_rate = 3e-3, .weight_decay = 0.1},
                          hetero::cosine_rate{.warm_up_steps = 10, .total_steps = 100},
                          hetero::clip_norm{.max_norm = 1}};
  // [trainer]

  // [range]
  for (const auto& step : trainer.steps(batches, 20)) {
    if (step.rank == 0 && step.step % 10 == 0) std::printf("step %d: loss %.3f\n", static_cast<int>(step.step), step.loss);
  }
  // [range]

  // [step]
  for (int i = 0; i < 10; ++i) {
    const hetero::step_report step = trainer.step(batches);
    hetero::report(step);
  }
  // [step]

  // [own_batch]
  trainer.prepare(batches);  // measures and plans; nothing when there is a plan for this batch size already
  const auto ids = batches.sample_ids(trainer.position());
  const auto mine = trainer.share(ids.size());
  const hetero::batch local = batches.load(std::span{ids}.subspan(mine.begin, mine.count()));
  trainer.step(local.view());
  // [own_batch]

  // [parts]
  trainer.forward_backward(local.view());      // gradients of this rank's sum of losses; sums start bucket by bucket
  trainer.reduce();                            // loss, weight and gradients are now those of all ranks
  const double norm = trainer.gradient_norm();  // of the sum, each element counted once over all ranks
  trainer.update();                            // the one division, then the optimizer
  // [parts]
  hetero::require(norm > 0, hetero::errc::invalid_argument, "a gradient without length");

  // [evaluate]
  const double loss = trainer.evaluate(validation.windows(16));
  trainer.save("model.safetensors");
  // [evaluate]
  hetero::require(loss > 0 && loss < 5, hetero::errc::invalid_argument, "an untrained model predicts better");

  // [resume]
  hetero::trainer later{model, here.world, here.device, hetero::adamw{.learning_rate = 3e-3, .weight_decay = 0.1}};
  hetero::resume(later, "model.safetensors");
  // [resume]
  hetero::require(later.position() == trainer.position(), hetero::errc::mismatch, "resumed elsewhere");
  hetero::require(later.evaluate(validation.windows(16)) == loss, hetero::errc::mismatch, "resumed another model");

  // [sample]
  if (here.world.rank() == hetero::rank_id{0}) std::printf("%s\n", continue_text(trainer, training, "The ").c_str());
  // [sample]
}

}  // namespace

int main() {
  write_input();
  // [main]
  const hetero::text_corpus corpus{"input.txt"};
  hetero::run_pool(hetero::default_pool(), [&](hetero::pool_member& here) {
    train(here, corpus);  // the rest of this page
  });
  // [main]
}
