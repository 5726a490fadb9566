// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <hetero/comm/transport.hpp>

/// @file
/// What travels between two connected ranks, over streams and through shared memory: a fixed header, then `bytes` of
/// payload. Little-endian.
namespace hetero::detail {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian; add byte swaps here");

enum class frame_type : std::uint8_t {
  data,     ///< a message, or its first part
  part,     ///< a further part of the message that `sequence` counts, on another stream
  bell,     ///< look into the shared memory
  abort,    ///< the world ends, and why
  goodbye,  ///< this rank leaves in good order
};

struct frame_header {
  static constexpr std::uint32_t magic_value = 0x32525448;  // "HTR2"

  std::uint32_t magic = magic_value;
  frame_type type = frame_type::data;
  operation_kind kind = operation_kind::message;
  dtype element = dtype::u8;
  errc code = errc::aborted;  ///< of an abort frame
  std::uint32_t detail = 0;
  std::uint32_t epoch = 0;
  std::uint64_t channel = 0;
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;     ///< behind this header
  std::uint64_t total = 0;     ///< of the message in all its parts
  std::uint32_t origin = 0;    ///< of an abort frame
  std::uint32_t checksum = 0;  ///< 0: not computed

  [[nodiscard]] fingerprint what() const noexcept { return {channel, sequence, count, detail, epoch, kind, element}; }
};
static_assert(sizeof(frame_header) == 64 && std::is_trivially_copyable_v<frame_header>);

/// Text of an abort frame is cut to this length; a longer announcement is refused.
inline constexpr std::size_t max_abort_text_bytes = 4096;
/// No message is longer than this, so a damaged length is recognised before anything is allocated for it.
inline constexpr std::uint64_t max_message_bytes = std::uint64_t{1} << 40U;

[[nodiscard]] inline frame_header header_of(const transfer& t) noexcept {
  frame_header h;
  h.kind = t.what.kind;
  h.element = t.what.type;
  h.detail = t.what.detail;
  h.epoch = t.what.epoch;
  h.channel = t.what.channel;
  h.sequence = t.what.sequence;
  h.count = t.what.count;
  h.bytes = t.bytes;
  h.total = t.bytes;
  return h;
}

/// Empty when the header is one that a sound peer can have sent, else what is wrong with it.
[[nodiscard]] inline std::string fault_of(const frame_header& h) {
  if (h.magic != frame_header::magic_value) return "a frame that does not start with the magic number";
  if (h.type > frame_type::goodbye || static_cast<std::size_t>(h.kind) >= operation_kinds || h.element > dtype::u8 ||
      h.code > errc::plan_does_not_fit || (reduces(h.kind) && (h.detail & 0xffU) > 2)) {
    return "a frame with a field out of range";
  }
  const bool message = h.type == frame_type::data || h.type == frame_type::part;
  const std::uint64_t limit = message ? max_message_bytes : h.type == frame_type::abort ? max_abort_text_bytes : 0;
  if (h.bytes > limit || (message && (h.total > limit || h.total < h.bytes)))
    return "a frame of " + std::to_string(std::max(h.bytes, h.total)) + " bytes, more than its kind may have";
  return {};
}

}  // namespace hetero::detail
