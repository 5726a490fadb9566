// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/tcp_frame.hpp>
#include <hetero/comm/tcp_socket.hpp>
#include <hetero/comm/transfer_queue.hpp>

namespace hetero::detail {

/// The stream to one peer: frames out, frames in, and the messages that came before anybody asked for them. Not
/// thread-safe; the engine's lock guards it.
class tcp_connection {
 public:
  /// Early messages are kept up to this size in all; beyond it the stream is left unread until someone receives, so
  /// that the sender waits.
  static constexpr std::size_t stash_limit_bytes = std::size_t{64} << 20U;

  tcp_connection(tcp_socket socket, std::uint32_t self) : socket_{std::move(socket)}, self_{self} {}

  [[nodiscard]] int fd() { return socket_.fd(); }
  [[nodiscard]] bool open() const noexcept { return !closed_; }
  [[nodiscard]] bool left() const noexcept { return left_; }
  [[nodiscard]] bool wants_read() const noexcept { return !closed_ && !paused_; }
  [[nodiscard]] bool wants_write() const noexcept {
    return !closed_ && !write_ended_ && (!owned_.empty() || !outgoing_.empty());
  }
  /// True when the last read stopped before the socket was empty; poll() may not tell of what is already here.
  [[nodiscard]] bool stopped_early() const noexcept { return stopped_early_ && wants_read(); }
  /// How the stream broke, once it did.
  [[nodiscard]] const std::string& broken() const noexcept { return broken_; }
  /// What this connection found wrong with the world: a mismatch, or an abort that a peer announced.
  [[nodiscard]] const std::optional<world_failure>& failure() const noexcept { return failure_; }

  /// Starts a transfer. Returns true when a thread that already polls must look at this connection anew.
  bool post(transfer& t) {
    if (t.direction == transfer::way::send) {
      outgoing_.push(t);
      if (outgoing_.front() == &t) write_some();
      return !t.done;
    }
    lane& l = lanes_[t.what.channel];
    if (l.stash.empty()) {
      l.receives.push(t);
    } else {
      early_message message = std::move(l.stash.front());
      l.stash.pop_front();
      stash_bytes_ -= message.bytes;
      deliver(t, message);
    }
    if (!paused_) return false;
    paused_ = false;  // there may be room, or somebody to take it, for the message that was held back
    read_some();
    return true;
  }

  void cancel(transfer& t) noexcept {
    if (t.done) return;
    if (t.direction == transfer::way::send) {
      if (t.moved != 0 && outgoing_.front() == &t) adopt_rest(t);
      outgoing_.remove(t);
    } else if (incoming_ == &t) {
      incoming_ = nullptr;  // the rest of the payload is read and dropped
      target_ = nullptr;
    } else if (const auto found = lanes_.find(t.what.channel); found != lanes_.end()) {
      found->second.receives.remove(t);
    }
  }

  /// Drops what was not yet sent, except the rest of a message that is half out, and queues a control frame behind it.
  void send_control(frame_type type, const world_failure& why) {
    if (closed_) return;
    if (transfer* const head = outgoing_.front(); head != nullptr && head->moved != 0) adopt_rest(*head);
    while (outgoing_.pop() != nullptr) {}
    frame_header h;
    h.type = type;
    h.code = why.code;
    h.origin = why.origin;
    h.bytes = std::min(why.message.size(), max_abort_text_bytes);
    own(std::as_bytes(std::span{&h, 1}));
    own(std::as_bytes(std::span{why.message}.first(h.bytes)));
    write_some();
  }

  /// Writes what the socket takes. Returns true when a transfer was completed.
  bool write_some() {
    bool completed = false;
    while (wants_write()) {
      if (!owned_.empty()) {
        const io_result r = socket_.write(std::span{owned_}.subspan(owned_moved_), {});
        owned_moved_ += r.bytes;
        if (owned_moved_ == owned_.size()) owned_.clear(), owned_moved_ = 0;
        if (write_stopped(r)) break;
        continue;
      }
      transfer& t = *outgoing_.front();
      const frame_header h = header_of(t);
      const auto header = std::as_bytes(std::span{&h, 1});
      const std::span<const std::byte> payload{t.data, t.bytes};
      const std::size_t from_header = std::min(t.moved, header.size());
      const io_result r = socket_.write(header.subspan(from_header), payload.subspan(t.moved - from_header));
      t.moved += r.bytes;
      if (t.moved == header.size() + payload.size()) {
        outgoing_.pop();
        t.done = true;
        completed = true;
      }
      if (write_stopped(r)) break;
    }
    return completed;
  }

  /// Reads what has arrived, and stops early behind a large message so that its receiver can work on it. Returns true
  /// when a transfer was completed.
  bool read_some() {
    completed_ = false;
    stopped_early_ = false;
    drained_ = false;
    while (wants_read() && !failure_) {
      if (in_payload_) {
        if (!read_payload()) break;
        if (in_payload_) continue;
        const bool large = header_.bytes >= large_bytes;
        finish_frame();
        if (large && completed_) {
          stopped_early_ = true;
          break;
        }
      } else if (inbox_end_ - inbox_begin_ >= sizeof(frame_header)) {
        begin_frame();
      } else if (!fill_inbox()) {
        break;
      }
    }
    return completed_;
  }

  /// The end of this side: what was written is still delivered.
  void close() noexcept {
    if (!std::exchange(closed_, true)) socket_.close();
  }
  [[nodiscard]] tcp_socket& socket() noexcept { return socket_; }

 private:
  static constexpr std::size_t large_bytes = std::size_t{64} << 10U;

  struct early_message {
    fingerprint what;
    std::size_t bytes = 0;
    std::unique_ptr<std::byte[]> data;
  };
  struct lane {
    transfer_queue receives;
    std::deque<early_message> stash;
  };

  bool write_stopped(const io_result& r) {
    // A peer that went away may have said why, so the reading side decides what happened.
    if (r.ended()) write_ended_ = true;
    return r.would_block || r.ended();
  }

  bool read_stopped(const io_result& r, std::size_t asked) {
    if (r.ended()) {
      if (!left_) broken_ = r.closed ? closed_text : "broke the connection (" + r.error_text + ')';
      close();
    }
    drained_ = r.bytes < asked;
    return r.would_block || r.ended();
  }

  bool fill_inbox() {
    if (drained_) return false;
    if (inbox_begin_ != 0) {
      std::memmove(inbox_.data(), inbox_.data() + inbox_begin_, inbox_end_ - inbox_begin_);
      inbox_end_ -= std::exchange(inbox_begin_, 0);
    }
    const std::span<std::byte> room = std::span{inbox_}.subspan(inbox_end_);
    const io_result r = socket_.read(room);
    inbox_end_ += r.bytes;
    return !read_stopped(r, room.size());
  }

  void begin_frame() {
    if (!std::exchange(header_known_, true)) {
      std::memcpy(&header_, inbox_.data() + inbox_begin_, sizeof header_);
      if (const std::string fault = fault_of(header_); !fault.empty()) {
        broken_ = "sent " + fault;
        return close();
      }
    }
    incoming_ = nullptr;
    if (header_.type == frame_type::data) {
      lane& l = lanes_[header_.channel];
      if (transfer* const waiting = l.receives.front(); waiting != nullptr) {
        if (waiting->what != header_.what() || waiting->bytes != header_.bytes) {
          failure_ = mismatch_failure(*waiting, self_, header_.what(), header_.bytes);
          return;
        }
        incoming_ = l.receives.pop();
        target_ = incoming_->data;
      } else if (stash_bytes_ + header_.bytes <= stash_limit_bytes) {
        early_ = {header_.what(), header_.bytes, std::make_unique_for_overwrite<std::byte[]>(header_.bytes)};
        stash_bytes_ += header_.bytes;
        target_ = early_.data.get();
      } else {
        paused_ = true;
        return;
      }
    } else {
      text_.resize(header_.bytes);
      target_ = std::as_writable_bytes(std::span{text_}).data();
    }
    inbox_begin_ += sizeof header_;
    header_known_ = false;
    in_payload_ = true;
    got_ = 0;
  }

  /// False when the socket has nothing more. The inbox first, then straight into the target.
  bool read_payload() {
    const std::size_t want = header_.bytes - got_;
    if (const std::size_t here = std::min(want, inbox_end_ - inbox_begin_); here != 0 || want == 0) {
      if (target_ != nullptr && here != 0) std::memcpy(target_ + got_, inbox_.data() + inbox_begin_, here);
      inbox_begin_ += here;
      got_ += here;
    } else {
      if (drained_) return false;
      std::array<std::byte, 4096> dropped;
      const std::span<std::byte> room = target_ != nullptr ? std::span{target_ + got_, want}
                                                           : std::span{dropped}.first(std::min(want, dropped.size()));
      const io_result r = socket_.read(room);
      got_ += r.bytes;
      if (read_stopped(r, room.size())) return false;
    }
    in_payload_ = got_ != header_.bytes;
    return true;
  }

  void finish_frame() {
    if (header_.type == frame_type::goodbye) {
      left_ = true;
    } else if (header_.type == frame_type::abort) {
      failure_ = world_failure{header_.code, header_.origin, text_};
    } else if (incoming_ != nullptr) {
      incoming_->done = true;
      incoming_ = nullptr;
      completed_ = true;
    } else if (early_.data != nullptr) {
      lane& l = lanes_[header_.channel];
      early_message message = std::move(early_);
      if (transfer* const waiting = l.receives.pop(); waiting != nullptr) {
        stash_bytes_ -= message.bytes;
        deliver(*waiting, message);
      } else {
        l.stash.push_back(std::move(message));
      }
    }
    target_ = nullptr;
  }

  void deliver(transfer& t, const early_message& message) {
    if (t.what != message.what || t.bytes != message.bytes) {
      failure_ = mismatch_failure(t, self_, message.what, message.bytes);
      return;
    }
    if (t.bytes != 0) std::memcpy(t.data, message.data.get(), t.bytes);
    t.done = true;
    completed_ = true;
  }

  void adopt_rest(const transfer& t) {
    const frame_header h = header_of(t);
    const std::size_t from_header = std::min(t.moved, sizeof h);
    own(std::as_bytes(std::span{&h, 1}).subspan(from_header));
    own(std::span<const std::byte>{t.data, t.bytes}.subspan(t.moved - from_header));
  }
  void own(std::span<const std::byte> bytes) { owned_.insert(owned_.end(), bytes.begin(), bytes.end()); }

  static constexpr const char* closed_text = "closed its connection without a goodbye (it died or was killed)";

  tcp_socket socket_;
  std::uint32_t self_;
  bool closed_ = false;
  bool write_ended_ = false;
  bool left_ = false;
  std::string broken_;
  std::optional<world_failure> failure_;

  transfer_queue outgoing_;
  std::vector<std::byte> owned_;  ///< goes out before the queue: control frames, and the rest of a cancelled message
  std::size_t owned_moved_ = 0;

  std::map<std::uint64_t, lane> lanes_;  ///< by channel
  std::size_t stash_bytes_ = 0;
  bool paused_ = false;  ///< a known header waits in the inbox
  bool stopped_early_ = false;
  bool drained_ = false;  ///< the last read took all there was

  std::array<std::byte, 4096> inbox_;
  std::size_t inbox_begin_ = 0, inbox_end_ = 0;
  frame_header header_;
  bool header_known_ = false;
  bool in_payload_ = false;
  std::size_t got_ = 0;
  std::byte* target_ = nullptr;
  transfer* incoming_ = nullptr;
  early_message early_;
  std::string text_;
  bool completed_ = false;
};

}  // namespace hetero::detail
