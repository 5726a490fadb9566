// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>  // before Asio: Boost 1.74 uses std::exchange without it

#include <fcntl.h>
#include <sys/socket.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <hetero/comm/rendezvous_address.hpp>
#include <hetero/comm/tcp_socket.hpp>

namespace hetero::detail {

/// Why a socket could not be made to listen.
struct listen_failure {
  boost::system::error_code ec;
  tcp::endpoint at;
  [[nodiscard]] bool in_use() const { return ec == boost::asio::error::address_in_use; }
};

/// A socket that accepts connections on one address.
class tcp_listener {
 public:
  /// Nothing when the address cannot be used; `why` then says so.
  [[nodiscard]] static std::optional<tcp_listener> open(boost::asio::io_context& context, const tcp::endpoint& at,
                                                        listen_failure& why) {
    boost::system::error_code ec;
    tcp::acceptor acceptor{context};
    acceptor.open(at.protocol(), ec);
    if (!ec) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!ec && at.address().is_v6()) acceptor.set_option(boost::asio::ip::v6_only{true}, ec);
    if (!ec) acceptor.set_option(tcp::acceptor::reuse_address{true}, ec);
    if (!ec) acceptor.bind(at, ec);
    if (!ec) acceptor.listen(boost::asio::socket_base::max_listen_connections, ec);
    if (!ec) acceptor.non_blocking(true, ec);
    if (!ec) return tcp_listener{std::move(acceptor)};
    why = {ec, at};
    return std::nullopt;
  }

  [[nodiscard]] int fd() { return acceptor_.native_handle(); }
  [[nodiscard]] std::uint16_t port() const {
    boost::system::error_code ec;
    return acceptor_.local_endpoint(ec).port();
  }
  /// The next connection that waits, if any.
  [[nodiscard]] std::optional<tcp_socket> accept() {
    boost::system::error_code ec;
    tcp::socket socket{acceptor_.get_executor()};
    acceptor_.accept(socket, ec);
    return ec ? std::nullopt : std::optional<tcp_socket>{std::in_place, std::move(socket)};
  }

 private:
  explicit tcp_listener(tcp::acceptor acceptor) : acceptor_{std::move(acceptor)} {}
  tcp::acceptor acceptor_;
};

/// Listens at all of these addresses on one port; 0 lets the system choose one that is free at each. An address that
/// this host cannot use at all is left out. Empty when somebody else has the port, or none can be used: see `why`.
[[nodiscard]] inline std::vector<tcp_listener> listen_at(boost::asio::io_context& context,
                                                         const std::vector<ip_address>& addresses, std::uint16_t port,
                                                         listen_failure& why) {
  for (int attempt = 0; attempt < (port == 0 ? 16 : 1); ++attempt) {
    std::vector<tcp_listener> listeners;
    bool taken = false;
    for (const ip_address& a : addresses) {
      const std::uint16_t same = listeners.empty() ? port : listeners.front().port();
      listen_failure failure;
      if (auto l = tcp_listener::open(context, {a, same}, failure)) {
        listeners.push_back(std::move(*l));
      } else {
        why = failure;
        taken = taken || failure.in_use();
      }
    }
    if (!taken) return listeners;
  }
  return {};
}

/// Every address of this host, in both families.
[[nodiscard]] inline std::vector<ip_address> wildcards() {
  return {boost::asio::ip::address_v4::any(), boost::asio::ip::address_v6::any()};
}

/// A connection on its way.
class tcp_dial {
 public:
  tcp_dial(boost::asio::io_context& context, const tcp::endpoint& to) : socket_{context}, to_{to} {
    socket_.open(to.protocol(), ec_);
    if (!ec_) socket_.non_blocking(true, ec_);
    // Asio's own connect would wait without a deadline.
    if (ec_ || ::connect(socket_.native_handle(), to.data(), static_cast<socklen_t>(to.size())) == 0) return;
    ec_.assign(errno, boost::system::system_category());
  }

  [[nodiscard]] int fd() { return socket_.native_handle(); }
  [[nodiscard]] const tcp::endpoint& to() const noexcept { return to_; }
  [[nodiscard]] bool pending() const { return ec_ == boost::asio::error::in_progress; }
  /// Asks how it went, after poll() said that the socket is writable.
  void look() {
    int code = 0;
    socklen_t length = sizeof code;
    ::getsockopt(fd(), SOL_SOCKET, SO_ERROR, &code, &length);
    ec_.assign(code, boost::system::system_category());
  }
  void give_up() { ec_ = boost::asio::error::timed_out; }
  /// The connection, once; nothing when it failed: see `reason`.
  [[nodiscard]] std::optional<tcp_socket> take() {
    return ec_ ? std::nullopt : std::optional<tcp_socket>{std::in_place, std::move(socket_)};
  }
  [[nodiscard]] std::string reason() const { return ec_.message(); }

 private:
  tcp::socket socket_;
  tcp::endpoint to_;
  boost::system::error_code ec_;
};

}  // namespace hetero::detail
