// SPDX-License-Identifier: Apache-2.0
// From nothing to the first all_reduce: 64 ranks as threads of one process, and 32 processes over loopback TCP, their
// start included.

#include "support/sides.hpp"

#include <hetero/comm/join.hpp>
#include <hetero/comm/run_ranks.hpp>

#include <iostream>

namespace {

namespace bench = hetero::bench;
using clock_type = std::chrono::steady_clock;

double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

/// One of the processes: joins, sums, says so.
int run_rank() {
  hetero::world world = hetero::join({.settings = "rendezvous benchmark", .timeout = std::chrono::minutes{1}});
  std::cout << world.all_reduce(std::int64_t{1}, hetero::reduce_op::sum) << std::endl;
  std::string line;
  std::getline(std::cin, line);  // until the benchmark has heard everyone
  return 0;
}

double threads_s(std::uint32_t ranks) {
  std::vector<double> done(ranks);
  const auto start = clock_type::now();
  hetero::run_ranks(ranks, [&](hetero::world& world, hetero::rank_id rank) {
    if (world.all_reduce(std::int64_t{1}, hetero::reduce_op::sum) != ranks) throw std::runtime_error{"a wrong sum"};
    done[static_cast<std::size_t>(rank)] = seconds_since(start);
  });
  return *std::max_element(done.begin(), done.end());
}

double processes_s(unsigned ranks) {
  const std::string port = "MASTER_PORT=" + std::to_string(bench::free_port());
  std::vector<bench::peer_process> processes;
  const auto start = clock_type::now();
  for (unsigned rank = 0; rank < ranks; ++rank)
    processes.emplace_back(std::vector<std::string>{"env", "RANK=" + std::to_string(rank),
                                                    "WORLD_SIZE=" + std::to_string(ranks), "MASTER_ADDR=127.0.0.1",
                                                    port, bench::own_program(), "--rank"});
  for (auto& each : processes)
    if (each.read_line(std::chrono::minutes{1}) != std::to_string(ranks)) throw std::runtime_error{"a wrong sum"};
  return seconds_since(start);
}

template <class Work>
void measure(bench::figures& out, const std::string& name, double goal, const std::string& note, Work&& work) {
  const auto samples = out.quietly([&] {
    std::vector<double> runs;
    for (int i = 0; i < (out.settings().quick ? 3 : 7); ++i) runs.push_back(work());
    return runs;
  });
  auto entry = bench::median_figure("rendezvous/" + name, samples, "s");
  entry.goal = goal;
  entry.better = bench::direction::at_most;
  entry.note = note;
  out.add(entry);
}

}  // namespace

int main(int argc, char** argv) {
  bench::options common;
  bool rank = false;
  CLI::App app{"Seconds from nothing to the end of the first all_reduce."};
  bench::add_options(app, common);
  app.add_flag("--rank", rank, "Be one of the processes")->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    if (rank) return run_rank();
    bench::figures out{common};
    measure(out, "64_ranks_in_process", 0.5, "threads, with their start", [] { return threads_s(64); });
    measure(out, "32_processes", 1.5, "with the start of the processes", [] { return processes_s(32); });
    return out.finish();
  } catch (const std::exception& reason) {
    fmt::print(stderr, "rendezvous: {}\n", reason.what());
    return 1;
  }
}
