// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/mailbox.hpp>
#include <hetero/comm/tcp_stream.hpp>

namespace hetero::detail {

/// The connection to one peer: a first stream that carries every message in order, and further ones that carry parts of
/// the large. Not thread-safe; the engine's lock guards it.
class tcp_connection {
 public:
  /// Messages from this size on are cut over all streams.
  static constexpr std::size_t striped_bytes = std::size_t{256} << 10U;

  tcp_connection(std::vector<tcp_socket> sockets, std::uint32_t self) : inbox_{self} {
    for (tcp_socket& s : sockets) streams_.emplace_back(std::move(s));
    striped_.resize(streams_.size());
  }

  [[nodiscard]] std::deque<tcp_stream>& streams() noexcept { return streams_; }
  /// True once the peer said goodbye and all of its messages are here: other streams may be behind the goodbye's.
  [[nodiscard]] tcp_socket& socket() noexcept { return streams_.front().socket(); }
  [[nodiscard]] bool left() const noexcept { return left_ && !inbox_.incomplete(); }
  [[nodiscard]] bool open() const noexcept { return streams_.front().open(); }
  /// True when data is expected or on its way out: looking at the sockets can be worth it.
  [[nodiscard]] bool active() const noexcept { return inbox_.expects() || wants_write(); }
  [[nodiscard]] bool wants_write() const noexcept {
    return std::any_of(streams_.begin(), streams_.end(), [](const tcp_stream& s) { return s.wants_write(); });
  }
  [[nodiscard]] bool stopped_early() const noexcept {
    return std::any_of(streams_.begin(), streams_.end(), [](const tcp_stream& s) { return s.stopped_early(); });
  }
  /// How the connection broke, once it did. A peer that has left may close as it likes.
  [[nodiscard]] const std::string& broken() const noexcept {
    static const std::string intact;
    if (left_) return intact;
    if (!streams_.front().broken().empty()) return streams_.front().broken();
    for (const tcp_stream& s : streams_) {
      if (!s.broken().empty() && !s.ended()) return s.broken();  // an orderly end counts on the first stream alone
    }
    return intact;
  }
  /// What this connection found wrong with the world: a mismatch, or an abort that a peer announced.
  [[nodiscard]] const std::optional<world_failure>& failure() const noexcept {
    return abort_ ? abort_ : inbox_.failure();
  }

  /// Starts a transfer. Returns true when a thread that already polls must look at this connection anew.
  bool post(transfer& t) {
    if (t.direction == transfer::way::send) {
      send(t);
      return !t.done;
    }
    inbox_.post(t);
    if (!release_streams()) return false;
    read_some();
    return true;
  }

  void cancel(transfer& t) noexcept {
    if (t.done) return;
    if (t.direction == transfer::way::recv) return inbox_.cancel(t);
    // Once a part of a message went out, the peer waits for all of it.
    const bool begun = t.parts != t.parts_in_all || std::any_of(streams_.begin(), streams_.end(),
                                                                [&](const tcp_stream& s) { return s.has_begun(t); });
    for (tcp_stream& s : streams_) s.cancel(t, begun);
  }

  /// Drops what was not yet sent, except the rest of frames that are half out, and queues a control frame behind them.
  void send_control(frame_type type, const world_failure& why) {
    if (!open()) return;
    for (tcp_stream& s : streams_) s.drop_queue();
    frame_header h;
    h.type = type;
    h.code = why.code;
    h.origin = why.origin;
    h.bytes = std::min(why.message.size(), max_abort_text_bytes);
    tcp_stream& first = streams_.front();
    first.own(std::as_bytes(std::span{&h, 1}));
    first.own(std::as_bytes(std::span{why.message}.first(h.bytes)));
    first.write_some();
  }

  /// Tells the peer to look into the shared memory.
  void ring_bell() {
    if (!open()) return;
    frame_header h;
    h.type = frame_type::bell;
    streams_.front().own(std::as_bytes(std::span{&h, 1}));
    streams_.front().write_some();
  }

  /// Moves what the sockets take and have. Returns true when any byte was.
  bool progress() {
    const std::uint64_t before = moved_bytes();
    write_some();
    read_some();
    return moved_bytes() != before;
  }
  void write_some() {
    for (tcp_stream& s : streams_) s.write_some();
  }
  void read_some() {
    for (std::size_t i = 0; i < streams_.size() && !failure(); ++i) {
      frame_reader reader{*this, i};
      streams_[i].read_some(reader);
    }
    (void)inbox_.take_completed();
  }

  /// The end of this side: what was written is still delivered.
  void close() noexcept {
    for (tcp_stream& s : streams_) s.close();
  }

 private:
  /// The bytes of part `index` of a message: whole cache lines, so that no element is cut.
  struct cut {
    std::size_t begin = 0, bytes = 0;
  };
  [[nodiscard]] cut cut_of(std::size_t total, std::size_t index) const noexcept {
    constexpr std::size_t line = 64;
    const std::size_t each = (total / line + streams_.size() - 1) / streams_.size() * line;
    const std::size_t begin = std::min(total, each * index);
    return {begin, index + 1 == streams_.size() ? total - begin : std::min(total, begin + each) - begin};
  }
  [[nodiscard]] bool is_striped(std::size_t total) const noexcept {
    return streams_.size() > 1 && total >= striped_bytes;
  }

  void send(transfer& t) {
    const bool striped = is_striped(t.bytes);
    t.parts = t.parts_in_all = striped ? static_cast<std::uint32_t>(streams_.size()) : 1;
    for (std::size_t i = 0; i < t.parts_in_all; ++i) {
      const cut c = striped ? cut_of(t.bytes, i) : cut{0, t.bytes};
      outgoing_part part{&t, header_of(t), t.data + c.begin, 0, nullptr};
      part.header.bytes = c.bytes;
      if (i != 0) {
        part.header.type = frame_type::part;
        part.header.sequence = striped_sent_;
      }
      streams_[i].send(std::move(part));
    }
    if (striped) ++striped_sent_;
  }

  [[nodiscard]] std::uint64_t moved_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const tcp_stream& s : streams_) sum += s.moved_bytes();
    return sum;
  }

  bool release_streams() noexcept {
    bool any = false;
    for (tcp_stream& s : streams_) any |= s.release();
    return any;
  }

  /// What one stream reads goes to the connection's mailbox.
  struct frame_reader {
    tcp_connection& c;
    std::size_t stream;
    bool begin(const frame_header& h, arrival_part& part) { return c.begin_frame(stream, h, part); }
    bool end(const frame_header& h, arrival_part& part) { return c.end_frame(h, part); }
  };

  bool begin_frame(std::size_t stream, const frame_header& h, arrival_part& part) {
    switch (h.type) {
      case frame_type::data: {
        const bool striped = is_striped(h.total);
        if (h.bytes != (striped ? cut_of(h.total, 0).bytes : h.total)) return refuse_lengths(stream);
        arrival* const a =
            inbox_.announce(h.what(), h.total, striped ? static_cast<std::uint32_t>(streams_.size()) : 1);
        if (a == nullptr) return false;
        part.begin(a, 0, h.bytes);
        for (std::size_t i = 1; striped && i < streams_.size(); ++i) {
          striped_[i].push_back(a);
          (void)streams_[i].release();  // read_some comes to it after this stream
        }
        return true;
      }
      case frame_type::part: {
        if (stream == 0 || striped_[stream].empty()) return false;  // its message has not begun on the first stream
        const cut c = cut_of(striped_[stream].front()->bytes, stream);
        if (h.bytes != c.bytes) return refuse_lengths(stream);
        part.begin(striped_[stream].front(), c.begin, c.bytes);
        striped_[stream].pop_front();
        return true;
      }
      case frame_type::bell:
      case frame_type::goodbye:
        part.begin(&control_, 0, 0);
        return true;
      case frame_type::abort:
        control_.early = std::make_unique<std::byte[]>(std::max<std::size_t>(1, h.bytes));
        part.begin(&control_, 0, h.bytes);
        return true;
    }
    return false;
  }

  bool refuse_lengths(std::size_t stream) {
    streams_[stream].refuse("sent a frame whose length does not fit its message");
    return false;
  }

  bool end_frame(const frame_header& h, arrival_part& part) {
    switch (h.type) {
      case frame_type::data:
      case frame_type::part: {
        inbox_.part_ended(part.message());
        return inbox_.completed();
      }
      case frame_type::bell:
        return true;
      case frame_type::goodbye:
        left_ = true;
        return false;
      case frame_type::abort:
        abort_ = world_failure{h.code, h.origin, {reinterpret_cast<const char*>(control_.early.get()), h.bytes}};
        return false;
    }
    return false;
  }

  std::deque<tcp_stream> streams_;
  mailbox inbox_;
  std::vector<std::deque<arrival*>> striped_;  ///< by stream: messages whose part there has not begun
  std::uint64_t striped_sent_ = 0;
  arrival control_;
  bool left_ = false;
  std::optional<world_failure> abort_;
};

}  // namespace hetero::detail
