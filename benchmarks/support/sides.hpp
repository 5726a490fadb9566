// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "figure.hpp"
#include "rank_group.hpp"
#include "torch_peer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace hetero::bench {

/// What is compared: an algorithm of a group of processes. Several sides may share a group.
struct side {
  std::shared_ptr<rank_group> group;
  std::string variant = "default";
  [[nodiscard]] std::string name() const { return group->name() + (variant == "default" ? "" : ' ' + variant); }
};

/// The program itself, to start it as a rank.
[[nodiscard]] inline std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

/// A peer program that CMake builds beside this one where its library is found; empty when it is not there.
[[nodiscard]] inline std::string peer_program(const std::string& name) {
  const auto path = std::filesystem::path{own_program()}.parent_path() / name;
  return std::filesystem::exists(path) ? path.string() : "";
}

/// Where a rank runs: the words before its command, and the address of its port.
struct place {
  std::vector<std::string> before;
  std::string address;
};

/// Our ranks as processes, joined by `hetero::join` over the loopback interface, or each at its place. `extra` are
/// words for `env`, such as "HETERO_SHARED_MEMORY=0", and `arguments` follow the program.
[[nodiscard]] inline std::shared_ptr<rank_group> our_group(const std::string& name, unsigned ranks,
                                                           const std::vector<std::string>& extra,
                                                           const std::vector<std::string>& arguments,
                                                           const std::vector<place>& where = {}) {
  const std::string port = std::to_string(free_port());
  std::vector<rank_group::command> commands;
  for (unsigned rank = 0; rank < ranks; ++rank) {
    auto& words = commands.emplace_back(where.empty() ? rank_group::command{} : where[rank].before);
    words.push_back("env");
    words.insert(words.end(), extra.begin(), extra.end());
    words.insert(words.end(),
                 {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(ranks), "MASTER_PORT=" + port,
                  "MASTER_ADDR=" + (where.empty() ? "127.0.0.1" : where[0].address), own_program()});
    words.insert(words.end(), arguments.begin(), arguments.end());
  }
  return std::make_shared<rank_group>(name, commands, ranks);
}

/// Processes for one algorithm of Gloo: one that hangs must not end the others.
/// @throws std::exception when it was not built or does not start
[[nodiscard]] inline side gloo_side(unsigned ranks, const std::string& algorithm,
                                    const std::vector<place>& where = {}) {
  const std::string program = peer_program("peer_gloo");
  if (program.empty()) throw std::runtime_error{"no Gloo: peer_gloo was not built (libgloo-dev was not found)"};
  std::vector<rank_group::command> commands;
  for (unsigned rank = 0; rank < ranks; ++rank) {
    auto& words = commands.emplace_back(where.empty() ? rank_group::command{} : where[rank].before);
    words.insert(words.end(), {program, "--rank", std::to_string(rank), "--ranks", std::to_string(ranks), "--store",
                               "{folder}", "--address", where.empty() ? "127.0.0.1" : where[rank].address});
  }
  return {std::make_shared<rank_group>("Gloo", commands, ranks), algorithm};
}

/// `transports` is the value of Open MPI's parameter btl.
/// @throws std::exception when it was not built or does not start
[[nodiscard]] inline std::shared_ptr<rank_group> mpi_group(unsigned ranks, const std::string& name,
                                                           const std::string& transports) {
  const std::string program = peer_program("peer_mpi");
  if (program.empty()) throw std::runtime_error{"no MPI: peer_mpi was not built (MPI was not found)"};
  rank_group::command words{"mpirun",
                            "--allow-run-as-root",
                            "--oversubscribe",
                            "--bind-to",
                            "none",
                            "-np",
                            std::to_string(ranks),
                            "--mca",
                            "pml",
                            "ob1",
                            "--mca",
                            "btl",
                            transports};
  if (transports.find("tcp") != std::string::npos) words.insert(words.end(), {"--mca", "btl_tcp_if_include", "lo"});
  words.push_back(program);
  return std::make_shared<rank_group>(name, std::vector<rank_group::command>{words}, ranks);
}

/// @throws std::exception when the interpreter has no torch.distributed
[[nodiscard]] inline std::shared_ptr<rank_group> torch_group(unsigned ranks, const std::string& interpreter) {
  std::vector<rank_group::command> commands;
  for (unsigned rank = 0; rank < ranks; ++rank)
    commands.push_back({"env", "GLOO_SOCKET_IFNAME=lo", interpreter, "-B",
                        std::string{HETERO_BENCH_SOURCE_DIR} + "/benchmarks/peers/torch_all_reduce.py", "--rank",
                        std::to_string(rank), "--ranks", std::to_string(ranks), "--store", "{folder}/store"});
  return std::make_shared<rank_group>("", commands, ranks, std::chrono::seconds{120});
}

/// Seconds per operation of each side, round by round, taken in turns.
class contest {
 public:
  /// `most_warm` floats are reduced before each window, at most.
  contest(std::size_t count, std::size_t rounds, double window_s, std::size_t most_warm = std::size_t{4} << 20U)
      : count_{count}, rounds_{rounds}, window_s_{window_s}, warm_{std::min(count, most_warm)} {}

  /// Runs all sides in turns: a checked sum and a pilot of each, then `rounds` rounds of a window each. A peer that
  /// fails is said to and left out from then on. Blocking.
  /// @throws std::exception when the first side fails or its sum is wrong
  void run(std::vector<side> sides) {
    seconds_.clear();
    std::map<std::string, std::size_t> iterations;
    const auto guarded = [&](const side& each, auto&& work) {
      if (!each.group->usable()) return;
      try {
        work();
      } catch (const std::exception& reason) {
        seconds_.erase(each.name());
        if (each.group == sides.front().group) throw;
        fmt::print("left out: {}\n", reason.what());
      }
    };
    for (const auto& each : sides)
      guarded(each, [&] {
        if (each.group->name() != "raw") each.group->check(count_, each.variant);
        std::size_t pilot = 1;
        double seconds = each.group->run(count_, pilot, warm_, each.variant);
        while (seconds * static_cast<double>(pilot) < window_s_ / 8 && pilot < 4096) {
          pilot *= 4;
          seconds = each.group->run(count_, pilot, warm_, each.variant);
        }
        iterations[each.name()] = static_cast<std::size_t>(std::clamp(window_s_ / seconds, 1.0, 100'000.0));
      });
    for (std::size_t round = 0; round < rounds_; ++round)
      for (std::size_t i = 0; i < sides.size(); ++i) {
        const side& next = sides[(i + round) % sides.size()];  // nobody always follows the same neighbor
        guarded(next, [&] {
          const double seconds = next.group->run(count_, iterations[next.name()], warm_, next.variant);
          seconds_[next.name()].push_back(seconds);
        });
      }
  }

  /// Those of `sides` that were measured in every round.
  [[nodiscard]] std::vector<side> measured(const std::vector<side>& sides) const {
    std::vector<side> result;
    for (const auto& each : sides)
      if (const auto found = seconds_.find(each.name()); found != seconds_.end() && found->second.size() == rounds_)
        result.push_back(each);
    return result;
  }

  [[nodiscard]] const std::vector<double>& seconds(const side& of) const { return seconds_.at(of.name()); }

  /// The side with the lowest median.
  /// @pre `sides` is not empty
  [[nodiscard]] const side& best(const std::vector<side>& sides) const {
    return *std::min_element(sides.begin(), sides.end(), [&](const side& a, const side& b) {
      return median_of(seconds(a)) < median_of(seconds(b));
    });
  }

  /// Every side with its median, for a note.
  [[nodiscard]] std::string medians(const std::vector<side>& sides) const {
    std::string text;
    for (const auto& each : sides)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", each.name(), time_text(median_of(seconds(each))));
    return text;
  }

  [[nodiscard]] static std::string time_text(double seconds) {
    return seconds < 1e-3 ? fmt::format("{:.3g} us", seconds * 1e6) : fmt::format("{:.4g} ms", seconds * 1e3);
  }

 private:
  std::size_t count_;
  std::size_t rounds_;
  double window_s_;
  std::size_t warm_;
  std::map<std::string, std::vector<double>> seconds_;
};

}  // namespace hetero::bench
