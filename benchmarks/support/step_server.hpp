// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "peer_process.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace hetero::bench {

/// A process that performs steps on request, alive and idle between requests, so that several can take turns: a PyTorch
/// peer (benchmarks/peers/peer.py describes the lines), or a program of ours that speaks the same. Move-only.
class step_server {
 public:
  /// Starts `command` and waits until it is warm. Blocking.
  /// @throws std::exception when it does not start, says that it cannot, or does not report within `timeout`
  explicit step_server(const std::vector<std::string>& command,
                       std::chrono::milliseconds timeout = std::chrono::minutes{5})
      : process_{command}, ready_(expect("ready", process_.read_line(timeout))) {}

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

  /// Performs `count` steps; returns the seconds of each, as the process's own monotonic clock saw them. Blocking.
  /// @throws std::exception when the process ends or `timeout` passes
  std::vector<double> steps(int count, std::chrono::milliseconds timeout = std::chrono::minutes{5}) {
    const auto answer = expect("steps", process_.request("step " + std::to_string(count), timeout));
    peak_resident_bytes_ = answer.at("peak_resident_bytes").get<double>();
    return answer.at("seconds").get<std::vector<double>>();
  }

  /// Highest resident memory of the process up to its last answer.
  [[nodiscard]] double peak_resident_bytes() const { return peak_resident_bytes_; }

 private:
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

}  // namespace hetero::bench
