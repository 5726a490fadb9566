// SPDX-License-Identifier: Apache-2.0
// A job of true processes: this one is rank 0, the others run a hidden test case of the same executable.
#pragma once

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/join.hpp>

extern char** environ;

namespace hetero::test {

/// Children that have not ended are killed when the object goes.
class process_job {
 public:
  /// Starts `ranks - 1` processes that run `test_case` with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, and
  /// meets them. @throws std::runtime_error when one cannot be started; error as the rendezvous does
  process_job(std::uint32_t ranks, const std::string& test_case, const std::string& role = "") {
    rendezvous_options options;
    options.world_size = ranks;
    options.ports = {0};
    options.on_listening = [&](std::uint16_t port) {
      for (std::uint32_t r = 1; r < ranks; ++r) start(r, ranks, port, test_case, role);
    };
    world_.emplace(tcp_rendezvous(options));
  }
  process_job(const process_job&) = delete;
  process_job& operator=(const process_job&) = delete;
  ~process_job() {
    world_.reset();
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }

  [[nodiscard]] world& communicator() { return *world_; }

  /// Leaves the job and waits for the others: exit status, or minus the signal.
  [[nodiscard]] std::vector<int> exits() {
    world_.reset();
    std::vector<int> all;
    for (const pid_t child : std::exchange(children_, {})) {
      int status = 0;
      ::waitpid(child, &status, 0);
      all.push_back(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
    }
    return all;
  }

 private:
  void start(std::uint32_t rank, std::uint32_t ranks, std::uint16_t port, const std::string& test_case,
             const std::string& role) {
    std::vector<std::string> arguments{std::filesystem::read_symlink("/proc/self/exe").string(), test_case};
    std::vector<std::string> variables{"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(ranks),
                                       "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port),
                                       "HETERO_TEST_ROLE=" + role};
    for (char** v = environ; *v != nullptr; ++v) variables.emplace_back(*v);
    std::vector<char*> argv;
    std::vector<char*> envp;
    for (std::string& a : arguments) argv.push_back(a.data());
    for (std::string& v : variables) envp.push_back(v.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    pid_t child = 0;
    if (::posix_spawn(&child, argv[0], nullptr, nullptr, argv.data(), envp.data()) != 0) {
      throw std::runtime_error{"cannot start a process of " + arguments[0]};
    }
    children_.push_back(child);
  }

  std::vector<pid_t> children_;
  std::optional<world> world_;
};

}  // namespace hetero::test
