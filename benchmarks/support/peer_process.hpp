// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

extern "C" char** environ;

namespace hetero::bench {

/// A child process that answers one line to each line it is sent. Move-only; the destructor kills and reaps it. Its
/// standard error stays the parent's. Not thread-safe.
class peer_process {
 public:
  /// Starts `command` (program first, looked up in PATH).
  /// @throws std::system_error when it cannot be started
  explicit peer_process(const std::vector<std::string>& command) : name_{command.at(0)} {
    int to_child[2], from_child[2];
    if (::pipe2(to_child, O_CLOEXEC) != 0) throw std::system_error{errno, std::generic_category(), "pipe2"};
    if (::pipe2(from_child, O_CLOEXEC) != 0) {
      const int error = errno;
      ::close(to_child[0]);
      ::close(to_child[1]);
      throw std::system_error{error, std::generic_category(), "pipe2"};
    }
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
    std::vector<char*> arguments;
    for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const int error = ::posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(to_child[0]);
    ::close(from_child[1]);
    to_ = to_child[1];
    from_ = from_child[0];
    if (error != 0) {
      pid_ = -1;
      stop();
      throw std::system_error{error, std::generic_category(), "cannot start '" + name_ + "'"};
    }
  }

  peer_process(peer_process&& other) noexcept
      : name_{std::move(other.name_)},
        pid_{std::exchange(other.pid_, -1)},
        to_{std::exchange(other.to_, -1)},
        from_{std::exchange(other.from_, -1)},
        unread_{std::move(other.unread_)} {}
  peer_process& operator=(peer_process&& other) noexcept {
    if (this != &other) {
      stop();
      name_ = std::move(other.name_);
      pid_ = std::exchange(other.pid_, -1);
      to_ = std::exchange(other.to_, -1);
      from_ = std::exchange(other.from_, -1);
      unread_ = std::move(other.unread_);
    }
    return *this;
  }
  ~peer_process() { stop(); }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  /// Reads the next line, without its end. Blocking.
  /// @throws std::runtime_error when the child ends or `timeout` passes first
  [[nodiscard]] std::string read_line(std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      if (const auto end = unread_.find('\n'); end != std::string::npos) {
        std::string line = unread_.substr(0, end);
        unread_.erase(0, end + 1);
        return line;
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0)
        throw std::runtime_error{"'" + name_ + "' did not answer within " + std::to_string(timeout.count()) + " ms"};
      pollfd waiting{.fd = from_, .events = POLLIN, .revents = 0};
      const int ready = ::poll(&waiting, 1, static_cast<int>(left.count()));
      if (ready < 0 && errno != EINTR) throw std::system_error{errno, std::generic_category(), "poll"};
      if (ready <= 0) continue;
      char piece[4096];
      const auto got = ::read(from_, piece, sizeof piece);
      if (got > 0)
        unread_.append(piece, static_cast<std::size_t>(got));
      else if (got == 0)
        throw std::runtime_error{"'" + name_ + "' ended without an answer"};
      else if (errno != EINTR)
        throw std::system_error{errno, std::generic_category(), "read"};
    }
  }

  /// Sends one line and reads the answer. Blocking.
  /// @throws std::runtime_error when the child has ended, or does not answer within `timeout`
  [[nodiscard]] std::string request(const std::string& line, std::chrono::milliseconds timeout) {
    const std::string text = line + "\n";
    // A dead child must be an error here, not a signal that ends the benchmark.
    sigset_t broken_pipe, previous;
    ::sigemptyset(&broken_pipe);
    ::sigaddset(&broken_pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &broken_pipe, &previous);
    const auto sent = ::write(to_, text.data(), text.size());  // a line is shorter than PIPE_BUF, so it goes whole
    if (sent < 0 && ::sigismember(&previous, SIGPIPE) == 0) {
      const timespec at_once{};
      ::sigtimedwait(&broken_pipe, nullptr, &at_once);
    }
    ::pthread_sigmask(SIG_SETMASK, &previous, nullptr);
    if (sent != static_cast<ssize_t>(text.size())) throw std::runtime_error{"'" + name_ + "' has ended"};
    return read_line(timeout);
  }

 private:
  void stop() noexcept {
    for (int* const end : {&to_, &from_})
      if (*end >= 0) ::close(std::exchange(*end, -1));
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      int status = 0;
      while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {}
      pid_ = -1;
    }
  }

  std::string name_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string unread_;
};

}  // namespace hetero::bench
