// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>  // before Asio: Boost 1.74 uses std::exchange without it

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <span>
#include <string_view>

namespace hetero::detail {

/// The outcome of a read or write that never blocks.
struct io_result {
  std::size_t bytes = 0;
  bool would_block = false;
  bool closed = false;       ///< the peer ended the stream
  std::string error_text{};  ///< set when the stream is broken
  [[nodiscard]] bool ended() const noexcept { return closed || !error_text.empty(); }
};

/// A connected stream. Calls never block; readiness comes from poll().
class tcp_socket {
 public:
  using native = boost::asio::ip::tcp::socket;

  explicit tcp_socket(native socket) : socket_{std::move(socket)} {
    boost::system::error_code ignored;  // a socket that is already broken shows it at the first read
    socket_.non_blocking(true, ignored);
    socket_.set_option(boost::asio::ip::tcp::no_delay{true}, ignored);
    ::fcntl(fd(), F_SETFD, FD_CLOEXEC);  // a child process must not keep a dead rank's connection open
  }

  [[nodiscard]] int fd() { return socket_.native_handle(); }
  [[nodiscard]] native& get() noexcept { return socket_; }

  [[nodiscard]] io_result read(std::span<std::byte> into) {
    boost::system::error_code ec;
    io_result r;
    r.bytes = socket_.read_some(boost::asio::buffer(into.data(), into.size()), ec);
    return classify(r, ec);
  }

  [[nodiscard]] io_result write(std::span<const std::byte> first, std::span<const std::byte> second) {
    const std::array<boost::asio::const_buffer, 2> parts{boost::asio::buffer(first.data(), first.size()),
                                                         boost::asio::buffer(second.data(), second.size())};
    boost::system::error_code ec;
    io_result r;
    r.bytes = socket_.write_some(parts, ec);
    return classify(r, ec);
  }

  /// For a peer on the same host. Pacing and probing for a bandwidth, as the default may do, halve what a path without
  /// a wire carries (docs/performance.md). A kernel that does not offer it keeps its own.
  void expect_no_wire() noexcept {
    constexpr std::string_view plain = "reno";
    ::setsockopt(fd(), IPPROTO_TCP, TCP_CONGESTION, plain.data(), static_cast<socklen_t>(plain.size()));
  }

  /// Bytes handed to the kernel that the peer's kernel has not acknowledged.
  [[nodiscard]] int unacknowledged() {
    int bytes = 0;
    return ::ioctl(fd(), SIOCOUTQ, &bytes) == 0 ? bytes : 0;
  }

  void shut_down_sending() noexcept {
    boost::system::error_code ignored;
    socket_.shutdown(native::shutdown_send, ignored);
  }
  void close() noexcept {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  static io_result classify(io_result r, const boost::system::error_code& ec) {
    if (!ec) return r;
    if (ec == boost::asio::error::would_block || ec == boost::asio::error::try_again ||
        ec == boost::asio::error::interrupted) {
      r.would_block = true;
    } else if (ec == boost::asio::error::eof) {
      r.closed = true;
    } else {
      r.error_text = ec.message();
    }
    return r;
  }

  native socket_;
};

}  // namespace hetero::detail
