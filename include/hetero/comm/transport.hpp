// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <hetero/comm/reduce_op.hpp>
#include <hetero/comm/tuning.hpp>
#include <hetero/core/dtype.hpp>
#include <hetero/core/error.hpp>
#include <hetero/core/ids.hpp>

/// @file
/// The seam under `world`: a transport moves tagged messages between the ranks of one job and knows nothing of
/// collectives.
namespace hetero {

/// The call that a message belongs to.
enum class operation_kind : std::uint8_t {
  message,
  all_reduce,
  broadcast,
  all_gather,
  barrier,
  reduce,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  neighbour_exchange
};
inline constexpr std::size_t operation_kinds = 11;

[[nodiscard]] constexpr const char* to_string(operation_kind kind) noexcept {
  constexpr const char* names[] = {"message", "all_reduce", "broadcast",         "all_gather",
                                   "barrier", "reduce",     "reduce_scatter",    "gather",
                                   "scatter", "all_to_all", "neighbour_exchange"};
  return names[static_cast<std::size_t>(kind)];
}

/// What a rank believes it is doing. Travels with every message; sender and receiver must agree in every field.
struct fingerprint {
  std::uint64_t channel = 0;
  std::uint64_t sequence = 0;  ///< of the collective on its channel, or of the message between its two ranks
  std::uint64_t count = 0;     ///< elements of the whole operation
  std::uint32_t detail = 0;    ///< reduce_op and algorithm (bits 0-7 and 8-15), a root, a hash of counts (counts.hpp)
  std::uint32_t epoch = 0;     ///< membership generation of the world
  operation_kind kind = operation_kind::message;
  dtype type = dtype::u8;
  friend constexpr bool operator==(const fingerprint&, const fingerprint&) = default;
};

/// True for a collective whose `detail` starts with a reduce_op.
[[nodiscard]] constexpr bool reduces(operation_kind kind) noexcept {
  return kind == operation_kind::all_reduce || kind == operation_kind::reduce || kind == operation_kind::reduce_scatter;
}

/// True for a collective whose counts differ from rank to rank: a hash of them fills the upper bits of `detail`.
[[nodiscard]] constexpr bool has_counts(const fingerprint& what) noexcept {
  switch (what.kind) {
    case operation_kind::all_gather:
    case operation_kind::all_to_all:
      return what.detail != 0;
    case operation_kind::gather:
    case operation_kind::scatter:
      return what.detail >> 16U != 0;
    case operation_kind::reduce_scatter:
      return what.detail >> 8U != 0;
    default:
      return false;
  }
}

/// "all_reduce(sum) of 100 f32 (operation 12)".
[[nodiscard]] inline std::string to_string(const fingerprint& what) {
  using kind = operation_kind;
  std::string text = to_string(what.kind);
  if (has_counts(what)) text += "_v";
  if (reduces(what.kind)) text += std::string{"("} + to_string(static_cast<reduce_op>(what.detail & 0xffU)) + ')';
  if (what.kind == kind::broadcast) text += "(root " + std::to_string(what.detail) + ')';
  if (what.kind == kind::reduce) text += "(root " + std::to_string(what.detail >> 8U) + ')';
  if (what.kind == kind::gather || what.kind == kind::scatter) {
    text += "(root " + std::to_string(what.detail & 0xffffU) + ')';
  }
  if (what.kind != kind::barrier) text += " of " + std::to_string(what.count) + ' ' + to_string(what.type);
  return text + " (operation " + std::to_string(what.sequence) + ')';
}

/// Why a world ended, as every rank of it reports.
struct world_failure {
  errc code = errc::aborted;
  std::uint32_t origin = 0;  ///< the rank that found it
  std::string message;
};

class transport;

/// How an arriving message joins what lies in its place: `into[i] = into[i] op from[i]`, in a type that may be wider
/// than the message's. Applied by the transport while the bytes are in the cache, so that no algorithm needs scratch.
struct combiner {
  /// False when an integer sum left its type. Null: the message replaces what lies there.
  bool (*apply)(std::byte* into, const std::byte* from, std::size_t count) noexcept = nullptr;
  std::uint8_t from_bytes = 1;  ///< per element of the message
  std::uint8_t into_bytes = 1;  ///< per element of `into`
};

/// One message on its way. Lives on the stack of the caller, which keeps it and the memory it names alive until the
/// transport is done with it; the destructor takes an unfinished one back.
struct transfer {
  enum class way : std::uint8_t { send, recv };

  transfer() = default;
  transfer(const transfer&) = delete;
  transfer& operator=(const transfer&) = delete;
  inline ~transfer();

  way direction = way::send;
  std::uint32_t peer = 0;  ///< rank in the transport
  fingerprint what;
  std::string_view channel_name;  ///< for error texts
  std::byte* data = nullptr;      ///< only read when sending
  std::size_t bytes = 0;          ///< of the message
  combiner combine;               ///< of a receive

  transport* carrier = nullptr;  ///< set from `post` until the owner has seen `done`

  bool done = false;                          // from here on: the transport's, under its lock
  bool overflowed = false;                    // an integer sum of `combine` left its type
  std::size_t moved = 0;                      // bytes of frame and payload already written
  std::uint32_t parts = 1, parts_in_all = 1;  // of a message cut over several streams: still to write, and at first
  transfer* next = nullptr;
};

/// Moves messages between ranks. Messages of one channel between two ranks keep their order; different channels are
/// independent. All members are thread-safe; a transfer is posted, awaited and cancelled by one thread.
class transport {
 public:
  using clock = std::chrono::steady_clock;
  enum class status : std::uint8_t { done, timeout, failed };

  transport() = default;
  transport(const transport&) = delete;
  transport& operator=(const transport&) = delete;
  /// Says goodbye if nobody did: peers that still wait for this rank learn that it left.
  virtual ~transport() = default;

  [[nodiscard]] virtual std::uint32_t rank() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t world_size() const noexcept = 0;
  /// How messages reach a rank, for people: "shared memory", "interface eth0, 2 streams".
  [[nodiscard]] virtual std::string path_to(std::uint32_t peer) const = 0;

  /// Starts a transfer; returns at once. In a failed world the transfer stays undone and `wait` says why.
  virtual void post(transfer& t) = 0;
  /// Blocks until all are done, the deadline passes or the world fails; drives progress of every channel meanwhile.
  [[nodiscard]] virtual status wait(std::span<transfer* const> transfers, clock::time_point deadline) = 0;
  /// Takes a transfer back; afterwards its memory is no longer touched. May wait for a copy in flight.
  virtual void cancel(transfer& t) noexcept = 0;

  /// Ends the world on every rank; the first failure is kept. Never blocks on a peer.
  virtual void abort(world_failure why) noexcept = 0;
  /// Why the world ended; meaningful after `wait` returned `failed`.
  [[nodiscard]] virtual world_failure failure() const = 0;
  /// This rank leaves in good order. Idempotent.
  virtual void goodbye() noexcept = 0;
};

transfer::~transfer() {
  if (carrier != nullptr) carrier->cancel(*this);
}

namespace detail {

/// Puts bytes [at, at + bytes) of a message where the receive wants them: whole elements when it combines.
inline void deliver(transfer& t, const std::byte* from, std::size_t at, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  if (t.combine.apply == nullptr) {
    std::memcpy(t.data + at, from, bytes);
  } else if (!t.combine.apply(t.data + at / t.combine.from_bytes * t.combine.into_bytes, from,
                              bytes / t.combine.from_bytes)) {
    t.overflowed = true;
  }
}

/// The failure of a receiver that expected `mine` and was offered `theirs`.
[[nodiscard]] inline world_failure mismatch_failure(const transfer& mine, std::uint32_t my_rank,
                                                    const fingerprint& theirs, std::size_t their_bytes) {
  std::string text = "on channel '" + std::string{mine.channel_name} + "' rank " + std::to_string(my_rank) + " is in " +
                     to_string(mine.what) + " and rank " + std::to_string(mine.peer) + " is in " + to_string(theirs);
  if (mine.what == theirs) {
    text += "; the message holds " + std::to_string(their_bytes) + " bytes where " + std::to_string(mine.bytes) +
            " were expected";
  }
  if (has_counts(mine.what) && has_counts(theirs) && mine.what.count == theirs.count &&
      mine.what.detail != theirs.detail) {
    text += "; the totals agree and the counts per rank do not: the message holds " + std::to_string(their_bytes) +
            " bytes where " + std::to_string(mine.bytes) + " were expected";
  }
  if (mine.what.kind == operation_kind::all_reduce && theirs.kind == operation_kind::all_reduce &&
      mine.what.detail >> 8U != theirs.detail >> 8U) {
    const auto name = [](const fingerprint& f) { return to_string(static_cast<all_reduce_algorithm>(f.detail >> 8U)); };
    text += std::string{"; they reduce by "} + name(mine.what) + " and by " + name(theirs);
  }
  if (mine.what.epoch != theirs.epoch) {
    text += "; epochs " + std::to_string(mine.what.epoch) + " and " + std::to_string(theirs.epoch) + " differ";
  }
  return {errc::mismatch, my_rank,
          text + "; all ranks of a channel must make the same calls in the same order with equal counts and types"};
}

/// The failure of a rank that waits for a peer which is gone.
[[nodiscard]] inline world_failure lost_failure(const transfer& t, std::uint32_t my_rank, std::string_view how) {
  return {errc::peer_lost, my_rank,
          "rank " + std::to_string(t.peer) + ' ' + std::string{how} + " while rank " + std::to_string(my_rank) +
              " was in " + to_string(t.what) + " on channel '" + std::string{t.channel_name} + '\''};
}

}  // namespace detail
}  // namespace hetero
