// SPDX-License-Identifier: Apache-2.0
// Trains a multi-layer perceptron on MNIST or Fashion-MNIST files, on every device of a pool at once.
//
//   train_mnist                                  Fashion-MNIST of Debian's dataset-fashion-mnist
//   train_mnist --data FOLDER --pool cpu:1,cpu:1@0.5

#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <hetero/comm/probe.hpp>
#include <hetero/data/idx_images.hpp>
#include <hetero/report/metrics_json.hpp>
#include <hetero/report/summary.hpp>
#include <hetero/trainer.hpp>
#include <hetero/trainer/resume_json.hpp>

namespace {

struct settings {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string pool;
  std::size_t hidden = 128;
  std::uint64_t batch = 100;
  std::uint64_t epochs = 5;
  double learning_rate = 2e-3;
  std::uint64_t seed = 1337;
  std::string save = "mnist.safetensors";
  std::string resume;
  std::string metrics;
  bool rebalance = true;
  bool verbose = false;
};

void parse(CLI::App& app, settings& s, int argc, char** argv) {
  app.add_option("--data", s.data, "folder with IDX files, plain or gzipped")->capture_default_str();
  app.add_option("--pool", s.pool, "devices such as cpu:2 or cpu:1,cpu:1@0.33 (default: all devices found)");
  app.add_option("--hidden", s.hidden, "width of the hidden layer")->capture_default_str();
  app.add_option("--batch", s.batch, "samples per step over all devices")->capture_default_str();
  app.add_option("--epochs", s.epochs, "passes over the training images")->capture_default_str();
  app.add_option("--learning-rate", s.learning_rate, "peak learning rate of AdamW")->capture_default_str();
  app.add_option("--seed", s.seed, "of parameters and order")->capture_default_str();
  app.add_option("--save", s.save, "file for parameters and state; empty saves nothing")->capture_default_str();
  app.add_option("--resume", s.resume, "go on from a file that --save wrote");
  app.add_option("--metrics", s.metrics, "file for one JSON line per step and a summary");
  app.add_option("--rebalance", s.rebalance, "on: measure devices and move shares; off: declared speeds decide, for good")
      ->capture_default_str()
      ->transform(CLI::CheckedTransformer(std::map<std::string, bool>{{"on", true}, {"off", false}}));
  app.add_flag("--verbose", s.verbose, "measure the links between the ranks first and print them");
  app.parse(argc, argv);
}

void train(hetero::pool_member& member, const settings& s, const hetero::idx_images& training,
           const hetero::idx_images& test) {
  const bool speaks = member.world.rank() == hetero::rank_id{0};
  hetero::progress progress{{.style = speaks ? hetero::progress_style::automatic : hetero::progress_style::silent}};
  if (s.verbose) {
    const hetero::link_report links = hetero::probe(member.world, {.bandwidth = true});
    if (speaks) progress.print(to_string(links));
  }
  const hetero::batches batches{training, {.global_batch = s.batch, .seed = s.seed}};
  const std::uint64_t steps = s.epochs * batches.steps_per_epoch();

  hetero::trainer trainer{
      hetero::mlp{{.widths = {training.height() * training.width(), s.hidden, training.classes()}}},
      member.world,
      member.device,
      hetero::adamw{.learning_rate = s.learning_rate, .weight_decay = 1e-4},
      hetero::cosine_rate{.total_steps = std::max<std::uint64_t>(steps, 2), .final_factor = 0.01},
      hetero::trainer_options{.seed = s.seed,
                              .measure = s.rebalance,
                              .rebalance = s.rebalance,
                              .declared_speed = member.spec.speed,
                              .device_name = to_string(member.spec) + (member.spec.speed < 1 ? " (emulated)" : "")}};
  if (!s.resume.empty()) hetero::resume(trainer, s.resume);
  trainer.prepare(batches);
  if (speaks) progress.print(hetero::plan_table(trainer.current_plan(), trainer.machines()));

  std::optional<hetero::metrics_writer> metrics;
  if (speaks && !s.metrics.empty()) metrics.emplace(s.metrics, hetero::metrics_options{.append = !s.resume.empty()});
  hetero::run_summary summary;
  const std::uint64_t left = steps > trainer.position() ? steps - trainer.position() : 0;
  for (hetero::step_report step : trainer.steps(batches, left)) {
    if (step.step % batches.steps_per_epoch() == 0) {
      step.validation_loss = trainer.evaluate(test);
      const double accuracy = trainer.accuracy(test);
      if (!s.save.empty()) trainer.save(s.save);
      if (speaks) {
        char line[80];
        std::snprintf(line, sizeof line, "epoch %llu: %.2f %% of the test images right",
                      static_cast<unsigned long long>(step.step / batches.steps_per_epoch()), 100 * accuracy);
        progress.print(line);
      }
    }
    summary.add(step);
    progress.show(step);
    if (metrics) metrics->write(step);
  }
  progress.finish();
  if (!speaks || summary.steps() == 0) return;
  if (metrics) metrics->write(summary);
  std::printf("\n%s", summary.text().c_str());
  if (!s.save.empty()) std::printf("saved %s\n", s.save.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  settings s;
  CLI::App app{"Trains a multi-layer perceptron on MNIST or Fashion-MNIST, on every device of a pool at once."};
  try {
    parse(app, s, argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  }
  try {
    const hetero::device_pool pool = s.pool.empty() ? hetero::default_pool() : hetero::parse_pool(s.pool);
    if (!s.save.empty()) hetero::preflight_output(s.save);
    const auto training = hetero::idx_images::from_folder(s.data, hetero::idx_images::part::train);
    const auto test = hetero::idx_images::from_folder(s.data, hetero::idx_images::part::test);
    hetero::run_pool(
        pool, [&](hetero::pool_member& member) { train(member, s, training, test); },
        {.settings = "batch " + std::to_string(s.batch) + ", epochs " + std::to_string(s.epochs)});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "train_mnist: %s\n", e.what());
    return 1;
  }
  return 0;
}
