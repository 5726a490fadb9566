// SPDX-License-Identifier: Apache-2.0
// all_reduce of fp32 among processes of one host against Gloo, Open MPI and PyTorch, over loopback TCP and through
// shared memory, and what share it reaches of raw programs that only move and add the bytes.
//
// Every side is a group of processes that is started once and sleeps while another one works. A round asks each side
// for one window of operations, in turns that rotate; the slowest rank counts. A ratio is taken round by round against
// the peer whose median is lowest; every side checks its sums once per size.

#include "support/raw_all_reduce.hpp"
#include "support/sides.hpp"

#include <hetero/comm/join.hpp>

#include <iostream>

namespace {

namespace bench = hetero::bench;

struct settings {
  std::vector<std::string> only;   ///< tcp, tcp4, shared_memory
  std::vector<std::string> sizes;  ///< such as "64KiB"
  std::vector<std::string> peers;  ///< gloo, mpi, torch, raw
  std::size_t rounds = 0;
  double window_ms = 0;
  std::vector<std::string> raw;

  [[nodiscard]] bool wants(const std::string& section) const {
    return only.empty() || std::find(only.begin(), only.end(), section) != only.end();
  }
  [[nodiscard]] bool has(const std::string& peer) const {
    return peers.empty() || std::find(peers.begin(), peers.end(), peer) != peers.end();
  }
};

/// "64KiB", "64 KiB", "64K" or bytes.
std::size_t bytes_of(const std::string& text) {
  std::size_t end = 0;
  const std::size_t number = std::stoul(text, &end);
  while (end < text.size() && text[end] == ' ') ++end;
  const char unit = end < text.size() ? text[end] : 'B';
  return number << (unit == 'K' ? 10U : unit == 'M' ? 20U : unit == 'G' ? 30U : 0U);
}

std::string name_of(std::size_t bytes) {
  return bytes < (1U << 20U) ? fmt::format("{}_KiB", bytes >> 10U) : fmt::format("{}_MiB", bytes >> 20U);
}

std::vector<std::size_t> sizes_of(const settings& s, std::size_t least) {
  std::vector<std::size_t> result;
  for (const auto& each : s.sizes) result.push_back(bytes_of(each));
  if (result.empty())
    for (std::size_t bytes = least; bytes <= (std::size_t{256} << 20U); bytes *= 4) result.push_back(bytes);
  return result;
}

int run_rank(const std::string& control) {
  hetero::world world = hetero::join({.settings = "collectives benchmark"});
  world.set_timeout(std::chrono::minutes{2});
  return bench::serve_rank(control, static_cast<unsigned>(world.rank()), world.world_size(), "hetero",
                           [&](float* data, std::size_t count, const std::string&) {
                             return [&world, view = hetero::tensor_view{std::span{data, count}}] {
                               world.all_reduce(view, hetero::reduce_op::sum);
                             };
                           });
}

/// Starts the peers that were asked for; says which are missing, and why.
class peers {
 public:
  void add(const std::string& what, auto&& start) {
    try {
      sides_.push_back(start());
    } catch (const std::exception& reason) {
      fmt::print("not compared with {}: {}\n", what, reason.what());
      missing_ += (missing_.empty() ? "" : "; ") + ("without " + what);
    }
  }
  [[nodiscard]] const std::vector<bench::side>& sides() const noexcept { return sides_; }
  [[nodiscard]] const std::string& missing() const noexcept { return missing_; }

 private:
  std::vector<bench::side> sides_;
  std::string missing_;
};

peers tcp_peers(const settings& s, const bench::options& common, unsigned ranks) {
  peers result;
  if (s.has("gloo"))
    for (const char* algorithm : {"ring", "ring_chunked", "halving_doubling"})
      result.add(std::string{"Gloo "} + algorithm, [&] { return bench::gloo_side(ranks, algorithm); });
  if (s.has("mpi"))
    result.add("Open MPI", [&] { return bench::side{bench::mpi_group(ranks, "Open MPI tcp", "tcp,self")}; });
  if (s.has("torch"))
    for (const auto& interpreter : common.peers.empty() ? bench::default_interpreters() : common.peers)
      result.add("PyTorch of " + interpreter, [&] { return bench::side{bench::torch_group(ranks, interpreter)}; });
  return result;
}

std::vector<bench::side> raw_sides(const settings& s) {
  if (!s.has("raw")) return {};
  const std::string port = std::to_string(bench::free_port());
  std::vector<bench::rank_group::command> commands;
  for (const char* rank : {"0", "1"}) commands.push_back({bench::own_program(), "--raw", rank, "--port", port});
  const auto group = std::make_shared<bench::rank_group>("raw", commands, 2);
  std::vector<bench::side> result;
  for (const auto& variant : s.raw) {
    try {
      group->run(1024, 1, 0, variant);
      result.push_back({group, variant});
    } catch (const std::exception& reason) {  // such as a congestion control that this user may not choose
      fmt::print("left out: {}\n", reason.what());
    }
  }
  return result;
}

double goal_of(std::size_t bytes, unsigned ranks) {
  if (ranks > 2) return 1.0;
  if (bytes == 1024 || bytes > (std::size_t{64} << 20U)) return 1.05;
  return bytes >= (64U << 10U) ? 1.10 : 1.0;
}

bench::contest contest_of(const settings& s, const bench::options& common, std::size_t bytes) {
  const std::size_t rounds = s.rounds > 0 ? s.rounds : common.quick ? 7 : 11;
  const double window_ms = s.window_ms > 0 ? s.window_ms : common.quick ? 15 : 60;
  return {bytes / sizeof(float), rounds, window_ms / 1e3};
}

std::vector<bench::side> joined(std::vector<bench::side> a, const std::vector<bench::side>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string compared_with(const bench::side& peer) {
  return peer.name() == peer.group->label() ? peer.name() : peer.name() + " (" + peer.group->label() + ")";
}

std::string rate_text(std::size_t bytes, double seconds) {
  return fmt::format("{:.3g} GB/s", static_cast<double>(bytes) / seconds / 1e9);
}

void measure_tcp(bench::figures& out, const settings& s, unsigned ranks) {
  const bench::side ours{bench::our_group("ours", ranks, {"HETERO_SHARED_MEMORY=0"}, {"--rank"})};
  const peers others = tcp_peers(s, out.settings(), ranks);
  const std::vector<bench::side> ceiling = ranks == 2 ? raw_sides(s) : std::vector<bench::side>{};
  for (const std::size_t bytes : sizes_of(s, ranks == 2 ? 1024 : 65536)) {
    const auto& raw = bytes >= (1U << 20U) ? ceiling : std::vector<bench::side>{};
    const auto all = joined(joined({ours}, others.sides()), raw);
    const auto result = out.quietly([&] {
      auto turns = contest_of(s, out.settings(), bytes);
      turns.run(all);
      return turns;
    });
    const auto& mine = result.seconds(ours);
    const std::string prefix = fmt::format("collectives/tcp/{}_processes/{}", ranks, name_of(bytes));
    const double goal = goal_of(bytes, ranks);
    const auto measured = result.measured(others.sides());
    if (measured.empty()) {
      out.add_missing(prefix + "/speedup", "x", goal, "no peer; ours " + result.medians({ours}));
    } else {
      const auto& best = result.best(measured);
      auto speedup = bench::median_figure(prefix + "/speedup", bench::paired_ratios(result.seconds(best), mine), "x");
      speedup.goal = goal;
      speedup.peer = compared_with(best);
      speedup.note = result.medians(joined({ours}, measured)) + ", " + rate_text(bytes, bench::median_of(mine)) +
                     (others.missing().empty() ? "" : "; " + others.missing());
      out.add(speedup);
    }
    const auto finished = result.measured(raw);
    if (finished.empty()) continue;
    const auto& best = result.best(finished);
    auto share =
        bench::median_figure(prefix + "/share_of_ceiling", bench::paired_ratios(result.seconds(best), mine), "ratio");
    share.goal = 0.9;
    share.note = result.medians(finished);
    out.add(share);
  }
}

void measure_shared_memory(bench::figures& out, const settings& s) {
  const bench::side ours{bench::our_group("ours", 2, {"--unset=HETERO_SHARED_MEMORY"}, {"--rank"})};
  peers shared;
  if (s.has("mpi"))
    shared.add("Open MPI", [&] { return bench::side{bench::mpi_group(2, "Open MPI shm", "vader,self")}; });
  const peers tcp = tcp_peers(s, out.settings(), 2);
  for (const std::size_t bytes : sizes_of(s, 1024)) {
    const auto& slow = bytes >= (1U << 20U) ? tcp.sides() : std::vector<bench::side>{};
    const auto result = out.quietly([&] {
      auto turns = contest_of(s, out.settings(), bytes);
      turns.run(joined(joined({ours}, shared.sides()), slow));
      return turns;
    });
    const auto& mine = result.seconds(ours);
    const std::string prefix = "collectives/shared_memory/2_processes/" + name_of(bytes);
    const auto compare = [&](const char* name, const peers& with, const std::vector<bench::side>& sides, double goal) {
      const auto measured = result.measured(sides);
      if (measured.empty()) return out.add_missing(prefix + name, "x", goal, with.missing());
      const auto& best = result.best(measured);
      auto speedup = bench::median_figure(prefix + name, bench::paired_ratios(result.seconds(best), mine), "x");
      speedup.goal = goal;
      speedup.peer = compared_with(best);
      speedup.note = result.medians(joined({ours}, measured)) + ", " + rate_text(bytes, bench::median_of(mine));
      out.add(speedup);
    };
    compare("/speedup_over_openmpi", shared, shared.sides(), 1.0);
    if (bytes >= (1U << 20U)) compare("/speedup_over_best_tcp_peer", tcp, slow, 3.0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::options common;
  settings s;
  s.raw = {"duplex:256:default:0", "duplex:128:reno:4096", "duplex:256:reno:4096", "duplex:1024:reno:4096",
           "streams:256:reno:4096"};
  bool rank = false;
  unsigned raw = 2;
  std::uint16_t port = 0;
  std::string control;
  CLI::App app{
      "all_reduce of fp32 among processes of one host against Gloo, Open MPI and PyTorch.\n"
      "A few seconds: --only tcp --sizes 1KiB,64KiB --peers mpi,gloo --quick --allow-noise"};
  bench::add_options(app, common);
  app.add_option("--only", s.only, "Sections: tcp, tcp4, shared_memory (default all)")
      ->delimiter(',')
      ->check(CLI::IsMember({"tcp", "tcp4", "shared_memory"}));
  app.add_option("--sizes", s.sizes, "Such as 1KiB,64KiB (default 1 KiB to 256 MiB in steps of 4)")->delimiter(',');
  app.add_option("--peers", s.peers, "Sides to compare with: gloo, mpi, torch, raw or none (default all)")
      ->delimiter(',')
      ->check(CLI::IsMember({"gloo", "mpi", "torch", "raw", "none"}));
  app.add_option("--rounds", s.rounds, "Rounds per size (default 11, quick 7)");
  app.add_option("--window-ms", s.window_ms, "Milliseconds of each side in a round (default 60, quick 15)");
  app.add_option("--raw-variants", s.raw,
                 "Raw programs, KIND:CHUNK_KIB:CONGESTION:BUFFER_KIB; KIND is duplex, threads or streams")
      ->delimiter(',');
  app.add_flag("--rank", rank, "Be one of our processes")->group("");
  app.add_option("--raw", raw, "Be a raw process of this rank")->group("");
  app.add_option("--port", port, "Port of the raw processes")->group("");
  app.add_option("--control", control, "Socket of the benchmark")->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    if (rank) return run_rank(control);
    if (raw < 2) return bench::serve_raw(control, raw, port);
    bench::figures out{common};
    if (s.wants("tcp")) measure_tcp(out, s, 2);
    if (s.wants("tcp4")) measure_tcp(out, s, 4);
    if (s.wants("shared_memory")) measure_shared_memory(out, s);
    return out.finish();
  } catch (const std::exception& reason) {
    fmt::print(stderr, "collectives: {}\n", reason.what());
    return 1;
  }
}
