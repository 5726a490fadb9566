// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT on text, on every device of a pool at once, each with the share it can carry.
//
//   train_gpt                                    the library's own headers and docs, all devices found
//   train_gpt --pool cpu:1,cpu:1@0.33            two devices, the second emulated at a third of its speed
//   RANK=0 WORLD_SIZE=2 train_gpt & RANK=1 WORLD_SIZE=2 train_gpt
//   mpirun -n 3 --oversubscribe train_gpt

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <hetero/comm/probe.hpp>
#include <hetero/model/sampling.hpp>
#include <hetero/report/metrics_json.hpp>
#include <hetero/report/summary.hpp>
#include <hetero/trainer.hpp>
#include <hetero/trainer/resume_json.hpp>

namespace {

struct settings {
  std::vector<std::string> text;
  std::string pool;
  bool bytes = false;
  std::size_t layers = 4;
  std::size_t heads = 4;
  std::size_t width = 128;
  std::size_t context = 64;
  double dropout = 0;
  std::uint64_t batch = 12;
  std::uint32_t micro_batches = 1;
  std::uint64_t steps = 600;
  std::uint64_t eval_every = 200;
  double learning_rate = 1e-3;
  std::uint64_t warm_up = 100;
  double weight_decay = 0.1;
  double clip = 1;
  std::uint64_t seed = 1337;
  std::string save = "gpt.safetensors";
  std::string resume;
  std::string replay;
  std::string metrics;
  bool rebalance = true;
  bool reproducible = false;
  std::size_t sample = 300;
  std::string prompt = "\n";
  double timeout_s = 30;
  bool allow_unauthenticated = false;
  bool verbose = false;
};

/// The library's own headers and documents: a text that every user has.
std::vector<std::string> own_text() {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const char* folder : {"include", "docs"}) {
    const fs::path root = fs::path{HETERO_EXAMPLE_SOURCE_DIR} / folder;
    if (!fs::exists(root)) continue;
    for (const auto& entry : fs::recursive_directory_iterator{root}) {
      const auto extension = entry.path().extension();
      if (entry.is_regular_file() && (extension == ".hpp" || extension == ".md")) files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());  // the order of a folder differs between machines, the text must not
  return files;
}

/// What all processes of a run must have in common, compared when they meet.
std::string agreement(const settings& s) {
  return "batch " + std::to_string(s.batch) + ", steps " + std::to_string(s.steps) + ", eval-every " +
         std::to_string(s.eval_every) + ", learning-rate " + std::to_string(s.learning_rate) + ", warm-up " +
         std::to_string(s.warm_up) + ", seed " + std::to_string(s.seed) + ", rebalance " + (s.rebalance ? "on" : "off") +
         ", resume " + (s.resume.empty() ? "no" : "yes");
}

void parse(CLI::App& app, settings& s, int argc, char** argv) {
  app.add_option("--text", s.text, "UTF-8 text files to learn from (default: the library's own headers and docs)");
  app.add_flag("--bytes", s.bytes, "learn bytes instead of characters; takes any file");
  app.add_option("--pool", s.pool, "devices such as cpu:2 or cpu:1,cpu:1@0.33, where @0.33 emulates a third of the speed "
                                   "(default: all devices found)");
  app.add_option("--layers", s.layers, "transformer blocks")->capture_default_str();
  app.add_option("--heads", s.heads, "attention heads")->capture_default_str();
  app.add_option("--width", s.width, "width of the model, a multiple of the heads")->capture_default_str();
  app.add_option("--context", s.context, "tokens a prediction sees")->capture_default_str();
  app.add_option("--dropout", s.dropout, "probability of dropping an activation")->capture_default_str();
  app.add_option("--batch", s.batch, "samples per step over all devices")->capture_default_str();
  app.add_option("--micro-batches", s.micro_batches, "pieces a device computes its share in, to save memory")
      ->capture_default_str();
  app.add_option("--steps", s.steps, "optimizer steps of the whole run")->capture_default_str();
  app.add_option("--eval-every", s.eval_every, "steps between validations, after each of which the state is saved")
      ->capture_default_str();
  app.add_option("--learning-rate", s.learning_rate, "peak learning rate of AdamW")->capture_default_str();
  app.add_option("--warm-up", s.warm_up, "steps until the peak, then a cosine to a tenth")->capture_default_str();
  app.add_option("--weight-decay", s.weight_decay, "of matrices")->capture_default_str();
  app.add_option("--clip", s.clip, "largest gradient norm, 0 for no limit")->capture_default_str();
  app.add_option("--seed", s.seed, "of parameters, order and dropout")->capture_default_str();
  app.add_option("--save", s.save, "file for parameters and state; empty saves nothing")->capture_default_str();
  app.add_option("--resume", s.resume, "go on from a file that --save wrote");
  app.add_option("--replay", s.replay, "use the shares recorded in this file instead of measuring, to repeat a run bit by bit");
  app.add_option("--metrics", s.metrics, "file for one JSON line per step and a summary");
  app.add_option("--rebalance", s.rebalance, "on: measure devices and move shares; off: declared speeds decide, for good")
      ->capture_default_str()
      ->transform(CLI::CheckedTransformer(std::map<std::string, bool>{{"on", true}, {"off", false}}));
  app.add_flag("--reproducible", s.reproducible, "the same bits for any pool (slow; devices of one thread)");
  app.add_option("--sample", s.sample, "characters of text to write at the end")->capture_default_str();
  app.add_option("--prompt", s.prompt, "what the sampled text starts from")->default_str("a line break");
  app.add_option("--timeout", s.timeout_s, "seconds a rank waits for the others")->capture_default_str();
  app.add_flag("--allow-unauthenticated", s.allow_unauthenticated,
               "let other machines join through MASTER_ADDR, without any protection");
  app.add_flag("--verbose", s.verbose, "measure the links between the ranks first and print them");
  app.parse(argc, argv);
}

/// Samples per second of the job over the sum of what its devices do while they compute.
std::optional<double> pool_efficiency(const hetero::run_summary& summary) {
  double alone = 0;
  for (const auto& rank : summary.ranks()) {
    if (rank.busy > 0) alone += rank.samples_per_second / rank.busy;
  }
  return alone > 0 ? std::optional{summary.samples_per_second() / alone} : std::nullopt;
}

template <class Trainer>
std::string write_text(Trainer& trainer, const hetero::text_corpus& corpus, const settings& s) {
  const std::vector<std::int32_t> prompt = corpus.encode(s.prompt);
  const std::vector<std::uint64_t> ids{0};
  const std::vector<float> weights{1};
  const auto next_logits = [&](std::span<const std::int32_t> window) {
    const hetero::tensor_view input{const_cast<std::int32_t*>(window.data()), hetero::dtype::i32, {1, window.size()}};
    std::vector<float> logits = trainer.predict({.sample_ids = ids, .weights = weights, .inputs = input, .targets = {}});
    return std::vector<float>{logits.end() - static_cast<std::ptrdiff_t>(corpus.vocabulary()), logits.end()};
  };
  return corpus.decode(hetero::generate(next_logits, prompt, s.sample, s.context, {.temperature = 0.8, .seed = s.seed}));
}

void train(hetero::pool_member& member, const settings& s, const hetero::text_corpus& corpus) {
  const bool speaks = member.world.rank() == hetero::rank_id{0};
  hetero::progress progress{{.style = speaks ? hetero::progress_style::automatic : hetero::progress_style::silent}};
  member.world.set_timeout(std::chrono::milliseconds{static_cast<std::int64_t>(s.timeout_s * 1000)});

  if (s.verbose) {
    const hetero::link_report links = hetero::probe(member.world, {.bandwidth = true});
    if (speaks) progress.print(to_string(links));
  }

  const auto [training, validation] = corpus.split(0.9);
  const auto batches = training.batches({.global_batch = s.batch, .context = s.context, .seed = s.seed});
  const auto validation_windows = validation.windows(s.context);
  const hetero::gpt model{{.layers = s.layers,
                           .heads = s.heads,
                           .width = s.width,
                           .context = s.context,
                           .vocabulary = corpus.vocabulary(),
                           .dropout = s.dropout}};

  hetero::trainer_options options{.seed = s.seed,
                                  .mode = s.reproducible ? hetero::numerics::reproducible : hetero::numerics::fast,
                                  .measure = s.rebalance,
                                  .rebalance = s.rebalance,
                                  .declared_speed = member.spec.speed,
                                  .device_name = to_string(member.spec) + (member.spec.speed < 1 ? " (emulated)" : "")};
  if (!s.replay.empty()) {
    options.replay = hetero::read_checkpoint_info(hetero::safetensors_file{s.replay}).shares;
  }
  hetero::trainer trainer{model,
                          member.world,
                          member.device,
                          options,
                          hetero::adamw{.learning_rate = s.learning_rate, .beta2 = 0.99, .weight_decay = s.weight_decay},
                          hetero::cosine_rate{.warm_up_steps = std::min(s.warm_up, s.steps / 2),
                                              .total_steps = std::max<std::uint64_t>(s.steps, 2)},
                          hetero::clip_norm{.max_norm = s.clip},
                          hetero::one_f_one_b_scheduler{.micro_batches = s.micro_batches}};
  if (!s.resume.empty()) hetero::resume(trainer, s.resume);
  trainer.prepare(batches);
  if (speaks) {
    progress.print(model.name() + ": " + std::to_string(model.num_parameters()) + " parameters, " +
                   std::to_string(training.size()) + " tokens to learn from\n" +
                   hetero::plan_table(trainer.current_plan(), trainer.machines()));
  }

  std::optional<hetero::metrics_writer> metrics;
  if (speaks && !s.metrics.empty()) metrics.emplace(s.metrics, hetero::metrics_options{.append = !s.resume.empty()});
  hetero::run_summary summary;
  const std::uint64_t left = s.steps > trainer.position() ? s.steps - trainer.position() : 0;
  for (hetero::step_report step : trainer.steps(batches, left)) {
    const bool last = step.step == s.steps;
    if (last || (s.eval_every > 0 && step.step % s.eval_every == 0)) {
      step.validation_loss = trainer.evaluate(validation_windows);
      if (!s.save.empty()) trainer.save(s.save);
    }
    summary.add(step);
    progress.show(step);
    if (metrics) metrics->write(step);
  }
  progress.finish();
  if (!speaks) return;

  if (summary.steps() == 0) {
    std::printf("%s already has %llu steps; a larger --steps would go on\n", s.resume.c_str(),
                static_cast<unsigned long long>(trainer.position()));
    return;
  }
  if (const auto efficiency = pool_efficiency(summary)) summary.set_pool_efficiency(*efficiency);
  if (metrics) metrics->write(summary);
  std::printf("\n%s", summary.text().c_str());
  if (!s.save.empty()) std::printf("saved %s\n", s.save.c_str());
  if (s.sample > 0) std::printf("\n%s\n", write_text(trainer, corpus, s).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  settings s;
  CLI::App app{"Trains a small GPT on text, on every device of a pool at once, each with the share it can carry."};
  try {
    parse(app, s, argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  }
  try {
    const hetero::device_pool pool = s.pool.empty() ? hetero::default_pool() : hetero::parse_pool(s.pool);
    if (!s.save.empty()) hetero::preflight_output(s.save);
    const auto corpus = hetero::text_corpus::from_files(
        s.text.empty() ? own_text() : s.text,
        {.unit = s.bytes ? hetero::text_unit::bytes : hetero::text_unit::characters});
    hetero::run_pool(
        pool, [&](hetero::pool_member& member) { train(member, s, corpus); },
        {.settings = agreement(s),
         .timeout = std::chrono::milliseconds{static_cast<std::int64_t>(s.timeout_s * 1000)},
         .allow_unauthenticated = s.allow_unauthenticated});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "train_gpt: %s\n", e.what());
    return 1;
  }
  return 0;
}
