// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/frame.hpp>
#include <hetero/comm/mailbox.hpp>
#include <hetero/comm/tcp_socket.hpp>

namespace hetero::detail {

/// One part of a message on its way out: a header and a piece of the sender's memory.
struct outgoing_part {
  transfer* from = nullptr;  ///< null: the sender took its memory back
  frame_header header;
  const std::byte* data = nullptr;
  std::size_t moved = 0;              ///< of header and payload
  std::unique_ptr<std::byte[]> copy;  ///< of the payload once the sender took its memory back

  void detach() {
    copy = std::make_unique_for_overwrite<std::byte[]>(header.bytes);
    if (header.bytes != 0) std::memcpy(copy.get(), data, header.bytes);
    data = copy.get();
    from = nullptr;
  }

  [[nodiscard]] std::size_t size() const noexcept { return sizeof header + header.bytes; }
};

/// Frames over one socket, out and in. Not thread-safe; never blocks.
class tcp_stream {
 public:
  explicit tcp_stream(tcp_socket socket) : socket_{std::move(socket)} {}

  [[nodiscard]] int fd() { return socket_.fd(); }
  [[nodiscard]] tcp_socket& socket() noexcept { return socket_; }
  [[nodiscard]] bool open() const noexcept { return !closed_; }
  [[nodiscard]] bool wants_read() const noexcept { return !closed_ && !held_; }
  [[nodiscard]] bool wants_write() const noexcept {
    return !closed_ && !write_ended_ && (!owned_.empty() || !outgoing_.empty());
  }
  /// True when the last read stopped before the socket was empty; poll() may not tell of what is already here.
  [[nodiscard]] bool stopped_early() const noexcept { return stopped_early_ && wants_read(); }
  /// Bytes that this side has written and read.
  [[nodiscard]] std::uint64_t moved_bytes() const noexcept { return moved_bytes_; }
  /// How the stream ended or broke, once it did.
  [[nodiscard]] const std::string& broken() const noexcept { return broken_; }
  /// A header that was held back may go on: there may be room, or somebody to take it, or its message has begun.
  [[nodiscard]] bool release() noexcept { return std::exchange(held_, false); }

  void send(outgoing_part part) {
    outgoing_.push_back(std::move(part));
    if (outgoing_.size() == 1) write_some();
  }

  /// Whether any of `t` went out.
  [[nodiscard]] bool has_begun(const transfer& t) const noexcept {
    return std::any_of(outgoing_.begin(), outgoing_.end(),
                       [&](const outgoing_part& p) { return p.from == &t && p.moved != 0; });
  }

  /// Lets go of the memory of `t`: parts that the peer waits for go on from a copy, others are dropped.
  void cancel(const transfer& t, bool peer_waits) {
    for (auto part = outgoing_.begin(); part != outgoing_.end();) {
      if (part->from == &t && !peer_waits) {
        part = outgoing_.erase(part);
        continue;
      }
      if (part->from == &t) part->detach();
      ++part;
    }
  }

  /// Bytes that go out before anything that is not half out already.
  void own(std::span<const std::byte> bytes) {
    if (!outgoing_.empty() && outgoing_.front().moved != 0) {
      // The frame in progress must end first; everything behind it stays behind.
      after_front_.insert(after_front_.end(), bytes.begin(), bytes.end());
    } else {
      owned_.insert(owned_.end(), bytes.begin(), bytes.end());
    }
  }

  /// Forgets what was not begun.
  void drop_queue() {
    const bool keep = !outgoing_.empty() && outgoing_.front().moved != 0;
    outgoing_.erase(outgoing_.begin() + (keep ? 1 : 0), outgoing_.end());
    if (keep && outgoing_.front().from != nullptr) outgoing_.front().detach();
  }

  /// Writes what the socket takes.
  void write_some() {
    while (wants_write()) {
      if (!owned_.empty()) {
        const io_result r = socket_.write(std::span{owned_}.subspan(owned_moved_), {});
        owned_moved_ += r.bytes;
        moved_bytes_ += r.bytes;
        if (owned_moved_ == owned_.size()) owned_.clear(), owned_moved_ = 0;
        if (write_stopped(r)) break;
        continue;
      }
      outgoing_part& part = outgoing_.front();
      const auto header = std::as_bytes(std::span{&part.header, 1});
      const std::span<const std::byte> payload{part.data, part.header.bytes};
      const std::size_t from_header = std::min(part.moved, header.size());
      const io_result r = socket_.write(header.subspan(from_header), payload.subspan(part.moved - from_header));
      part.moved += r.bytes;
      moved_bytes_ += r.bytes;
      if (part.moved == part.size()) {
        if (part.from != nullptr && --part.from->parts == 0) part.from->done = true;
        outgoing_.pop_front();
        std::swap(owned_, after_front_);  // empty unless something waited for the end of this frame
      }
      if (write_stopped(r)) break;
    }
  }

  /// Reads what has arrived, and stops early behind a large message so that its receiver can work on it.
  ///
  /// `h.begin(header, part)` prepares where the payload goes and returns false when the frame must wait (the header is
  /// kept) or the stream must end (then `h` refused it); `h.end(header, part)` is told of its last byte and returns
  /// true when a transfer was completed by it.
  template <class Handler> void read_some(Handler& h) {
    stopped_early_ = false;
    drained_ = false;
    while (wants_read()) {
      if (in_payload_) {
        if (part_.missing() != 0 && !read_payload()) break;
        if (part_.missing() != 0) continue;
        in_payload_ = false;
        const bool completed = h.end(header_, part_);
        if (completed && header_.bytes >= large_bytes) {
          stopped_early_ = true;
          break;
        }
      } else if (header_known_ || inbox_end_ - inbox_begin_ >= sizeof(frame_header)) {
        if (!std::exchange(header_known_, true)) {
          std::memcpy(&header_, inbox_.data() + inbox_begin_, sizeof header_);
          inbox_begin_ += sizeof header_;
          if (const std::string fault = fault_of(header_); !fault.empty()) return refuse("sent " + fault);
        }
        if (!h.begin(header_, part_)) {
          held_ = !closed_;
          break;
        }
        header_known_ = false;
        in_payload_ = true;
      } else if (!fill_inbox()) {
        break;
      }
    }
  }

  /// The peer sent what no sound peer sends.
  void refuse(std::string how) {
    broken_ = std::move(how);
    close();
  }
  /// The stream ended, without an error.
  [[nodiscard]] bool ended() const noexcept { return ended_; }

  void close() noexcept {
    if (!std::exchange(closed_, true)) socket_.close();
  }

 private:
  static constexpr std::size_t large_bytes = std::size_t{64} << 10U;
  static constexpr const char* closed_text = "closed its connection without a goodbye (it died or was killed)";

  bool write_stopped(const io_result& r) {
    // A peer that went away may have said why, so the reading side decides what happened.
    if (r.ended()) write_ended_ = true;
    return r.would_block || r.ended();
  }

  bool read_stopped(const io_result& r, std::size_t asked) {
    if (r.ended()) {
      ended_ = r.closed;
      broken_ = r.closed ? closed_text : "broke the connection (" + r.error_text + ')';
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
    moved_bytes_ += r.bytes;
    return !read_stopped(r, room.size()) || r.bytes != 0;
  }

  /// False when the socket has nothing more. The inbox first, then straight into the target.
  bool read_payload() {
    if (const std::size_t here = std::min(part_.missing(), inbox_end_ - inbox_begin_); here != 0) {
      part_.put(inbox_.data() + inbox_begin_, here);
      inbox_begin_ += here;
      return true;
    }
    if (drained_) return false;
    const std::span<std::byte> room = part_.room();
    const io_result r = socket_.read(room);
    part_.filled(r.bytes);
    moved_bytes_ += r.bytes;
    return !read_stopped(r, room.size()) || r.bytes != 0;
  }

  tcp_socket socket_;
  std::uint64_t moved_bytes_ = 0;
  bool closed_ = false;
  bool write_ended_ = false;
  bool ended_ = false;
  std::string broken_;

  std::deque<outgoing_part> outgoing_;
  std::vector<std::byte> owned_;  ///< control frames; go out before the queue
  std::size_t owned_moved_ = 0;
  std::vector<std::byte> after_front_;  ///< control frames that wait for the end of the frame in progress

  bool held_ = false;  ///< a known header must wait
  bool stopped_early_ = false;
  bool drained_ = false;  ///< the last read took all there was
  std::array<std::byte, 4096> inbox_;
  std::size_t inbox_begin_ = 0, inbox_end_ = 0;
  frame_header header_;
  bool header_known_ = false;
  bool in_payload_ = false;
  arrival_part part_;
};

}  // namespace hetero::detail
