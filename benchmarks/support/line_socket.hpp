// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace hetero::bench {

/// One end of a Unix stream socket that carries lines: how a benchmark talks to a rank that some launcher started,
/// whatever became of its standard streams, and across network namespaces. Move-only. Not thread-safe.
class line_socket {
 public:
  explicit line_socket(int descriptor) noexcept : fd_{descriptor} {}
  line_socket(line_socket&& other) noexcept : fd_{std::exchange(other.fd_, -1)}, unread_{std::move(other.unread_)} {}
  line_socket& operator=(line_socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(unread_, other.unread_);
    return *this;
  }
  ~line_socket() {
    if (fd_ >= 0) ::close(fd_);
  }

  /// The address of the socket file `path`.
  /// @throws std::runtime_error when the path is too long
  [[nodiscard]] static sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) throw std::runtime_error{"'" + path + "' is too long for a socket"};
    path.copy(address.sun_path, path.size());
    return address;
  }

  /// Connects to the socket file `path`.
  /// @throws std::system_error when nobody listens there
  [[nodiscard]] static line_socket connect(const std::string& path) {
    line_socket result{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const sockaddr_un address = address_of(path);
    if (result.fd_ < 0 || ::connect(result.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      throw std::system_error{errno, std::generic_category(), "cannot connect to " + path};
    return result;
  }

  [[nodiscard]] int descriptor() const noexcept { return fd_; }

  /// The next line without its end, or nothing when the other end has closed. Blocking, asleep.
  /// @throws std::runtime_error when `timeout` passes first
  [[nodiscard]] std::optional<std::string> read_line(
      std::chrono::milliseconds timeout = std::chrono::milliseconds::max()) {
    const bool endless = timeout == std::chrono::milliseconds::max();
    const auto deadline = std::chrono::steady_clock::now() + (endless ? std::chrono::milliseconds{0} : timeout);
    for (;;) {
      if (const auto end = unread_.find('\n'); end != std::string::npos) {
        std::string line = unread_.substr(0, end);
        unread_.erase(0, end + 1);
        return line;
      }
      if (!endless) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
        const int ready = left.count() > 0 ? ::poll(&waiting, 1, static_cast<int>(left.count())) : 0;
        if (ready == 0) throw std::runtime_error{"no answer within " + std::to_string(timeout.count()) + " ms"};
        if (ready < 0 && errno == EINTR) continue;
      }
      char piece[4096];
      const auto got = ::read(fd_, piece, sizeof piece);
      if (got > 0)
        unread_.append(piece, static_cast<std::size_t>(got));
      else if (got == 0 || errno == ECONNRESET)
        return std::nullopt;
      else if (errno != EINTR)
        throw std::system_error{errno, std::generic_category(), "read"};
    }
  }

  /// @throws std::system_error when the other end has closed
  void write_line(std::string_view line) {
    const std::string text = std::string{line} + '\n';
    for (std::size_t at = 0; at < text.size();) {
      const auto sent = ::send(fd_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR) throw std::system_error{errno, std::generic_category(), "send"};
      if (sent > 0) at += static_cast<std::size_t>(sent);
    }
  }

 private:
  int fd_;
  std::string unread_;
};

}  // namespace hetero::bench
