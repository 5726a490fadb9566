// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>  // before Asio: Boost 1.74 uses std::exchange without it

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <hetero/comm/rendezvous_link.hpp>
#include <hetero/comm/tcp_interface.hpp>
#include <hetero/core/error.hpp>

namespace hetero::detail {

using tcp = boost::asio::ip::tcp;

/// "host:port", with brackets around an IPv6 address.
[[nodiscard]] inline std::string endpoint_text(std::string_view host, std::uint16_t port) {
  const bool bare_v6 = host.find(':') != std::string_view::npos && host.front() != '[';
  return (bare_v6 ? '[' + std::string{host} + ']' : std::string{host}) + ':' + std::to_string(port);
}
[[nodiscard]] inline std::string endpoint_text(const tcp::endpoint& at) {
  return endpoint_text(at.address().to_string(), at.port());
}

/// An address as other hosts can use it: which of our interfaces a link-local one belongs to means nothing to them.
[[nodiscard]] inline std::string plain_text(const ip_address& address) {
  return address.is_v6() ? boost::asio::ip::address_v6{address.to_v6().to_bytes()}.to_string() : address.to_string();
}

/// Every address of a host, each once, in the order the system prefers. The host may be a name, an IPv4 or an IPv6
/// address with or without brackets. Blocks for the name service, at most until the deadline.
/// @throws error network when it has none, or the name service does not answer
[[nodiscard]] inline std::vector<ip_address> resolve(std::string_view host, rendezvous_clock::time_point deadline) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  boost::system::error_code bad;
  if (const auto literal = boost::asio::ip::make_address(std::string{host}, bad); !bad) return {literal};

  struct lookup {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    int code = 0;
    std::vector<ip_address> found;
  };
  // The system's lookup cannot be ended; a thread that nobody waits for may outlive this call.
  const auto state = std::make_shared<lookup>();
  std::thread{[state, name = std::string{host}] {
    ::addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    ::addrinfo* list = nullptr;
    const int code = ::getaddrinfo(name.c_str(), nullptr, &hints, &list);
    std::vector<ip_address> found;
    for (const ::addrinfo* i = list; i != nullptr; i = i->ai_next) {
      const auto address = address_of(i->ai_addr);
      if (address && std::find(found.begin(), found.end(), *address) == found.end()) found.push_back(*address);
    }
    if (list != nullptr) ::freeaddrinfo(list);
    const std::lock_guard lock{state->mutex};
    state->done = true;
    state->code = code;
    state->found = std::move(found);
    state->changed.notify_all();
  }}.detach();
  std::unique_lock lock{state->mutex};
  const bool answered = state->changed.wait_until(lock, deadline, [&] { return state->done; });
  require(answered && !state->found.empty(), errc::network, [&] {
    return "the address '" + std::string{host} + "' cannot be resolved (" +
           (!answered ? "the name service does not answer" : ::gai_strerror(state->code)) +
           "); set MASTER_ADDR to an address or a name that every rank knows";
  });
  return state->found;
}

/// The rule that protects a job without keys: it stays on this host.
/// @throws error unauthenticated when an address is not loopback and nobody allowed that
inline void check_reach(const std::vector<ip_address>& addresses, std::string_view host, bool allowed) {
  for (const auto& a : addresses) {
    require(allowed || a.is_loopback(), errc::unauthenticated, [&] {
      return "MASTER_ADDR '" + std::string{host} + "' is " + a.to_string() +
             ", which other machines reach, and connections are not authenticated; use 127.0.0.1 for ranks of one "
             "host, or set join_options::allow_unauthenticated on a network you trust";
    });
  }
}

/// Whether this host itself has the address.
[[nodiscard]] inline bool is_own(boost::asio::io_context& context, const ip_address& address) {
  boost::system::error_code ec;
  boost::asio::ip::udp::socket socket{context};
  const boost::asio::ip::udp::endpoint at{address, 0};
  socket.open(at.protocol(), ec);
  if (!ec) socket.bind(at, ec);
  return !ec;
}

/// Nothing when every address is IPv6 and this host has switched that off; then nobody can use them.
/// @throws error network
inline void require_family(boost::asio::io_context& context, const std::vector<ip_address>& addresses,
                           std::string_view host) {
  const bool only_v6 = std::all_of(addresses.begin(), addresses.end(), [](const auto& a) { return a.is_v6(); });
  require(!only_v6 || is_own(context, boost::asio::ip::address_v6::loopback()), errc::network, [&] {
    return "MASTER_ADDR '" + std::string{host} + "' is " + addresses.front().to_string() +
           ", and IPv6 is switched off on this host; set MASTER_ADDR to an IPv4 address of rank 0's host, or switch "
           "IPv6 on (sysctl net.ipv6.conf.all.disable_ipv6=0)";
  });
}

/// The own address that the route to another one starts from; no packet is sent.
[[nodiscard]] inline std::optional<ip_address> source_for(boost::asio::io_context& context, const ip_address& to) {
  boost::system::error_code ec;
  boost::asio::ip::udp::socket socket{context};
  const boost::asio::ip::udp::endpoint at{to, 9};
  socket.open(at.protocol(), ec);
  if (!ec) socket.connect(at, ec);
  if (ec) return std::nullopt;
  const auto own = socket.local_endpoint(ec).address();
  return ec || own.is_unspecified() ? std::nullopt : std::optional{own};
}

/// The way to an address as error texts name it: "from 10.0.0.2 on eth0".
[[nodiscard]] inline std::string route_text(boost::asio::io_context& context, const ip_address& to) {
  const auto own = source_for(context, to);
  if (!own) return "this host has no route there";
  for (const interface_address& i : interface_addresses()) {
    if (i.address == *own) return "from " + own->to_string() + " on " + i.name;
  }
  return "from " + own->to_string();
}

}  // namespace hetero::detail
