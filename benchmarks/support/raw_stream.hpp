// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "peer_process.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

/// @file
/// Goodput of raw streams: what a port carries when others send to it without a protocol.
namespace hetero::bench {

inline constexpr std::uint16_t raw_stream_port = 7001;

/// Listens, takes `senders` connections, lets them run in for 0.3 s, then counts for `seconds`; prints bytes per second
/// on one line. Blocking.
/// @throws std::system_error when a socket fails
inline int receive_streams(std::size_t senders, double seconds) {
  using clock = std::chrono::steady_clock;
  const auto fail = [](const char* what) { throw std::system_error{errno, std::generic_category(), what}; };
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(raw_stream_port);
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail("bind");
  if (::listen(listener, 16) != 0) fail("listen");
  std::vector<pollfd> streams;
  while (streams.size() < senders) {
    const int fd = ::accept(listener, nullptr, nullptr);
    if (fd < 0) fail("accept");
    streams.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  }
  std::vector<std::byte> room(std::size_t{1} << 20U);
  const auto start = clock::now() + std::chrono::milliseconds{300};
  const auto end = start + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>{seconds});
  double bytes = 0;
  auto now = clock::now();
  for (; now < end; now = clock::now()) {
    ::poll(streams.data(), streams.size(), 100);
    for (auto& stream : streams) {
      if ((stream.revents & POLLIN) == 0) continue;
      const auto got = ::recv(stream.fd, room.data(), room.size(), MSG_DONTWAIT);
      if (got > 0 && now >= start) bytes += static_cast<double>(got);
    }
  }
  std::printf("%.1f\n", bytes / std::chrono::duration<double>(now - start).count());
  return 0;
}

/// Sends to `receive_streams` at `address` until it closes. Blocking.
inline int send_stream(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(raw_stream_port);
  ::inet_pton(AF_INET, address.c_str(), &to.sin_addr);
  const std::vector<std::byte> bytes(std::size_t{256} << 10U);
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
      while (::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {}
      return 0;
    }
    ::close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds{5});  // it may not listen yet
  }
  return 1;
}

/// Bytes per second that arrive behind `into` when `from` send at once; each is the words before a command. `program`
/// calls the two functions above for `--receive SENDERS --seconds S` and `--send ADDRESS`. Blocking.
/// @throws std::exception when a process fails
[[nodiscard]] inline double goodput(const std::string& program, const std::vector<std::string>& into,
                                    const std::string& address, const std::vector<std::vector<std::string>>& from,
                                    double seconds) {
  const auto command = [&](std::vector<std::string> words, const std::vector<std::string>& arguments) {
    words.push_back(program);
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  };
  peer_process receiver{
      command(into, {"--receive", std::to_string(from.size()), "--seconds", std::to_string(seconds)})};
  std::vector<peer_process> senders;
  for (const auto& each : from) senders.emplace_back(command(each, {"--send", address}));
  return std::stod(receiver.read_line(std::chrono::seconds{30}));
}

}  // namespace hetero::bench
