// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <hetero/comm/traffic.hpp>
#include <hetero/comm/transport.hpp>

namespace hetero::detail {

/// What a collective algorithm needs: numbered peers, messages that overlap, and a count of its rounds.
template <class E>
concept exchange = requires(E& e, transfer& t, const std::byte* from, std::byte* to, std::size_t bytes,
                            std::uint32_t peer, combiner combine) {
  { e.rank() }
  noexcept->std::same_as<std::uint32_t>;
  { e.world_size() }
  noexcept->std::same_as<std::uint32_t>;
  e.start_send(t, from, bytes, peer);
  e.start_recv(t, to, bytes, peer);
  e.start_recv(t, to, bytes, peer, combine);
  e.finish(t);
  e.count_round();
};

[[noreturn]] inline void throw_overflow(dtype type) {
  throw error{errc::invalid_argument, std::string{"the sum over the ranks does not fit "} + to_string(type) +
                                          "; reduce in a wider type, such as i64"};
}

/// One call of a rank on one channel: its fingerprint, its deadline and its group. Every message of it starts here.
class operation {
 public:
  struct settings {
    transport* carrier;
    traffic_meter* meter;
    std::span<const std::uint32_t> members;  ///< rank in the transport of each rank of the group
    std::uint32_t rank;                      ///< in the group
    fingerprint what;
    std::string_view channel_name;
    traffic_class traffic;
    std::chrono::milliseconds timeout;
  };

  explicit operation(const settings& s) : s_{s}, deadline_{transport::clock::now() + s.timeout} {}

  [[nodiscard]] std::uint32_t rank() const noexcept { return s_.rank; }
  [[nodiscard]] std::uint32_t world_size() const noexcept { return static_cast<std::uint32_t>(s_.members.size()); }

  void start_send(transfer& t, const std::byte* data, std::size_t bytes, std::uint32_t peer) {
    // The transport only reads from a transfer that sends.
    prepare(t, transfer::way::send, const_cast<std::byte*>(data), bytes, peer);
    s_.meter->sent(s_.traffic, bytes);
    s_.carrier->post(t);
  }

  /// `bytes` is the length of the message; with a combiner, `data` has room for as many elements.
  void start_recv(transfer& t, std::byte* data, std::size_t bytes, std::uint32_t peer, combiner combine = {}) {
    prepare(t, transfer::way::recv, data, bytes, peer);
    t.combine = combine;
    s_.meter->received(s_.traffic, bytes);
    s_.carrier->post(t);
  }

  /// Blocks until the transfer, if it was started, is done.
  /// @throws error with the code of the world's failure; timeout, which also ends the world; invalid_argument when an
  /// integer sum of its combiner left its type
  void finish(transfer& t) {
    if (t.carrier == nullptr) return;
    transfer* const one = &t;
    switch (s_.carrier->wait({&one, 1}, deadline_)) {
      case transport::status::done:
        t.carrier = nullptr;
        if (t.overflowed) throw_overflow(s_.what.type);
        return;
      case transport::status::timeout:
        s_.carrier->abort(timeout_failure(t));
        break;
      case transport::status::failed:
        break;
    }
    throw_failure(t);
  }

  /// What later messages carry as their type and count, in collectives where each pair of ranks has its own.
  void describe(dtype type, std::size_t count) noexcept {
    s_.what.type = type;
    s_.what.count = count;
  }

  void count_round() noexcept { s_.meter->round(s_.traffic); }

 private:
  void prepare(transfer& t, transfer::way way, std::byte* data, std::size_t bytes, std::uint32_t peer) {
    t.direction = way;
    t.peer = s_.members[peer];
    t.what = s_.what;
    t.channel_name = s_.channel_name;
    t.data = data;
    t.bytes = bytes;
    t.done = false;
    t.overflowed = false;
    t.moved = 0;
    t.next = nullptr;
    t.carrier = s_.carrier;
  }

  [[nodiscard]] world_failure timeout_failure(const transfer& t) const {
    return {errc::timeout, s_.carrier->rank(),
            "rank " + std::to_string(s_.carrier->rank()) + " waited " + std::to_string(s_.timeout.count()) + " ms in " +
                to_string(t.what) + " on channel '" + std::string{t.channel_name} + "' for rank " +
                std::to_string(t.peer) + ", which " +
                (t.direction == transfer::way::recv ? "sent nothing" : "took nothing") +
                "; if it is only slow, raise set_timeout"};
  }

  [[noreturn]] void throw_failure(const transfer& t) const {
    const world_failure why = s_.carrier->failure();
    std::string text = why.message;
    if (why.origin != s_.carrier->rank()) {
      text += "; reported by rank " + std::to_string(why.origin) + ", rank " + std::to_string(s_.carrier->rank()) +
              " was in " + to_string(t.what) + " on channel '" + std::string{t.channel_name} + '\'';
    }
    throw error{why.code, std::move(text), {rank_id{s_.carrier->rank()}, {}}};
  }

  settings s_;
  transport::clock::time_point deadline_;
};

static_assert(exchange<operation>);

}  // namespace hetero::detail
