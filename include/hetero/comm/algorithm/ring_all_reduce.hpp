// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <hetero/comm/algorithm/reduce.hpp>
#include <hetero/comm/algorithm/ring.hpp>

namespace hetero::detail {

/// In-place all_reduce of n ranks in 2(n-1) rounds: each rank sends 2(n-1)/n of the bytes. Each element is summed along
/// one path and then copied, so all ranks hold equal bits. For types of at least four bytes.
/// @throws error invalid_argument when an integer sum overflows; see operation::finish
template <exchange Exchange, class T>
void ring_all_reduce(Exchange& ex, std::span<T> values, reduce_op op) {
  static_assert(sizeof(T) >= 4, "narrow types are summed by direct_all_reduce, which rounds once");
  const std::size_t n = ex.world_size();
  if (n == 1) return;
  const std::size_t longest = segment_of(values.size(), n, 0).count();
  const std::size_t pieces = pieces_for(longest * sizeof(T));
  const std::size_t longest_piece = segment_of(longest, pieces, 0).count();
  const std::size_t reduce_turns = n - 1;

  const auto part = [&](std::size_t segment_index, std::size_t piece) {
    const segment s = piece_of(segment_of(values.size(), n, segment_index), pieces, piece);
    return values.subspan(s.begin, s.count());
  };
  const auto scratch = std::make_unique_for_overwrite<T[]>(longest_piece * ring_receives);

  ring_pipeline(
      ex, 2 * reduce_turns, pieces, [&](std::size_t s, std::size_t piece) { return std::as_bytes(part(s, piece)); },
      [&](std::size_t s, std::size_t piece, std::size_t slot, std::size_t turn) {
        const std::span<T> final_place = part(s, piece);
        return std::as_writable_bytes(
            turn < reduce_turns ? std::span<T>{scratch.get() + slot * longest_piece, final_place.size()} : final_place);
      },
      [&](std::size_t s, std::size_t piece, std::size_t slot, std::size_t turn) {
        if (turn >= reduce_turns) return;
        const std::span<T> into = part(s, piece);
        reduce_into(into.data(), scratch.get() + slot * longest_piece, into.size(), op);
      });
}

}  // namespace hetero::detail
