// SPDX-License-Identifier: Apache-2.0
// One training step (forward, loss, backward, AdamW) of GPT-2 124M and of nanoGPT's CPU setting against PyTorch, in
// fp32.
//
// Both sides are live processes that take turns, a step of ours, a step of theirs, so that whatever the machine does
// meets both. Both do the same work: equal sizes, random tokens drawn in the step, AdamW with weight decay and without
// clipping. PyTorch runs in the fastest of its modes. One thing differs: nanoGPT's GELU is the erf form and ours the
// tanh form; the peer keeps its own, with which it is the faster one. --profile MODEL prints where our time goes, op by
// op.

#include "support/ceilings.hpp"
#include "support/figure.hpp"
#include "support/op_profile.hpp"
#include "support/random_tokens.hpp"
#include "support/torch_peer.hpp"

#include <hetero/model/profile.hpp>
#include <hetero/trainer.hpp>

#include <iostream>

namespace {

namespace bench = hetero::bench;

struct setting {
  std::string name;
  hetero::gpt_options model;
  std::uint64_t batch;
  std::uint32_t threads;
  int rounds, quick_rounds;
  int steps, untimed;  ///< of one turn; untimed ones bring the caches back that the other process took
  double goal_old, goal_new;
};

const setting settings[] = {
    {"gpt2", {}, 4, 2, 11, 3, 1, 0, 1.8, 1.2},
    {"nanogpt",
     {.layers = 4, .heads = 4, .width = 128, .context = 64, .vocabulary = 65, .bias = false},
     12,
     1,
     21,
     5,
     10,
     3,
     1.3,
     1.3},
};
constexpr std::uint64_t context = 64;

const setting& setting_of(const std::string& name) {
  for (const auto& s : settings)
    if (s.name == name) return s;
  throw std::runtime_error{"no setting '" + name + "'; there are gpt2 and nanogpt"};
}

/// A trainer of one rank, as a user would write it.
template <class Device, class Body> auto with_trainer(const setting& s, Device device, Body&& body) {
  const hetero::gpt model{s.model};
  const bench::random_tokens data{s.batch, context, s.model.vocabulary};
  hetero::world world = hetero::self();
  hetero::trainer trainer{model,
                          world,
                          hetero::any_device{std::move(device)},
                          hetero::trainer_options{.measure = false, .rebalance = false},
                          hetero::adamw{.learning_rate = 1e-3, .beta2 = 0.95, .weight_decay = 0.1},
                          hetero::clip_norm{.max_norm = 0}};
  return body(trainer, data);
}

hetero::any_device cpu(const setting& s) { return hetero::make_device({.index_or_threads = s.threads}); }

/// Floating-point operations of a step: three times the forward pass.
double step_flops(const setting& s) {
  hetero::gpt_options options = s.model;
  options.context = context;
  return 3 * static_cast<double>(s.batch) * hetero::profile_of(hetero::gpt{options}).forward_flops();
}

/// Answers step requests on standard input, in the words of benchmarks/peers/peer.py.
int serve(const setting& s) {
  return with_trainer(s, cpu(s), [&](auto& trainer, const auto& data) {
    for (int i = 0; i < 2; ++i) trainer.step(data);
    const nlohmann::json ready{{"event", "ready"},
                               {"peer", "hetero"},
                               {"optimizer", "fused"},
                               {"threads", s.threads},
                               {"parameters", trainer.get_model().num_parameters()},
                               {"tokens_per_step", s.batch * context},
                               {"peak_resident_bytes", bench::peak_resident_bytes()}};
    std::cout << ready.dump() << std::endl;
    for (std::string word; std::cin >> word && word == "step";) {
      int count = 0;
      std::cin >> count;
      std::vector<double> seconds;
      double loss = 0;
      for (int i = 0; i < count; ++i) {
        const auto start = std::chrono::steady_clock::now();
        loss = trainer.step(data).loss;
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
      const nlohmann::json answer{{"event", "steps"},
                                  {"seconds", seconds},
                                  {"loss", loss},
                                  {"peak_resident_bytes", bench::peak_resident_bytes()}};
      std::cout << answer.dump() << std::endl;
    }
    return 0;
  });
}

int profile(const setting& s, bool quick) {
  const auto ops = std::make_shared<bench::op_profile>();
  const int steps = (quick ? 1 : 4) * (s.name == "gpt2" ? 2 : 30);
  const double step_s =
      with_trainer(s, bench::profiled_device<hetero::any_device>{cpu(s), ops}, [&](auto& trainer, const auto& data) {
        for (int i = 0; i < 2; ++i) trainer.step(data);
        ops->clear();
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < steps; ++i) trainer.step(data);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      });
  const double peak = bench::fma_peak_gflops(s.threads);
  const double stream = bench::add_stream_gb_s(s.threads, std::size_t{1} << 30U, 5);
  fmt::print("{}: {} steps, {} thread(s); FMA peak {:.0f} GFLOP/s, add stream {:.1f} GB/s\n", s.name, steps, s.threads,
             peak, stream);
  ops->print(steps, step_s, peak, stream);
  return 0;
}

struct measurement {
  std::vector<double> ours;                 ///< seconds of a step, one per round
  std::vector<std::vector<double>> theirs;  ///< of each peer
  double peak_gflops = 0;
};

double turn(bench::step_server& server, const setting& s) {
  auto seconds = server.steps(s.untimed + s.steps);
  seconds.erase(seconds.begin(), seconds.begin() + s.untimed);
  return bench::median_of(std::move(seconds));
}

void compare(bench::figures& out, const setting& s) {
  const bool quick = out.settings().quick;
  const std::string script = std::string{HETERO_BENCH_SOURCE_DIR} + "/benchmarks/peers/torch_step.py";
  bench::torch_peers peers =
      bench::start_torch_peers(out.settings(), script, {"--model", s.name, "--threads", std::to_string(s.threads)},
                               {{"--optimizer", "default"},
                                {"--optimizer", "foreach"},
                                {"--optimizer", "fused"},
                                {"--optimizer", "fused", "--compile"}},
                               s.name == "gpt2" ? 1 : 15);
  bench::step_server ours{{"/proc/self/exe", "--serve", s.name}};

  const auto measured = out.quietly([&] {
    measurement m;
    m.theirs.resize(peers.running.size());
    m.peak_gflops = bench::fma_peak_gflops(s.threads);
    for (int round = 0; round < (quick ? s.quick_rounds : s.rounds); ++round) {
      m.ours.push_back(turn(ours, s));
      for (std::size_t i = 0; i < peers.running.size(); ++i) m.theirs[i].push_back(turn(peers.running[i].fastest, s));
    }
    m.peak_gflops = std::max(m.peak_gflops, bench::fma_peak_gflops(s.threads));
    return m;
  });

  const std::string prefix = "training_step/" + s.name;
  const auto per_step = [&](double work) {
    std::vector<double> rates = measured.ours;
    for (double& value : rates) value = work / value;
    return rates;
  };
  out.add(bench::median_figure(prefix + "/tokens_per_second", per_step(static_cast<double>(s.batch * context)),
                               "tokens/s"));
  auto share = bench::median_figure(prefix + "/share_of_fma_peak", per_step(step_flops(s) / measured.peak_gflops / 1e9),
                                    "ratio");
  share.note =
      fmt::format("peak {:.0f} GFLOP/s measured, {:.3g} GFLOP a step", measured.peak_gflops, step_flops(s) / 1e9);
  out.add(share);

  const auto against = [&](const std::string& name, bench::torch_peer* peer, double goal, const std::string& wanted) {
    const bool memory = s.name == "gpt2";
    if (peer == nullptr) {
      out.add_missing(prefix + "/speedup_over_" + name, "x", goal, peers.why_missing(wanted));
      if (memory) out.add_missing(prefix + "/memory_over_" + name, "ratio", 0.80, peers.why_missing(wanted));
      return;
    }
    const auto& seconds = measured.theirs[static_cast<std::size_t>(peer - peers.running.data())];
    auto speedup =
        bench::median_figure(prefix + "/speedup_over_" + name, bench::paired_ratios(seconds, measured.ours), "x");
    speedup.goal = goal;
    speedup.peer = peer->fastest.label();
    speedup.note =
        fmt::format("its median {:.4g} s, ours {:.4g} s", bench::median_of(seconds), bench::median_of(measured.ours));
    out.add(speedup);
    if (!memory) return;
    bench::figure lean{.name = prefix + "/memory_over_" + name,
                       .value = ours.peak_resident_bytes() / peer->least_bytes,
                       .unit = "ratio",
                       .goal = 0.80,
                       .better = bench::direction::at_most,
                       .peer = peer->leanest};
    lean.note = fmt::format("peak resident {:.3f} GB, its {:.3f} GB", ours.peak_resident_bytes() / 1e9,
                            peer->least_bytes / 1e9);
    out.add(lean);
  };
  against("torch_1", peers.of_major(1, 1), s.goal_old, "PyTorch 1");
  against("torch_newest", peers.of_major(2), s.goal_new, "PyTorch 2 or newer");
}

}  // namespace

int main(int argc, char** argv) {
  bench::options settings_given;
  std::string served, profiled, only;
  CLI::App app{"Training steps of GPT-2 124M and nanoGPT's CPU setting against PyTorch, in turns."};
  bench::add_options(app, settings_given);
  const auto models = CLI::IsMember({"gpt2", "nanogpt"});
  app.add_option("--only", only, "Measure one of gpt2, nanogpt")->check(models);
  app.add_option("--profile", profiled, "Print where the time of our step goes, op by op, and end")->check(models);
  app.add_option("--serve", served, "Answer step requests on standard input, as the peers do")
      ->check(models)
      ->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!served.empty()) return serve(setting_of(served));
    if (!profiled.empty()) return profile(setting_of(profiled), settings_given.quick);
    bench::figures out{settings_given};
    for (const auto& s : settings)
      if (only.empty() || only == s.name) compare(out, s);
    return out.finish();
  } catch (const std::exception& reason) {
    fmt::print(stderr, "training_step: {}\n", reason.what());
    return 1;
  }
}
