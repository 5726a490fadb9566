// SPDX-License-Identifier: Apache-2.0
// Runs a program of the build as a user would: arguments, environment, a folder of its own, a deadline.
#pragma once

#include <csignal>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace hetero::test {

/// A started program. Its output goes to files, so it can never block on a full pipe; it is killed if it outlives its handle.
class program {
 public:
  using environment = std::map<std::string, std::string>;

  /// Starts `arguments` (the first is the program) in `folder`. Launcher variables of the test itself are not inherited.
  program(std::vector<std::string> arguments, const std::filesystem::path& folder, const environment& extra = {})
      : out_{folder / ("stdout." + std::to_string(++count()))}, err_{folder / ("stderr." + std::to_string(count()))} {
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ > 0) return;
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) ::unsetenv(name);
    for (const auto& [name, value] : extra) ::setenv(name.c_str(), value.c_str(), 1);
    if (::chdir(folder.c_str()) != 0) ::_exit(126);
    ::dup2(::open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    ::dup2(::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    ::dup2(::open("/dev/null", O_RDONLY), 0);
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  program(const program&) = delete;
  program& operator=(const program&) = delete;
  ~program() {
    if (pid_ > 0 && !ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  void signal(int number) const { ::kill(pid_, number); }

  /// Waits for the end: the exit code, or 128 + the signal that ended it, or -1 when the deadline passed (it is then killed).
  int wait(std::chrono::seconds deadline = std::chrono::seconds{90}) {
    const auto end = std::chrono::steady_clock::now() + deadline;
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        ended_ = true;
        return -1;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  /// Waits until `condition()` holds; false when the program ended or the deadline passed first.
  template <class Condition>
  bool wait_until(Condition&& condition, std::chrono::seconds deadline = std::chrono::seconds{90}) {
    const auto end = std::chrono::steady_clock::now() + deadline;
    while (!condition()) {
      siginfo_t info{};
      ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
      if (std::chrono::steady_clock::now() > end || info.si_pid != 0) return condition();
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
    return true;
  }

  [[nodiscard]] std::string out() const { return text_of(out_); }
  [[nodiscard]] std::string err() const { return text_of(err_); }

  [[nodiscard]] static std::string text_of(const std::filesystem::path& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
  }

 private:
  static int& count() {
    static int programs = 0;
    return programs;
  }
  std::filesystem::path out_;
  std::filesystem::path err_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

/// A TCP port that was free a moment ago.
[[nodiscard]] inline std::string free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    ::close(fd);
    throw std::runtime_error("no free port");
  }
  ::close(fd);
  return std::to_string(ntohs(address.sin_port));
}

}  // namespace hetero::test
