// SPDX-License-Identifier: Apache-2.0
// The fused AdamW update of GPT-2 124M's parameters, tensor by tensor as the trainer launches it, against PyTorch's
// optimizer.step() at the same thread count and against what the memory of this machine can do.
//
// An update reads parameter, gradient and two moments and writes three of them: 28 bytes a parameter, far more than any
// cache holds, so memory is the bound. Ours, the peers and the ceilings take turns within each round.

#include "support/ceilings.hpp"
#include "support/figure.hpp"
#include "support/torch_peer.hpp"

#include <hetero/device/registry.hpp>
#include <hetero/device/stream.hpp>
#include <hetero/model/gpt.hpp>
#include <hetero/optim/adamw.hpp>
#include <hetero/trainer/parameter_store.hpp>

#include <limits>

namespace {

namespace bench = hetero::bench;

/// The parameters, gradients and moments of a GPT-2, and the update of all of them.
class update_of_gpt2 {
 public:
  explicit update_of_gpt2(std::uint32_t threads)
      : stream_{hetero::make_device({.index_or_threads = threads})}, store_{stream_.device(),
                                                                            stream_.id(),
                                                                            hetero::layout_of(hetero::gpt{{}}),
                                                                            hetero::dtype::f32,
                                                                            1,
                                                                            optimizer_.state_names()} {
    stream_.launch(hetero::op::fill{store_.grads(), 0.01});
  }

  [[nodiscard]] double parameters() const {
    double sum = 0;
    for (const auto& entry : store_.layout().entries) sum += static_cast<double>(entry.count());
    return sum;
  }

  /// Seconds of the fastest of `repeats` updates.
  [[nodiscard]] double seconds(int repeats) {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < repeats; ++i) {
      const auto start = std::chrono::steady_clock::now();
      ++step_;
      for (const auto& entry : store_.layout().entries) {
        const hetero::tensor_view state[] = {store_.state(0).slice(0, entry.offset, entry.end()),
                                             store_.state(1).slice(0, entry.offset, entry.end())};
        stream_.launch(optimizer_.update({.param = store_.params().slice(0, entry.offset, entry.end()),
                                          .grad = store_.grads().slice(0, entry.offset, entry.end()),
                                          .state = state,
                                          .grad_scale = 1.0 / 256,
                                          .learning_rate = optimizer_.learning_rate,
                                          .decays = entry.spec.decays,
                                          .step = step_}));
      }
      stream_.synchronize();
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
  }

 private:
  hetero::adamw optimizer_{.learning_rate = 1e-3, .beta2 = 0.95, .weight_decay = 0.1};
  hetero::stream stream_;
  hetero::parameter_store store_;
  std::uint64_t step_ = 0;
};

struct peer {
  std::string kind;
  bench::step_server server;
  int major;
};

struct measurement {
  std::vector<double> ours;                 ///< seconds of the fastest update of a round
  std::vector<std::vector<double>> theirs;  ///< of each peer, likewise
  std::vector<double> add_gb_s, memcpy_gb_s, loop_gb_s;
};

void compare(bench::figures& out, std::uint32_t threads) {
  const bool quick = out.settings().quick;
  const int rounds = quick ? 3 : 5, repeats = quick ? 2 : 4;
  const std::string prefix = fmt::format("adamw/{}_thread{}", threads, threads == 1 ? "" : "s");
  const std::string script = std::string{HETERO_BENCH_SOURCE_DIR} + "/benchmarks/peers/torch_adamw.py";

  std::vector<peer> peers;
  std::string missing;
  const auto& given = out.settings().peers;
  for (const auto& interpreter : given.empty() ? bench::default_interpreters() : given)
    for (const std::string kind : {"default", "foreach", "fused"}) try {
        bench::step_server server{
            {interpreter, "-B", script, "--serve", "--threads", std::to_string(threads), "--optimizer", kind}};
        const std::string version = server.ready().at("peer").get<std::string>();
        peers.push_back({kind, std::move(server), std::atoi(version.c_str() + version.find_first_of("0123456789"))});
        // Each holds 2 GB, and of a newer torch the fused kind alone is of interest.
        if (peers.back().major >= 2 && kind != "fused") peers.pop_back();
      } catch (const std::exception& reason) {
        missing += "; " + interpreter + ' ' + kind + ": " + reason.what();
      }

  update_of_gpt2 ours{threads};
  const double bytes = 28 * ours.parameters();
  const auto count = static_cast<std::size_t>(ours.parameters());
  const auto measured = out.quietly([&] {
    measurement m;
    m.theirs.resize(peers.size());
    (void)ours.seconds(1);
    for (int round = 0; round < rounds; ++round) {
      constexpr int passes = 3;
      m.add_gb_s.push_back(bench::add_stream_gb_s(threads, std::size_t{1} << 30U, passes));
      m.memcpy_gb_s.push_back(bench::memcpy_gb_s(threads, std::size_t{1} << 30U, passes));
      m.loop_gb_s.push_back(bench::adamw_loop_gb_s(threads, count, passes));
      m.ours.push_back(ours.seconds(repeats));
      for (std::size_t i = 0; i < peers.size(); ++i) {
        const auto seconds = peers[i].server.steps(repeats);
        m.theirs[i].push_back(*std::min_element(seconds.begin(), seconds.end()));
      }
    }
    return m;
  });

  std::vector<double> gb_s, share;
  for (std::size_t i = 0; i < measured.ours.size(); ++i) {
    gb_s.push_back(bytes / measured.ours[i] / 1e9);
    share.push_back(gb_s[i] / std::max({measured.add_gb_s[i], measured.memcpy_gb_s[i], measured.loop_gb_s[i]}));
  }
  out.add(bench::median_figure(prefix + "/bandwidth", gb_s, "GB/s"));
  auto bandwidth_share = bench::median_figure(prefix + "/bandwidth_share", share, "ratio");
  bandwidth_share.goal = 0.8;
  bandwidth_share.note = fmt::format(
      "of the best ceiling of each round; medians: add stream {:.1f}, memcpy {:.1f}, plain fused loop {:.1f} GB/s",
      bench::median_of(measured.add_gb_s), bench::median_of(measured.memcpy_gb_s),
      bench::median_of(measured.loop_gb_s));
  out.add(bandwidth_share);

  bool has_default = false;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const bool first_torch = peers[i].major < 2;
    auto speedup =
        bench::median_figure(prefix + "/speedup_over_torch_" + (first_torch ? "1_" : "newest_") + peers[i].kind,
                             bench::paired_ratios(measured.theirs[i], measured.ours), "x");
    // The goal is on AdamW as that version ships it; its foreach kind, which one has to ask for, stands beside it.
    if (first_torch && peers[i].kind == "default") {
      speedup.goal = 5;
      has_default = true;
    }
    speedup.peer = peers[i].server.label();
    speedup.note = fmt::format("its median {:.4g} s, ours {:.4g} s", bench::median_of(measured.theirs[i]),
                               bench::median_of(measured.ours));
    out.add(speedup);
  }
  if (!has_default)
    out.add_missing(prefix + "/speedup_over_torch_1_default", "x", 5,
                    "no PyTorch 1 among the interpreters; set HETERO_PEER_PYTHON or --peer" + missing);
}

}  // namespace

int main(int argc, char** argv) {
  bench::options settings;
  CLI::App app{"Fused AdamW on 124 M parameters against PyTorch and against this machine's memory."};
  bench::add_options(app, settings);
  CLI11_PARSE(app, argc, argv);
  try {
    bench::figures out{settings};
    for (const std::uint32_t threads : {1U, 2U}) compare(out, threads);
    return out.finish();
  } catch (const std::exception& reason) {
    fmt::print(stderr, "adamw: {}\n", reason.what());
    return 1;
  }
}
