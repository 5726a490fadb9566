// SPDX-License-Identifier: Apache-2.0
// What training reaches: nanoGPT's CPU setting on Shakespeare's text, from one device and from an uneven pool of three
// ranks, and a small MLP on MNIST. Losses, not clocks, so runs share the cores.
//
// The text: 4 layers, 4 heads, width 128, context 64, batch 12, 2000 steps without dropout; AdamW at 1e-3 after 100
// steps of warm-up, cosine to 1e-4, beta2 0.99, weight decay 0.1, clipping at 1. The loss is over the whole last tenth
// of the text, cut into consecutive windows. The pool's ranks are threads with shares 5:3:1 of every batch; they are
// not slowed, because an emulated slow device only sleeps, and shares alone decide what is computed.

#include "support/figure.hpp"

#include <hetero/data/idx_images.hpp>
#include <hetero/trainer.hpp>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

namespace {

namespace bench = hetero::bench;

/// A folder of the data this benchmark reads: under HETERO_TEST_DATA, or beside the source.
std::string data_folder(const std::string& name) {
  const char* const given = std::getenv("HETERO_TEST_DATA");
  const std::filesystem::path root =
      given != nullptr ? given : std::filesystem::path{HETERO_BENCH_SOURCE_DIR} / ".." / "shared" / "data";
  return (root / name).lexically_normal().string();
}

struct text_run {
  double loss = 0;
  std::string shares;
};

/// Trains on one rank of `world` and returns the loss over the last tenth; all ranks return the same.
template <class Partitioner>
text_run train_text(hetero::world& world, const hetero::text_corpus& corpus, std::uint64_t seed, std::uint64_t steps,
                    Partitioner partitioner) {
  const auto [training, validation] = corpus.split(0.9);
  const hetero::gpt model{{.layers = 4, .heads = 4, .width = 128, .context = 64, .vocabulary = corpus.vocabulary()}};
  hetero::trainer trainer{model,
                          world,
                          hetero::make_device({}),
                          hetero::trainer_options{.seed = seed, .measure = false, .rebalance = false},
                          partitioner,
                          hetero::adamw{.learning_rate = 1e-3, .beta2 = 0.99, .weight_decay = 0.1},
                          hetero::cosine_rate{.warm_up_steps = 100, .total_steps = std::max<std::uint64_t>(steps, 101)},
                          hetero::clip_norm{.max_norm = 1}};
  text_run result;
  for (const auto& step : trainer.steps(training.batches({.global_batch = 12, .context = 64, .seed = seed}), steps)) {
    if (step.step > 1) continue;
    for (const auto& rank : step.ranks)
      result.shares += (result.shares.empty() ? "" : ":") + std::to_string(rank.share);
  }
  result.loss = trainer.evaluate(validation.windows(64));
  return result;
}

/// Runs `jobs` on as many threads as there are cores.
void run_all(std::vector<std::function<void()>> jobs) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::min<std::size_t>(bench::usable_cores(), jobs.size()); ++i)
    threads.emplace_back([&] {
      for (std::size_t job = next++; job < jobs.size(); job = next++) try {
          jobs[job]();
        } catch (...) {
          const std::lock_guard lock{mutex};
          failure = std::current_exception();
        }
    });
  for (auto& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

void learn_text(bench::figures& out) {
  constexpr double goal = 1.90;
  const std::string path = data_folder("tinyshakespeare") + "/input.txt";
  if (!std::filesystem::exists(path)) {
    const std::string why = "no " + path + "; set HETERO_TEST_DATA to the folder that holds tinyshakespeare/input.txt";
    for (const char* name : {"one_device", "uneven_pool"}) {
      bench::figure missing{.name = std::string{"learning/nanogpt/"} + name, .value = {}, .unit = "nats", .goal = goal};
      missing.better = bench::direction::at_most;
      missing.note = why;
      out.add(missing);
    }
    return;
  }
  const hetero::text_corpus corpus{path};
  const std::uint64_t steps = out.settings().quick ? 200 : 2000;
  const std::vector<std::uint64_t> seeds{1, 2, 3};
  std::vector<text_run> alone(seeds.size()), pooled(seeds.size());
  std::vector<std::function<void()>> jobs;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    jobs.push_back([&, i] {
      hetero::world world = hetero::self();
      alone[i] = train_text(world, corpus, seeds[i], steps, hetero::balanced_partitioner{});
    });
    jobs.push_back([&, i] {
      hetero::run_ranks(3, [&](hetero::world& world, hetero::rank_id rank) {
        const auto run = train_text(world, corpus, seeds[i], steps, hetero::ratio_partitioner{.ratio = {5, 3, 1}});
        if (rank == hetero::rank_id{0}) pooled[i] = run;
      });
    });
  }
  run_all(std::move(jobs));

  const auto add = [&](const std::string& name, const std::vector<text_run>& runs, const std::string& note) {
    std::vector<double> losses;
    for (const auto& run : runs) losses.push_back(run.loss);
    auto loss = bench::median_figure("learning/nanogpt/" + name, losses, "nats");
    if (!out.settings().quick) loss.goal = goal;  // a shorter run says nothing about it
    loss.better = bench::direction::at_most;
    loss.note = fmt::format("{} steps, {} seeds, {}", steps, seeds.size(), note);
    out.add(loss);
  };
  add("one_device", alone, "cpu:1");
  add("uneven_pool", pooled, "3 ranks as threads, shares " + pooled.front().shares);
}

/// The MLP's settings were chosen on the last 10,000 training images, held out; the test images are read once, below.
void learn_images(bench::figures& out) {
  constexpr double goal = 0.970;
  const std::string folder = data_folder("mnist");
  if (!std::filesystem::exists(folder)) {
    out.add_missing("learning/mnist/accuracy", "ratio", goal,
                    "no " + folder + "; set HETERO_TEST_DATA to the folder that holds mnist/");
    return;
  }
  using part = hetero::idx_images::part;
  const hetero::image_options pixels{.mean = 0.1307F, .deviation = 0.3081F};
  const auto training = hetero::idx_images::from_folder(folder, part::train, pixels);
  const auto test = hetero::idx_images::from_folder(folder, part::test, pixels);
  const std::uint64_t epochs = out.settings().quick ? 1 : 5;
  std::vector<double> accuracies(3);
  std::vector<std::function<void()>> jobs;
  for (std::size_t seed = 0; seed < accuracies.size(); ++seed)
    jobs.push_back([&, seed] {
      const hetero::batches data{training, {.global_batch = 64, .seed = seed + 1}};
      const std::uint64_t steps = epochs * data.steps_per_epoch();
      hetero::world world = hetero::self();
      hetero::trainer trainer{hetero::mlp{{.widths = {784, 128, 10}}},
                              world,
                              hetero::make_device({}),
                              hetero::trainer_options{.seed = seed + 1, .measure = false, .rebalance = false},
                              hetero::adamw{.learning_rate = 2e-3, .weight_decay = 0.1},
                              hetero::cosine_rate{.warm_up_steps = 100, .total_steps = steps}};
      for (const auto& step : trainer.steps(data, steps)) static_cast<void>(step);
      accuracies[seed] = trainer.accuracy(test);
    });
  run_all(std::move(jobs));
  auto accuracy = bench::median_figure("learning/mnist/accuracy", accuracies, "ratio");
  if (!out.settings().quick) accuracy.goal = goal;
  accuracy.note = fmt::format("MLP 784-128-10, {} epoch(s), {} seeds", epochs, accuracies.size());
  out.add(accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  bench::options settings;
  CLI::App app{"Loss of a small GPT from one device and from an uneven pool, and accuracy of an MLP on MNIST."};
  bench::add_options(app, settings);
  CLI11_PARSE(app, argc, argv);
  try {
    bench::figures out{settings};
    learn_images(out);
    learn_text(out);
    return out.finish();
  } catch (const std::exception& reason) {
    fmt::print(stderr, "learning: {}\n", reason.what());
    return 1;
  }
}
