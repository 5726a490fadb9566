// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <hetero/comm/algorithm/reduce.hpp>
#include <hetero/comm/algorithm/ring.hpp>

namespace hetero::detail {

/// `turns` turns of a ring as `ring_pipeline` has them, but cut across: as soon as a piece's turn t is done, its turn
/// t + 1 starts, beside turn t of the next piece. A piece goes through all turns while it is in the cache, which saves
/// 10 to 25 % of the time of vectors that do not fit there.
///
/// Step s holds turn t of piece s - t, for every t; ranks post the messages of a step in the order of turns, so that
/// sends and receives meet. Whoever is behind waits only for messages of steps that all others have posted.
template <exchange Exchange, class Part, class Combine>
void ring_waves(Exchange& ex, std::size_t turns, std::size_t pieces, Part part, Combine combine) {
  constexpr std::size_t slots = 3;  // pieces of one turn in flight
  const std::size_t n = ex.world_size();
  const std::uint32_t left = (ex.rank() + ex.world_size() - 1) % ex.world_size();
  const std::uint32_t right = (ex.rank() + 1) % ex.world_size();
  const auto segment_at = [&](std::size_t turn) { return (ex.rank() + turns * n - turn) % n; };

  std::vector<transfer> sends(turns * slots);
  std::vector<transfer> receives(turns * slots);
  const auto slot = [](std::size_t turn, std::size_t piece) { return turn * slots + piece % slots; };
  for (std::size_t turn = 0; turn < turns; ++turn) ex.count_round();
  for (std::size_t step = 0; step < pieces + turns; ++step) {
    for (std::size_t turn = step < pieces ? 0 : step - pieces + 1; turn <= std::min(step, turns); ++turn) {
      const std::size_t piece = step - turn;
      if (turn > 0) ex.finish(receives[slot(turn - 1, piece)]);
      if (turn == turns) continue;
      // What lay there was sent n - 1 turns before, or is added to.
      const auto [to, arriving] = part(segment_at(turn + 1), piece);
      ex.start_recv(receives[slot(turn, piece)], to, arriving, left, combine(turn));
      transfer& send = sends[slot(turn, piece)];
      ex.finish(send);
      const auto [from, leaving] = part(segment_at(turn), piece);
      ex.start_send(send, from, leaving, right);
    }
  }
  for (transfer& t : sends) ex.finish(t);
}

/// In-place all_reduce of n ranks in 2(n-1) rounds, each of ceil(bytes / n / most_bytes) messages: every rank sends
/// 2(n-1)/n of the bytes. Each element is summed along one path and then copied, so all ranks hold equal bits. For
/// types of at least four bytes, or two ranks: others would be rounded at every hop. Patarasuk, Yuan: Bandwidth optimal
/// all-reduce algorithms for clusters of workstations, 2009.
/// @throws error invalid_argument when an integer sum overflows; see operation::finish
template <exchange Exchange, class T>
void ring_all_reduce(Exchange& ex, std::span<T> values, reduce_op op, std::size_t most_bytes = piece_bytes) {
  const std::size_t n = ex.world_size();
  if (n == 1) return;
  const std::size_t pieces = pieces_for(segment_of(values.size(), n, 0).count() * sizeof(T), most_bytes);
  const auto part = [&](std::size_t index, std::size_t piece) {
    const segment s = piece_of(segment_of(values.size(), n, index), pieces, piece);
    const auto bytes = std::as_writable_bytes(values.subspan(s.begin, s.count()));
    return std::pair{bytes.data(), bytes.size()};
  };
  const auto combine = [&](std::size_t turn) { return turn < n - 1 ? combiner_of<T>(op) : combiner{}; };
  if (pieces == 1) return ring_pipeline(ex, 2 * (n - 1), pieces, part, combine);
  ring_waves(ex, 2 * (n - 1), pieces, part, combine);
}

}  // namespace hetero::detail
