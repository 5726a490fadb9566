// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rank_server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

/// @file
/// What two processes can do over TCP at best: programs that move S bytes each way and add S/2, as an all_reduce of S
/// between two must, and nothing else. No message order, no dependency of what is sent on what arrived.
namespace hetero::bench {

/// Written `kind:chunk_kib:congestion:buffer_kib`, such as "duplex:256:reno:4096"; "default" and 0 leave a socket as
/// the system makes it.
struct raw_variant {
  std::string kind;  ///< duplex: one thread that sends and receives by turns; threads: a sender beside a receiver;
                     ///< streams: two connections, a duplex thread for each
  std::size_t chunk_bytes = 0;
  std::string congestion;
  int buffer_bytes = 0;

  explicit raw_variant(const std::string& text) {
    std::istringstream words{text};
    std::string chunk, buffer;
    std::getline(words, kind, ':');
    std::getline(words, chunk, ':');
    std::getline(words, congestion, ':');
    std::getline(words, buffer, ':');
    chunk_bytes = std::stoul(chunk) << 10U;
    buffer_bytes = std::stoi(buffer) * 1024;
    if (kind != "duplex" && kind != "threads" && kind != "streams") throw std::runtime_error{"unknown " + kind};
  }
};

namespace raw {

[[noreturn]] inline void fail(const char* what) { throw std::system_error{errno, std::generic_category(), what}; }

/// Rank 0 of two listens at `port` of the loopback interface; each call makes one more connection.
class meeting {
 public:
  meeting(unsigned rank, std::uint16_t port) : rank_{rank} {
    address_.sin_family = AF_INET;
    address_.sin_port = htons(port);
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (rank_ != 0) return;
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address_), sizeof address_) != 0) fail("bind");
    if (::listen(listener_, 16) != 0) fail("listen");
  }
  meeting(const meeting&) = delete;
  meeting& operator=(const meeting&) = delete;
  ~meeting() {
    if (listener_ >= 0) ::close(listener_);
  }

  [[nodiscard]] int connection(const raw_variant& with) {
    int fd = -1;
    if (rank_ == 0) {
      fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) fail("accept");
    } else {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
      for (;;) {  // rank 0 may not listen yet
        fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (::connect(fd, reinterpret_cast<const sockaddr*>(&address_), sizeof address_) == 0) break;
        ::close(fd);
        if (std::chrono::steady_clock::now() > deadline) fail("connect");
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
      }
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (with.congestion != "default" && ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, with.congestion.data(),
                                                     static_cast<socklen_t>(with.congestion.size())) != 0)
      fail(with.congestion.c_str());
    for (const int name : {SO_SNDBUFFORCE, SO_RCVBUFFORCE})
      if (with.buffer_bytes > 0 &&
          ::setsockopt(fd, SOL_SOCKET, name, &with.buffer_bytes, sizeof with.buffer_bytes) != 0)
        ::setsockopt(fd, SOL_SOCKET, name == SO_SNDBUFFORCE ? SO_SNDBUF : SO_RCVBUF, &with.buffer_bytes,
                     sizeof with.buffer_bytes);
    return fd;
  }

 private:
  unsigned rank_;
  sockaddr_in address_{};
  int listener_ = -1;
};

inline void add(float* into, const float* from, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) into[i] += from[i];
}

/// Receives a stream of `bytes`; adds the first half to the first half of `data`, puts the second half in place.
class receiver {
 public:
  receiver(std::byte* data, std::size_t bytes, std::size_t chunk)
      : data_{data}, bytes_{bytes}, half_{bytes / 2 / 4 * 4}, chunk_{chunk}, scratch_(chunk / 4) {}
  [[nodiscard]] bool done() const noexcept { return at_ == bytes_; }

  /// One `recv`; false when it would have blocked.
  bool step(int fd, int flags) {
    const bool adds = at_ < half_;
    auto* const scratch = reinterpret_cast<std::byte*>(scratch_.data());
    std::byte* const to = adds ? scratch + partial_ : data_ + at_;
    const auto room = adds ? std::min(chunk_, half_ - at_ + partial_) - partial_ : std::min(chunk_, bytes_ - at_);
    const auto got = ::recv(fd, to, room, flags);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) fail("recv");
    at_ += static_cast<std::size_t>(got);
    if (adds) {
      partial_ += static_cast<std::size_t>(got);
      if (partial_ == chunk_ || at_ == half_) {
        raw::add(reinterpret_cast<float*>(data_ + at_ - partial_), scratch_.data(), partial_ / 4);
        partial_ = 0;
      }
    }
    return true;
  }

 private:
  std::byte* data_;
  std::size_t bytes_, half_, chunk_, at_ = 0, partial_ = 0;
  std::vector<float> scratch_;
};

inline void duplex(int fd, std::byte* data, std::size_t bytes, std::size_t chunk) {
  receiver in{data, bytes, chunk};
  std::size_t sent = 0;
  while (sent < bytes || !in.done()) {
    bool moved = false;
    if (sent < bytes) {
      const auto put = ::send(fd, data + sent, std::min(chunk, bytes - sent), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (put < 0 && errno != EAGAIN && errno != EINTR) fail("send");
      if (put > 0) sent += static_cast<std::size_t>(put), moved = true;
    }
    if (!in.done() && in.step(fd, MSG_DONTWAIT)) moved = true;
    if (moved) continue;
    pollfd waiting{
        .fd = fd, .events = static_cast<short>((sent < bytes ? POLLOUT : 0) | (in.done() ? 0 : POLLIN)), .revents = 0};
    ::poll(&waiting, 1, -1);
  }
}

inline void send_all(int fd, const std::byte* data, std::size_t bytes, std::size_t chunk) {
  for (std::size_t sent = 0; sent < bytes;) {
    const auto put = ::send(fd, data + sent, std::min(chunk, bytes - sent), MSG_NOSIGNAL);
    if (put < 0 && errno != EINTR) fail("send");
    if (put > 0) sent += static_cast<std::size_t>(put);
  }
}

inline void receive_all(int fd, std::byte* data, std::size_t bytes, std::size_t chunk) {
  for (receiver in{data, bytes, chunk}; !in.done();) in.step(fd, 0);
}

/// A thread that does one thing each time it is asked, asleep in between.
class helper {
 public:
  explicit helper(std::function<void()> work)
      : thread_{[this, work = std::move(work)] {
          for (unsigned turn = 0;; ++turn) {
            asked_.wait(turn);
            if (stop_) return;
            work();
            done_.store(turn + 1);
            done_.notify_one();
          }
        }} {}
  helper(const helper&) = delete;
  helper& operator=(const helper&) = delete;
  ~helper() {
    stop_ = true;
    ask();
    thread_.join();
  }
  void ask() {
    asked_.fetch_add(1);
    asked_.notify_one();
  }
  void wait() {
    for (unsigned seen = done_.load(); seen != asked_.load(); seen = done_.load()) done_.wait(seen);
  }

 private:
  std::atomic<unsigned> asked_{0}, done_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace raw

/// One rank of the pair of raw programs; serves as rank_server.hpp says, `check` excepted. Blocking.
inline int serve_raw(const std::string& control, unsigned rank, std::uint16_t port) {
  raw::meeting peers{rank, port};
  std::map<std::string, std::array<int, 2>> connections;  // kept: a fresh one would start slowly
  return serve_rank(control, rank, 2, "raw", [&](float* data, std::size_t count, const std::string& variant) {
    const raw_variant v{variant};
    auto& fd = connections[variant];
    if (fd[0] == 0) fd = {peers.connection(v), v.kind == "streams" ? peers.connection(v) : -1};
    auto* const bytes = reinterpret_cast<std::byte*>(data);
    const std::size_t size = count * sizeof(float), half = size / 8 * 4, chunk = v.chunk_bytes;
    if (v.kind == "duplex") return std::function<void()>{[=, fd = fd[0]] { raw::duplex(fd, bytes, size, chunk); }};
    std::shared_ptr<raw::helper> other;
    std::function<void()> own;
    if (v.kind == "threads") {
      other = std::make_shared<raw::helper>([=, fd = fd[0]] { raw::send_all(fd, bytes, size, chunk); });
      own = [=, fd = fd[0]] { raw::receive_all(fd, bytes, size, chunk); };
    } else {
      other = std::make_shared<raw::helper>([=, fd = fd[1]] { raw::duplex(fd, bytes + half, size - half, chunk); });
      own = [=, fd = fd[0]] { raw::duplex(fd, bytes, half, chunk); };
    }
    return std::function<void()>{[other, own] {
      other->ask();
      own();
      other->wait();
    }};
  });
}

}  // namespace hetero::bench
