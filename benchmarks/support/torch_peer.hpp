// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "figure.hpp"
#include "peer_process.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
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

/// A PyTorch process that performs steps on request, alive and idle between requests, so that a benchmark can alternate
/// with it. Move-only.
class torch_peer {
 public:
  /// Starts `script` with `--serve` and `arguments`, and waits until it is warm. Blocking.
  /// @throws std::exception when it does not start, has no torch, or does not report within `timeout`
  torch_peer(const std::string& interpreter, const std::string& script, const std::vector<std::string>& arguments,
             std::chrono::milliseconds timeout = std::chrono::minutes{5})
      : process_{command(interpreter, script, arguments)}, ready_(expect("ready", process_.read_line(timeout))) {}

  /// What was started, such as "torch 1.13.1, eager attention, foreach AdamW, 2 threads".
  [[nodiscard]] std::string label() const {
    std::string text = ready_.at("peer").get<std::string>();
    if (ready_.contains("attention")) text += ", " + ready_["attention"].get<std::string>() + " attention";
    if (ready_.value("compiled", false)) text += ", compiled";
    text += ", " + ready_.at("optimizer").get<std::string>() + " AdamW";
    const int threads = ready_.at("threads").get<int>();
    return text + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  }

  /// The whole first answer: versions, parameters, tokens_per_step, resident_after_import_bytes, ...
  [[nodiscard]] const nlohmann::json& ready() const noexcept { return ready_; }

  /// Performs `count` steps; returns the seconds of each, as the peer's own monotonic clock saw them. Blocking.
  /// @throws std::exception when the peer ends or `timeout` passes
  std::vector<double> steps(int count, std::chrono::milliseconds timeout = std::chrono::minutes{5}) {
    const auto answer = expect("steps", process_.request("step " + std::to_string(count), timeout));
    peak_resident_bytes_ = answer.at("peak_resident_bytes").get<double>();
    return answer.at("seconds").get<std::vector<double>>();
  }

  /// Highest resident memory of the peer up to its last answer.
  [[nodiscard]] double peak_resident_bytes() const { return peak_resident_bytes_; }

 private:
  static std::vector<std::string> command(const std::string& interpreter, const std::string& script,
                                          const std::vector<std::string>& arguments) {
    std::vector<std::string> words{interpreter, "-B", script, "--serve"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }

  static nlohmann::json expect(const std::string& event, const std::string& line) {
    auto answer = nlohmann::json::parse(line);
    if (answer.value("event", "") != event)
      throw std::runtime_error{answer.value("message", "unexpected answer " + line)};
    return answer;
  }

  peer_process process_;
  nlohmann::json ready_;
  double peak_resident_bytes_ = ready_.value("peak_resident_bytes", 0.0);
};

/// The peers that started, and why the others did not.
struct torch_peers {
  std::vector<torch_peer> running;
  std::vector<std::string> missing;  ///< one reason for each interpreter that has no usable torch
};

/// Starts `script` under each interpreter the options name, or the default ones; an interpreter without torch is listed
/// as missing, with its reason, and never silently left out. Blocking.
[[nodiscard]] inline torch_peers start_torch_peers(const options& settings, const std::string& script,
                                                   const std::vector<std::string>& arguments) {
  torch_peers result;
  for (const auto& interpreter : settings.peers.empty() ? default_interpreters() : settings.peers) {
    try {
      result.running.emplace_back(interpreter, script, arguments);
    } catch (const std::exception& reason) {
      result.missing.push_back("no PyTorch peer from " + interpreter + ": " + reason.what());
    }
  }
  return result;
}

}  // namespace hetero::bench
