// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>  // before Asio: Boost 1.74 uses std::exchange without it

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include <hetero/comm/rendezvous_link.hpp>
#include <hetero/comm/tcp_socket.hpp>
#include <hetero/core/error.hpp>

namespace hetero::detail {

using tcp = boost::asio::ip::tcp;

/// "host:port", with brackets around an IPv6 address.
[[nodiscard]] inline std::string endpoint_text(std::string_view host, std::uint16_t port) {
  const bool bare_v6 = host.find(':') != std::string_view::npos && host.front() != '[';
  return (bare_v6 ? '[' + std::string{host} + ']' : std::string{host}) + ':' + std::to_string(port);
}

/// Every address of a host, which may be a name, an IPv4 or an IPv6 address with or without brackets.
/// @throws error network when it has none
[[nodiscard]] inline std::vector<boost::asio::ip::address> resolve(boost::asio::io_context& context,
                                                                   std::string_view host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  boost::system::error_code ec;
  tcp::resolver resolver{context};
  std::vector<boost::asio::ip::address> out;
  for (const auto& entry : resolver.resolve(std::string{host}, "", ec)) out.push_back(entry.endpoint().address());
  require(!out.empty(), errc::network, [&] {
    return "the address '" + std::string{host} + "' cannot be resolved (" + ec.message() +
           "); set MASTER_ADDR to an address or a name that every rank knows";
  });
  return out;
}

/// The rule that protects a job without keys: it stays on this host.
/// @throws error unauthenticated when an address is not loopback and nobody allowed that
inline void check_reach(const std::vector<boost::asio::ip::address>& addresses, std::string_view host, bool allowed) {
  for (const auto& a : addresses) {
    require(allowed || a.is_loopback(), errc::unauthenticated, [&] {
      return "MASTER_ADDR '" + std::string{host} + "' is " + a.to_string() +
             ", which other machines reach, and connections are not authenticated; use 127.0.0.1 for ranks of one "
             "host, or set "
             "join_options::allow_unauthenticated on a network you trust";
    });
  }
}

/// A socket that accepts connections on one address.
class tcp_listener {
 public:
  /// Nothing when the address cannot be used; `why` then says so, and `in_use` whether somebody else has the port.
  [[nodiscard]] static std::optional<tcp_listener> open(boost::asio::io_context& context, const tcp::endpoint& at,
                                                        std::string& why, bool& in_use) {
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
    in_use = in_use || ec == boost::asio::error::address_in_use;
    why = endpoint_text(at.address().to_string(), at.port()) + ": " + ec.message();
    return std::nullopt;
  }

  [[nodiscard]] int fd() { return acceptor_.native_handle(); }
  [[nodiscard]] std::uint16_t port() const {
    boost::system::error_code ec;
    return acceptor_.local_endpoint(ec).port();
  }

  /// The next connection that waits, if one does.
  [[nodiscard]] std::optional<tcp_socket> accept() {
    boost::system::error_code ec;
    tcp::socket socket = acceptor_.accept(ec);
    if (ec) return std::nullopt;
    return tcp_socket{std::move(socket)};
  }

 private:
  explicit tcp_listener(tcp::acceptor acceptor) : acceptor_{std::move(acceptor)} {}
  tcp::acceptor acceptor_;
};

/// Connects, waiting at most until the deadline. Nothing when that fails; `why` then says so.
[[nodiscard]] inline std::optional<tcp_socket> connect(boost::asio::io_context& context, const tcp::endpoint& to,
                                                       rendezvous_clock::time_point deadline, std::string& why) {
  boost::system::error_code ec;
  tcp::socket socket{context};
  socket.open(to.protocol(), ec);
  if (!ec) socket.non_blocking(true, ec);
  // Asio's own connect would wait without a deadline.
  if (!ec && ::connect(socket.native_handle(), to.data(), static_cast<socklen_t>(to.size())) != 0) {
    ec.assign(errno, boost::system::system_category());
    if (ec == boost::asio::error::in_progress) {
      pollfd writable{socket.native_handle(), POLLOUT, 0};
      if (::poll(&writable, 1, poll_timeout(deadline, std::chrono::seconds{60})) > 0) {
        int code = 0;
        socklen_t length = sizeof code;
        ::getsockopt(socket.native_handle(), SOL_SOCKET, SO_ERROR, &code, &length);
        ec.assign(code, boost::system::system_category());
      } else {
        ec = boost::asio::error::timed_out;
      }
    }
  }
  if (!ec) return tcp_socket{std::move(socket)};
  why = endpoint_text(to.address().to_string(), to.port()) + ": " + ec.message();
  return std::nullopt;
}

}  // namespace hetero::detail
