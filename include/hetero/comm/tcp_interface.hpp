// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>  // before Asio: Boost 1.74 uses std::exchange without it

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <optional>
#include <string>
#include <vector>

#include <hetero/comm/tcp_socket.hpp>

namespace hetero::detail {

using ip_address = boost::asio::ip::address;

/// Nothing for an address of another family than IPv4 and IPv6.
[[nodiscard]] inline std::optional<ip_address> address_of(const ::sockaddr* address) {
  if (address != nullptr && address->sa_family == AF_INET) {
    const auto* const a = reinterpret_cast<const ::sockaddr_in*>(address);
    return boost::asio::ip::address_v4{ntohl(a->sin_addr.s_addr)};
  }
  if (address != nullptr && address->sa_family == AF_INET6) {
    const auto* const a = reinterpret_cast<const ::sockaddr_in6*>(address);
    boost::asio::ip::address_v6::bytes_type bytes;
    std::copy_n(a->sin6_addr.s6_addr, bytes.size(), bytes.begin());
    return boost::asio::ip::address_v6{bytes, a->sin6_scope_id};
  }
  return std::nullopt;
}

/// One address of a network interface that is up.
struct interface_address {
  std::string name;
  ip_address address;
};

[[nodiscard]] inline std::vector<interface_address> interface_addresses() {
  std::vector<interface_address> all;
  ::ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return all;
  for (const ::ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    const auto address = address_of(i->ifa_addr);
    if (address && (i->ifa_flags & IFF_UP) != 0) all.push_back({i->ifa_name, *address});
  }
  ::freeifaddrs(list);
  return all;
}

/// "interface eth0": the one whose address this end of a connection has.
[[nodiscard]] inline std::string interface_of(tcp_socket& socket) {
  boost::system::error_code ec;
  const ip_address own = socket.get().local_endpoint(ec).address();
  if (ec) return "a closed connection";
  for (const interface_address& i : interface_addresses()) {
    if (i.address == own) return "interface " + i.name;
  }
  return "address " + own.to_string();
}

}  // namespace hetero::detail
