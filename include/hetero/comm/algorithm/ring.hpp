// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <hetero/comm/operation.hpp>

namespace hetero::detail {

/// Bytes of one piece of a large message. Below 256 KiB the cost of a system call shows; above, the reduction of a
/// piece no longer hides behind the transfer of the next one.
inline constexpr std::size_t piece_bytes = std::size_t{256} << 10U;

/// The part of [0, count) that belongs to `index` of `parts`; the first ones are one element longer.
struct segment {
  std::size_t begin = 0, end = 0;
  [[nodiscard]] constexpr std::size_t count() const noexcept { return end - begin; }
};

[[nodiscard]] constexpr segment segment_of(std::size_t count, std::size_t parts, std::size_t index) noexcept {
  const std::size_t base = count / parts;
  const std::size_t longer = count % parts;
  const std::size_t begin = index * base + std::min(index, longer);
  return {begin, begin + base + (index < longer ? 1 : 0)};
}

/// Piece `piece` of `pieces` of a segment.
[[nodiscard]] constexpr segment piece_of(segment s, std::size_t pieces, std::size_t piece) noexcept {
  const segment part = segment_of(s.count(), pieces, piece);
  return {s.begin + part.begin, s.begin + part.end};
}

/// How many pieces the longest segment is cut into. At least one, so that empty operations also meet and are compared.
[[nodiscard]] constexpr std::size_t pieces_for(std::size_t segment_bytes, std::size_t bytes = piece_bytes) noexcept {
  return std::max<std::size_t>(1, (segment_bytes + bytes - 1) / bytes);
}

/// `steps` turns of a ring: in turn t this rank sends segment (rank - t) to its right and receives (rank - t - 1) from
/// its left, in `pieces` pieces each. A piece goes out as soon as the turn before delivered it, so the turns overlap.
///
/// part(segment, piece) gives the memory; combine(turn) how what arrives joins it.
template <exchange Exchange, class Part, class Combine>
void ring_pipeline(Exchange& ex, std::size_t steps, std::size_t pieces, Part part, Combine combine) {
  constexpr std::size_t window = 4;  // sends in flight, and receives posted
  const std::size_t n = ex.world_size();
  const std::uint32_t left = (ex.rank() + ex.world_size() - 1) % ex.world_size();
  const std::uint32_t right = (ex.rank() + 1) % ex.world_size();
  const auto segment_at = [&](std::size_t turn) { return (ex.rank() + steps * n - turn) % n; };

  std::array<transfer, window> sends;
  std::array<transfer, window> receives;
  const std::size_t total = steps * pieces;
  std::size_t next_send = 0;
  std::size_t next_receive = 0;
  for (std::size_t item = 0; item < total; ++item) {
    // A piece may be received into its place once it was sent from there, n - 1 turns before: always so by then.
    for (; next_receive < std::min(total, item + window); ++next_receive) {
      const std::size_t turn = next_receive / pieces;
      const auto [to, bytes] = part(segment_at(turn + 1), next_receive % pieces);
      ex.start_recv(receives[next_receive % window], to, bytes, left, combine(turn));
    }
    // The send of item i needs the arrival of item i - pieces.
    for (; next_send < std::min({total, item + window, item + pieces}); ++next_send) {
      if (next_send % pieces == 0) ex.count_round();
      transfer& slot = sends[next_send % window];
      ex.finish(slot);
      const auto [from, bytes] = part(segment_at(next_send / pieces), next_send % pieces);
      ex.start_send(slot, from, bytes, right);
    }
    ex.finish(receives[item % window]);
  }
  for (transfer& t : sends) ex.finish(t);
}

}  // namespace hetero::detail
