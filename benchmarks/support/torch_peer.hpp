// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "figure.hpp"
#include "step_server.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace hetero::bench {

/// The interpreters to look for torch in: `HETERO_PEER_PYTHON`, separated by colons, or the system's.
[[nodiscard]] inline std::vector<std::string> default_interpreters() {
  std::vector<std::string> result;
  if (const char* const list = std::getenv("HETERO_PEER_PYTHON"); list != nullptr) {
    std::istringstream words{list};
    for (std::string word; std::getline(words, word, ':');)
      if (!word.empty()) result.push_back(word);
  }
  if (result.empty()) result.emplace_back("/usr/bin/python3");
  return result;
}

/// One PyTorch, in the mode of it that was fastest here.
struct torch_peer {
  step_server fastest;
  int major = 0;           ///< of its version
  double least_bytes = 0;  ///< peak resident memory of its leanest mode
  std::string leanest;     ///< that mode
  std::string tried;       ///< every mode with the median seconds of its pilot steps, or why it is missing
};

/// The peers that started, and why the others did not.
struct torch_peers {
  std::vector<torch_peer> running;
  std::vector<std::string> missing;  ///< one reason for each interpreter that has no usable torch

  /// The newest of version `least` up to `most`, or null.
  [[nodiscard]] torch_peer* of_major(int least, int most = std::numeric_limits<int>::max()) {
    torch_peer* found = nullptr;
    for (auto& peer : running)
      if (peer.major >= least && peer.major <= most && (found == nullptr || peer.major >= found->major)) found = &peer;
    return found;
  }
  [[nodiscard]] std::string why_missing(const std::string& wanted) const {
    std::string text = "no " + wanted + " among the interpreters; set HETERO_PEER_PYTHON or --peer";
    for (const auto& reason : missing) text += "; " + reason;
    return text;
  }
};

/// Starts `script` with `arguments` and those of each mode under one interpreter, one mode after the other. Each runs
/// against the fastest so far, in turns of `pilot_steps` steps, and the faster one stays alive: a peer is measured as a
/// user who tuned it would run it, and no more than two of them hold memory. Blocking.
/// @throws std::exception when no mode starts
[[nodiscard]] inline torch_peer start_fastest(const std::string& interpreter, const std::string& script,
                                              const std::vector<std::string>& arguments,
                                              const std::vector<std::vector<std::string>>& modes, int pilot_steps) {
  std::optional<step_server> fastest;
  double least_bytes = std::numeric_limits<double>::infinity();
  std::string leanest, tried;
  for (const auto& mode : modes) {
    std::vector<std::string> command{interpreter, "-B", script, "--serve"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    command.insert(command.end(), mode.begin(), mode.end());
    std::string name;
    for (const auto& word : mode) name += (name.empty() ? "" : " ") + word;
    tried += (tried.empty() ? "" : ", ") + name + ' ';
    try {
      step_server peer{command};
      std::vector<double> challenger, defender;
      for (int turn = 0; turn < 4; ++turn) {
        challenger.push_back(median_of(peer.steps(pilot_steps)));
        if (fastest) defender.push_back(median_of(fastest->steps(pilot_steps)));
      }
      const double challenger_s = median_of(challenger);
      tried += fmt::format("{:.4g} s {:.2f} GB", challenger_s, peer.peak_resident_bytes() / 1e9);
      if (peer.peak_resident_bytes() < least_bytes) {
        least_bytes = peer.peak_resident_bytes();
        leanest = peer.label();
      }
      if (!fastest || challenger_s < median_of(defender)) fastest.emplace(std::move(peer));
    } catch (const std::exception& reason) {
      tried += std::string{"not possible ("} + reason.what() + ')';
    }
  }
  if (!fastest) throw std::runtime_error{tried};
  const std::string version = fastest->ready().at("peer").get<std::string>();  // "torch 1.13.1"
  const int major = std::atoi(version.c_str() + version.find_first_of("0123456789"));
  return {std::move(*fastest), major, least_bytes, std::move(leanest), std::move(tried)};
}

/// `start_fastest` under each interpreter that the options name, or the default ones; one without torch is listed as
/// missing, with its reason, and never silently left out. Prints what it finds. Blocking.
[[nodiscard]] inline torch_peers start_torch_peers(const options& settings, const std::string& script,
                                                   const std::vector<std::string>& arguments,
                                                   const std::vector<std::vector<std::string>>& modes,
                                                   int pilot_steps) {
  torch_peers result;
  for (const auto& interpreter : settings.peers.empty() ? default_interpreters() : settings.peers) {
    try {
      result.running.push_back(start_fastest(interpreter, script, arguments, modes, pilot_steps));
      const auto& peer = result.running.back();
      fmt::print("peer {}: tried {}; compared with {}\n", interpreter, peer.tried, peer.fastest.label());
    } catch (const std::exception& reason) {
      result.missing.push_back("no PyTorch peer from " + interpreter + ": " + reason.what());
      fmt::print("{}\n", result.missing.back());
    }
    std::fflush(stdout);
  }
  return result;
}

}  // namespace hetero::bench
