// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <string>

#include <hetero/trainer.hpp>

namespace {

std::string some_text() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The quick brown fox jumps over the lazy dog, " + std::to_string(i) + " times.\n";
  return text;
}

}  // namespace

// [join]
int main() try {
  hetero::world world = hetero::join({.settings = "my program, batch 16", .timeout = std::chrono::seconds{60}});
  world.set_timeout(std::chrono::seconds{10});

  // [join]
  const auto corpus = hetero::text_corpus::from_string(some_text());
  const hetero::gpt model{{.layers = 1, .heads = 2, .width = 16, .context = 16, .vocabulary = corpus.vocabulary()}};
  // [train]
  auto device = hetero::make_device(hetero::parse_pool("cpu:1"), 0);
  hetero::trainer trainer{model, world, device, hetero::adamw{.learning_rate = 1e-3}};
  for (const auto& step : trainer.steps(corpus.batches({.global_batch = 16}), 20)) hetero::report(step);
  // [train]
  // [catch]
} catch (const hetero::error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return e.code() == hetero::errc::peer_lost ? 75 : 1;  // 75: worth another try
}
// [catch]
