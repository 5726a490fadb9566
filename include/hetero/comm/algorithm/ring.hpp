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
[[nodiscard]] constexpr std::size_t pieces_for(std::size_t segment_bytes) noexcept {
  return std::max<std::size_t>(1, (segment_bytes + piece_bytes - 1) / piece_bytes);
}

/// Receives that are posted ahead of the one being awaited.
inline constexpr std::size_t ring_receives = 2;

/// `steps` turns of a ring: in turn t this rank sends segment (rank - t) to its right and receives (rank - t - 1) from
/// its left, in `pieces` pieces each. A piece goes out as soon as the turn before delivered it, so the turns overlap.
///
/// source(segment, piece) and target(segment, piece, slot, turn) give the memory, slot < ring_receives;
/// arrived(segment, piece, slot, turn) consumes a piece before its slot is used again.
template <exchange Exchange, class Source, class Target, class Arrived>
void ring_pipeline(Exchange& ex, std::size_t steps, std::size_t pieces, Source source, Target target, Arrived arrived) {
  constexpr std::size_t window = 4;  // sends in flight
  const std::size_t n = ex.world_size();
  const std::uint32_t left = (ex.rank() + ex.world_size() - 1) % ex.world_size();
  const std::uint32_t right = (ex.rank() + 1) % ex.world_size();
  const auto segment_at = [&](std::size_t turn) { return (ex.rank() + steps * n - turn) % n; };

  std::array<transfer, window> sends;
  std::array<transfer, ring_receives> receives;
  const std::size_t total = steps * pieces;
  std::size_t next_send = 0;
  std::size_t next_receive = 0;
  for (std::size_t item = 0; item < total; ++item) {
    for (; next_receive < std::min(total, item + ring_receives); ++next_receive) {
      const std::size_t slot = next_receive % ring_receives;
      const std::size_t turn = next_receive / pieces;
      const std::span<std::byte> to = target(segment_at(turn + 1), next_receive % pieces, slot, turn);
      ex.start_recv(receives[slot], to.data(), to.size(), left);
    }
    // The send of item i needs the arrival of item i - pieces.
    for (; next_send < std::min({total, item + window, item + pieces}); ++next_send) {
      if (next_send % pieces == 0) ex.count_round();
      transfer& slot = sends[next_send % window];
      ex.finish(slot);
      const std::span<const std::byte> from = source(segment_at(next_send / pieces), next_send % pieces);
      ex.start_send(slot, from.data(), from.size(), right);
    }
    const std::size_t slot = item % ring_receives;
    ex.finish(receives[slot]);
    const std::size_t turn = item / pieces;
    arrived(segment_at(turn + 1), item % pieces, slot, turn);
  }
  for (transfer& t : sends) ex.finish(t);
}

}  // namespace hetero::detail
