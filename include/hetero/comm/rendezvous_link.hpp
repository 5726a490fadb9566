// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <hetero/comm/rendezvous_message.hpp>
#include <hetero/comm/tcp_socket.hpp>

namespace hetero::detail {

using rendezvous_clock = std::chrono::steady_clock;

/// Milliseconds for poll() until a deadline, never negative and at most `most`.
[[nodiscard]] inline int poll_timeout(rendezvous_clock::time_point deadline, std::chrono::milliseconds most) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - rendezvous_clock::now());
  return static_cast<int>(std::clamp(left, std::chrono::milliseconds{0}, most).count());
}

/// A connection that carries rendezvous messages. Reads never take a byte beyond the message, because the same stream
/// later carries data.
class rendezvous_link {
 public:
  enum class state : std::uint8_t { partial, message, closed, foreign };

  explicit rendezvous_link(tcp_socket socket) : socket_{std::move(socket)} {}

  [[nodiscard]] int fd() { return socket_.fd(); }
  [[nodiscard]] tcp_socket& socket() noexcept { return socket_; }
  [[nodiscard]] tcp_socket release() noexcept { return std::move(socket_); }

  /// Reads what is there. `message` when one is complete: then `kind`, `version` and `body` describe it. `foreign` when
  /// the other side does not speak this protocol.
  [[nodiscard]] state receive(std::uint32_t max_body_bytes) {
    if (got_ == sizeof prefix_ + prefix_.bytes) got_ = 0;
    while (true) {
      std::span<std::byte> room;
      if (got_ < sizeof prefix_) {
        room = std::as_writable_bytes(std::span{&prefix_, 1}).subspan(got_);
      } else {
        room = std::as_writable_bytes(std::span{body_}).subspan(got_ - sizeof prefix_);
        if (room.empty()) return state::message;
      }
      const io_result r = socket_.read(room);
      got_ += r.bytes;
      if (r.ended()) return state::closed;
      if (r.would_block) return state::partial;
      if (got_ <= sizeof prefix_) {
        const std::size_t known = std::min(got_, prefix_.magic.size());
        if (!std::equal(prefix_.magic.begin(), prefix_.magic.begin() + static_cast<std::ptrdiff_t>(known),
                        rendezvous_prefix::magic_value.begin())) {
          return state::foreign;
        }
        if (got_ < sizeof prefix_) continue;
        if (prefix_.bytes > max_body_bytes) return state::foreign;
        body_.resize(prefix_.bytes);
      }
    }
  }

  /// Blocks for one message until the deadline; `partial` when it passed.
  [[nodiscard]] state await(std::uint32_t max_body_bytes, rendezvous_clock::time_point deadline) {
    while (true) {
      const state s = receive(max_body_bytes);
      if (s != state::partial || rendezvous_clock::now() >= deadline) return s;
      pollfd readable{fd(), POLLIN, 0};
      ::poll(&readable, 1, poll_timeout(deadline, std::chrono::seconds{60}));
    }
  }

  [[nodiscard]] rendezvous_kind kind() const noexcept { return prefix_.kind; }
  [[nodiscard]] std::uint32_t version() const noexcept { return prefix_.version; }
  [[nodiscard]] const std::string& body() const noexcept { return body_; }

  /// Sends a message; waits at most until the deadline for room. False when the peer is gone or takes nothing.
  bool send(rendezvous_kind kind, std::string_view body, rendezvous_clock::time_point deadline) {
    rendezvous_prefix prefix;
    prefix.kind = kind;
    prefix.bytes = static_cast<std::uint32_t>(body.size());
    std::string bytes(sizeof prefix, '\0');
    std::memcpy(bytes.data(), &prefix, sizeof prefix);
    bytes += body;
    std::span<const std::byte> rest = std::as_bytes(std::span{bytes});
    while (!rest.empty()) {
      const io_result r = socket_.write(rest, {});
      rest = rest.subspan(r.bytes);
      if (r.ended()) return false;
      if (!r.would_block) continue;
      if (rendezvous_clock::now() >= deadline) return false;
      pollfd writable{fd(), POLLOUT, 0};
      ::poll(&writable, 1, poll_timeout(deadline, std::chrono::seconds{60}));
    }
    return true;
  }

 private:
  tcp_socket socket_;
  rendezvous_prefix prefix_;
  std::string body_;
  std::size_t got_ = 0;  // of prefix and body
};

}  // namespace hetero::detail
