// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "line_socket.hpp"
#include "peer_process.hpp"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace hetero::bench {

/// A TCP port of the loopback interface that was free a moment ago.
/// @throws std::runtime_error when there is none
[[nodiscard]] inline std::uint16_t free_port() {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = s >= 0 && ::bind(s, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(s, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (s >= 0) ::close(s);
  if (!bound) throw std::runtime_error{"no free port on the loopback interface"};
  return ntohs(address.sin_port);
}

/// The processes of one side, started once, joined among themselves, asleep in `read` between requests
/// (rank_server.hpp). A request goes to all ranks; the slowest one counts. Move-only. Not thread-safe.
class rank_group {
 public:
  using command = std::vector<std::string>;

  /// Starts each of `commands`, with `--control PATH` added, until `ranks` ranks have said hello. "{folder}" in a word
  /// becomes an empty folder that they share. Without a name the group takes that of its label. Blocking.
  /// @throws std::exception when a command ends first, says that it cannot, or `timeout` passes
  rank_group(std::string name, const std::vector<command>& commands, std::size_t ranks,
             std::chrono::seconds timeout = std::chrono::seconds{60})
      : name_{std::move(name)}, folder_{make_folder()} {
    try {
      start(commands, ranks, timeout);
    } catch (...) {
      stop();
      throw;
    }
  }
  rank_group(rank_group&& other) noexcept
      : name_{std::move(other.name_)},
        folder_{std::exchange(other.folder_, {})},
        label_{std::move(other.label_)},
        processes_{std::move(other.processes_)},
        ranks_{std::move(other.ranks_)} {}
  rank_group& operator=(rank_group&&) = delete;
  ~rank_group() { stop(); }

  [[nodiscard]] const std::string& name() const noexcept { return name_.empty() ? label_ : name_; }
  /// What rank 0 says it is, version included.
  [[nodiscard]] const std::string& label() const noexcept { return label_; }
  [[nodiscard]] std::size_t size() const noexcept { return ranks_.size(); }

  /// False once a rank did not answer: what it says afterwards would belong to another question.
  [[nodiscard]] bool usable() const noexcept { return usable_; }

  /// Seconds of one operation on `count` floats, mean of `iterations`, on the slowest rank. Blocking.
  /// @throws std::exception when a rank fails or `timeout` passes
  double run(std::size_t count, std::size_t iterations, std::size_t warm, const std::string& variant,
             std::chrono::milliseconds timeout = std::chrono::minutes{1}) {
    const auto each = run_each(count, iterations, warm, variant, timeout);
    return *std::max_element(each.begin(), each.end());
  }

  /// The same of every rank.
  std::vector<double> run_each(std::size_t count, std::size_t iterations, std::size_t warm, const std::string& variant,
                               std::chrono::milliseconds timeout = std::chrono::minutes{1}) {
    const auto answers = request(
        "run " + std::to_string(count) + ' ' + std::to_string(iterations) + ' ' + std::to_string(warm) + ' ' + variant,
        "nanoseconds ", timeout);
    std::vector<double> result;
    for (const auto& answer : answers) result.push_back(std::stod(answer) * 1e-9);
    return result;
  }

  /// Reduces known numbers.
  /// @throws std::exception when a rank got a wrong sum, fails, or `timeout` passes
  void check(std::size_t count, const std::string& variant,
             std::chrono::milliseconds timeout = std::chrono::minutes{1}) {
    request("check " + std::to_string(count) + ' ' + variant, "ok", timeout);
  }

 private:
  static std::string make_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hetero-bench-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::system_error{errno, std::generic_category(), pattern};
    return pattern;
  }

  void start(const std::vector<command>& commands, std::size_t ranks, std::chrono::seconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const std::string path = folder_ + "/control";
    const line_socket listener{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const sockaddr_un address = line_socket::address_of(path);
    if (::bind(listener.descriptor(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener.descriptor(), static_cast<int>(ranks)) != 0)
      throw std::system_error{errno, std::generic_category(), "cannot listen at " + path};
    for (auto words : commands) {
      for (auto& word : words)
        if (const auto at = word.find("{folder}"); at != std::string::npos) word.replace(at, 8, folder_);
      words.insert(words.end(), {"--control", path});
      processes_.emplace_back(words);
    }
    std::vector<std::optional<line_socket>> arrived(ranks);
    for (std::size_t count = 0; count < ranks;) {
      pollfd waiting{.fd = listener.descriptor(), .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, 100) == 1) {
        line_socket next{::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC)};
        const std::string hello = next.read_line(timeout).value_or("");
        std::size_t end = 0;
        const std::size_t rank = hello.starts_with("hello ") ? std::stoul(hello.substr(6), &end) : ranks;
        if (rank >= ranks || arrived[rank]) throw std::runtime_error{name() + ": unexpected hello '" + hello + "'"};
        if (rank == 0) label_ = hello.substr(std::min(hello.size(), 7 + end));
        arrived[rank].emplace(std::move(next));
        ++count;
        continue;
      }
      for (const auto& process : processes_) {
        siginfo_t info{};
        ::waitid(P_PID, static_cast<id_t>(process.pid()), &info, WEXITED | WNOHANG | WNOWAIT);
        if (info.si_pid != 0)
          throw std::runtime_error{name() + ": a process ended with status " + std::to_string(info.si_status) +
                                   " before its ranks were ready"};
      }
      if (std::chrono::steady_clock::now() > deadline)
        throw std::runtime_error{name() + ": ranks were not ready within " + std::to_string(timeout.count()) + " s"};
    }
    for (auto& rank : arrived) ranks_.push_back(std::move(*rank));
  }

  std::vector<std::string> request(const std::string& line, const std::string& expected,
                                   std::chrono::milliseconds timeout) {
    if (!usable_) throw std::runtime_error{name() + " failed before"};
    usable_ = false;  // until every rank has answered
    for (auto& rank : ranks_) rank.write_line(line);
    std::vector<std::string> answers;
    std::string failure;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const std::string what = name() + ", rank " + std::to_string(i) + ", asked to '" + line + "': ";
      std::optional<std::string> answer;
      try {
        answer = ranks_[i].read_line(timeout);
      } catch (const std::exception& reason) {
        throw std::runtime_error{what + reason.what()};
      }
      if (!answer) throw std::runtime_error{what + "ended without an answer"};
      if (!answer->starts_with(expected) && failure.empty()) failure = what + *answer;
      answers.push_back(answer->substr(std::min(expected.size(), answer->size())));
    }
    usable_ = true;
    if (!failure.empty()) throw std::runtime_error{failure};
    return answers;
  }

  /// Closes the sockets, by which the ranks end by themselves, and kills what is left a second later.
  void stop() noexcept {
    ranks_.clear();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{1};
    for (const auto& process : processes_) {
      siginfo_t info{};
      while (::waitid(P_PID, static_cast<id_t>(process.pid()), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
             info.si_pid == 0 && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
    processes_.clear();
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }

  std::string name_;
  std::string folder_;
  std::string label_;
  std::vector<peer_process> processes_;
  std::vector<line_socket> ranks_;
  bool usable_ = true;
};

}  // namespace hetero::bench
