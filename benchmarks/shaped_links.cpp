// SPDX-License-Identifier: Apache-2.0
// all_reduce over links of unequal speed, between network namespaces whose ports are shaped: how close it comes to the
// bound, how much of it hides behind a computation, and what islands gain from the hierarchical communicator.
//
// B_i is the goodput of raw streams into port i, measured in the same run. No all_reduce of S bytes over n >= 3 ranks
// is faster than T* = max(S / min B, 2(n-1) S / sum B); a ring takes 2(n-1)/n S / min B. Links are emulated (tbf), the
// machine and its network stack are real.

#include "support/raw_stream.hpp"
#include "support/sides.hpp"

#include "../tests/support/network_namespaces.hpp"
#include "support/rank_server.hpp"

#include <hetero/comm/hierarchical.hpp>
#include <hetero/comm/island_model.hpp>
#include <hetero/comm/join.hpp>
#include <hetero/comm/probe.hpp>

#include <cmath>
#include <numeric>

namespace {

namespace bench = hetero::bench;
using hetero::test::network_namespaces;

/// All namespaces lie on one machine, so a rank must not find a faster way than its port.
const std::vector<std::string> tcp_alone{"HETERO_SHARED_MEMORY=0"};

struct settings {
  std::vector<std::string> only;  ///< unequal, overlap, islands
  std::size_t rounds = 0;
  std::size_t size_mib = 0;
  [[nodiscard]] bool wants(const std::string& section) const {
    return only.empty() || std::find(only.begin(), only.end(), section) != only.end();
  }
};

/// One of our processes. Variants: flat (a ring), tuned (as a probe of this network suggests), hierarchical (by the islands of `--islands`), compute:MS (sleeps so long) and
/// overlap:MS (an all_reduce while it sleeps so long).
int run_rank(const std::string& control, const std::vector<int>& islands) {
  hetero::world world = hetero::join({.settings = "shaped links benchmark", .allow_unauthenticated = true});
  world.set_timeout(std::chrono::minutes{2});
  std::optional<decltype(hetero::make_hierarchical(world, 0))> tiers;
  const auto rank = static_cast<unsigned>(world.rank());
  return bench::serve_rank(
      control, rank, world.world_size(), "hetero",
      [&](float* data, std::size_t count, const std::string& variant) -> std::function<void()> {
        const hetero::tensor_view view{std::span{data, count}};
        if (variant == "hierarchical") {
          if (!tiers) tiers.emplace(hetero::make_hierarchical(world, islands.at(rank)));
          return [&, view] { tiers->all_reduce(view, hetero::reduce_op::sum); };
        }
        if (const auto colon = variant.find(':'); colon != std::string::npos) {
          const std::chrono::duration<double, std::milli> work{std::stod(variant.substr(colon + 1))};
          const bool reduces = variant.starts_with("overlap");
          return [&world, view, work, reduces] {
            hetero::pending sum;
            if (reduces) sum = world.all_reduce_async(view, hetero::reduce_op::sum);
            std::this_thread::sleep_for(work);
            sum.wait();
          };
        }
        if (variant == "tuned") {
          world.tune(hetero::probe(world, {.bandwidth = true}).suggest());
        } else {
          world.tune({.all_reduce = {{.algorithm = hetero::all_reduce_algorithm::ring}}});
        }
        return [&world, view] { world.all_reduce(view, hetero::reduce_op::sum); };
      });
}

std::vector<bench::place> places_of(const network_namespaces& net, const std::vector<std::size_t>& ports) {
  std::vector<bench::place> result;
  for (const std::size_t port : ports) result.push_back({net.exec(port), net.address(port)});
  return result;
}

/// Goodput into each port while all others send to it, in bytes per second.
std::vector<double> measure_ports(const network_namespaces& net, bool quick) {
  std::vector<double> result;
  for (std::size_t port = 0; port < net.size(); ++port) {
    std::vector<std::vector<std::string>> from;
    for (std::size_t other = 0; other < net.size(); ++other)
      if (other != port) from.push_back(net.exec(other));
    result.push_back(bench::goodput(bench::own_program(), net.exec(port), net.address(port), from, quick ? 0.5 : 1.5));
  }
  return result;
}

std::string megabits(const std::vector<double>& bytes_per_second) {
  std::string text;
  for (const double each : bytes_per_second) text += fmt::format("{}{:.1f}", text.empty() ? "" : "/", each * 8 / 1e6);
  return text + " Mbit/s";
}

std::vector<double> divided(std::vector<double> samples, double by) {
  for (double& each : samples) each /= by;
  return samples;
}

void measure_unequal(bench::figures& out, const settings& s, const std::string& name,
                     const std::vector<double>& rates) {
  const bool quick = out.settings().quick;
  const std::size_t bytes = (s.size_mib > 0 ? s.size_mib : quick ? 4 : 16) << 20U;
  const network_namespaces net{rates};
  std::vector<std::size_t> ports(rates.size());
  std::iota(ports.begin(), ports.end(), std::size_t{0});
  const auto where = places_of(net, ports);
  const auto n = static_cast<unsigned>(rates.size());
  const bool equal = rates.front() == rates.back();
  std::vector<bench::side> sides{{bench::our_group("ours", n, tcp_alone, {"--rank"}, where), "tuned"}};
  std::string missing;
  try {
    sides.push_back(bench::gloo_side(n, "ring", where));
  } catch (const std::exception& reason) {
    missing = reason.what();
  }
  struct result {
    std::vector<double> ports;
    bench::contest turns;
  };
  const auto measured = out.quietly([&] {
    result r{measure_ports(net, quick),
             {bytes / sizeof(float),
              s.rounds > 0 ? s.rounds
              : quick      ? 3U
                           : 7U,
              1e-3, 16384}};
    r.turns.run(sides);
    return r;
  });
  const auto& b = measured.ports;
  const auto size = static_cast<double>(bytes);
  const double least = *std::min_element(b.begin(), b.end()), sum = std::accumulate(b.begin(), b.end(), 0.0);
  const double bound = std::max(size / least, 2.0 * (n - 1) * size / sum), ring = 2.0 * (n - 1) / n * size / least;
  const std::string prefix = "shaped_links/" + name;
  const std::string note = fmt::format("links emulated; {} MiB; ports {}; T* {:.3f} s, ring bound {:.3f} s",
                                       bytes >> 20U, megabits(b), bound, ring);
  const auto add = [&](const std::string& what, const bench::side& of, double over, std::optional<double> goal) {
    auto entry = bench::median_figure(prefix + what, divided(measured.turns.seconds(of), over), "ratio");
    entry.goal = goal;
    entry.better = bench::direction::at_most;
    entry.note = note;
    out.add(entry);
  };
  if (equal)
    add("/over_ring_bound", sides[0], ring, 1.04);
  else
    add("/over_bound", sides[0], bound, 1.10);
  if (measured.turns.measured(sides).size() == sides.size() && sides.size() > 1)
    add(equal ? "/gloo_ring_over_ring_bound" : "/gloo_ring_over_bound", sides[1], equal ? ring : bound, std::nullopt);
  else
    out.add_missing(prefix + "/gloo_ring_over_bound", "ratio", std::nullopt, missing.empty() ? "it failed" : missing);
}

void measure_overlap(bench::figures& out, const settings& s) {
  const bool quick = out.settings().quick;
  const std::size_t bytes = (s.size_mib > 0 ? s.size_mib : quick ? 2 : 8) << 20U, count = bytes / sizeof(float);
  const network_namespaces net{{200, 200, 200, 200}};
  const auto ours = bench::our_group("ours", 4, tcp_alone, {"--rank"}, places_of(net, {0, 1, 2, 3}));
  struct result {
    double alone_s = 0, compute_s = 0;
    std::vector<double> visible;
  };
  const auto measured = out.quietly([&] {
    result r;
    std::vector<double> alone;
    for (int i = 0; i < 3; ++i) alone.push_back(ours->run(count, 1, 16384, "flat"));
    r.compute_s = 1.5 * bench::median_of(alone);
    const std::string ms = fmt::format("{:.0f}", 1e3 * r.compute_s);
    const std::size_t rounds = s.rounds > 0 ? s.rounds : quick ? 3 : 7;
    alone.clear();
    for (std::size_t round = 0; round < rounds; ++round) {
      const double without = ours->run(count, 1, 0, "compute:" + ms);
      const double with = ours->run(count, 1, 0, "overlap:" + ms);
      alone.push_back(ours->run(count, 1, 16384, "flat"));
      r.visible.push_back((with - without) / alone.back());
    }
    r.alone_s = bench::median_of(alone);
    return r;
  });
  auto visible = bench::median_figure("shaped_links/overlap/visible_share_of_all_reduce", measured.visible, "ratio");
  visible.goal = 0.10;
  visible.better = bench::direction::at_most;
  visible.note = fmt::format("links emulated, 4 x 200 Mbit/s; {} MiB take {:.3f} s alone; computation sleeps {:.3f} s",
                             bytes >> 20U, measured.alone_s, measured.compute_s);
  out.add(visible);
}

void measure_islands(bench::figures& out, const settings& s) {
  const bool quick = out.settings().quick;
  const std::size_t bytes = (s.size_mib > 0 ? s.size_mib : quick ? 4 : 8) << 20U;
  const network_namespaces net{{100, 100}};
  const std::vector<std::uint32_t> good{0, 0, 0, 1, 1, 1}, bad{0, 1, 0, 1, 0, 1};
  const auto start = [&](const std::string& name, const std::vector<std::uint32_t>& island_of) {
    std::string islands;
    for (const auto each : island_of) islands += (islands.empty() ? "" : ",") + std::to_string(each);
    return bench::our_group(name, 6, tcp_alone, {"--rank", "--islands", islands},
                            places_of(net, {island_of.begin(), island_of.end()}));
  };
  const auto first = start("good order", good), second = start("bad order", bad);
  const bench::side hierarchical{first, "hierarchical"}, best{first, "flat"}, worst{second, "flat"};
  struct result {
    double goodput = 0;
    bench::contest turns;
  };
  const auto measured = out.quietly([&] {
    const double there = bench::goodput(bench::own_program(), net.exec(1), net.address(1), {net.exec(0)}, 1);
    const double back = bench::goodput(bench::own_program(), net.exec(0), net.address(0), {net.exec(1)}, 1);
    result r{std::min(there, back), {bytes / sizeof(float), s.rounds > 0 ? s.rounds : quick ? 3U : 7U, 1e-3, 16384}};
    r.turns.run({hierarchical, best, worst});
    return r;
  });
  const auto size = static_cast<double>(bytes);
  const hetero::island_links links{.between_bytes_per_second = measured.goodput};
  const double model = hetero::hierarchical_seconds(size, 2, 3, links);
  const auto& mine = measured.turns.seconds(hierarchical);
  const auto compare = [&](const std::string& name, const bench::side& flat, std::span<const std::uint32_t> order,
                           double goal) {
    const double predicted = hetero::flat_ring_seconds(size, order, links) / model;
    auto gain = bench::median_figure("shaped_links/islands/gain_over_" + name,
                                     bench::paired_ratios(measured.turns.seconds(flat), mine), "x");
    gain.goal = goal;
    gain.note = fmt::format("link emulated, {:.1f} Mbit/s; {} MiB: {:.3f} s, flat {:.3f} s; the model says {:.2f} x",
                            measured.goodput * 8 / 1e6, bytes >> 20U, bench::median_of(mine),
                            bench::median_of(measured.turns.seconds(flat)), predicted);
    out.add(gain);
    bench::figure error{.name = "shaped_links/islands/model_error_" + name,
                        .value = std::abs(predicted / *gain.value - 1),
                        .unit = "ratio",
                        .goal = 0.10,
                        .better = bench::direction::at_most};
    out.add(error);
  };
  compare("best_ring", best, good, 1.5);
  compare("worst_ring", worst, bad, 4.0);
}

}  // namespace

int main(int argc, char** argv) {
  bench::options common;
  settings s;
  bool rank = false;
  std::string control, send;
  std::vector<int> islands;
  std::size_t receive = 0;
  double seconds = 1;
  CLI::App app{"all_reduce over shaped links between network namespaces: needs root, `ip` and tbf."};
  bench::add_options(app, common);
  app.add_option("--only", s.only, "Sections: unequal, overlap, islands (default all)")
      ->delimiter(',')
      ->check(CLI::IsMember({"unequal", "overlap", "islands"}));
  app.add_option("--rounds", s.rounds, "Rounds (default 7, quick 3)");
  app.add_option("--size-mib", s.size_mib, "MiB of an all_reduce (default 8 or 16, quick 2 or 4)");
  app.add_flag("--rank", rank, "Be one of our processes")->group("");
  app.add_option("--islands", islands, "As a rank: the island of every rank")->delimiter(',')->group("");
  app.add_option("--control", control, "As a rank: socket of the benchmark")->group("");
  app.add_option("--receive", receive, "Be the receiver of so many raw streams")->group("");
  app.add_option("--seconds", seconds, "As the receiver: how long")->group("");
  app.add_option("--send", send, "Be a raw stream to this address")->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    if (rank) return run_rank(control, islands);
    if (receive > 0) return bench::receive_streams(receive, seconds);
    if (!send.empty()) return bench::send_stream(send);
    bench::figures out{common};
    if (const auto why = network_namespaces::unavailable()) {
      for (const char* name :
           {"one_slow_port/over_bound", "four_speeds/over_bound", "equal_ports/over_ring_bound",
            "overlap/visible_share_of_all_reduce", "islands/gain_over_best_ring", "islands/gain_over_worst_ring"})
        out.add_missing(std::string{"shaped_links/"} + name, "ratio", std::nullopt, *why);
      return out.finish();
    }
    if (s.wants("unequal")) {
      measure_unequal(out, s, "one_slow_port", {400, 400, 400, 100});
      measure_unequal(out, s, "four_speeds", {400, 300, 200, 100});
      measure_unequal(out, s, "equal_ports", {200, 200, 200, 200});
    }
    if (s.wants("overlap")) measure_overlap(out, s);
    if (s.wants("islands")) measure_islands(out, s);
    return out.finish();
  } catch (const std::exception& reason) {
    fmt::print(stderr, "shaped_links: {}\n", reason.what());
    return 1;
  }
}
