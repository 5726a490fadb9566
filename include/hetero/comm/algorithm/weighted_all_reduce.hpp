// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <hetero/comm/algorithm/reduce.hpp>
#include <hetero/comm/algorithm/ring.hpp>
#include <hetero/comm/operation.hpp>

namespace hetero::detail {

/// Borders of the parts of `count` elements that ranks own by their shares: n+1 offsets, the same on every rank.
/// @throws error invalid_argument unless the shares are at least zero and add up to 1
[[nodiscard]] inline std::vector<std::size_t> owned_offsets(std::size_t count, std::span<const double> shares) {
  std::vector<std::size_t> offsets(shares.size() + 1);
  double sum = 0;
  for (std::size_t r = 0; r < shares.size(); ++r) {
    require(shares[r] >= 0 && shares[r] <= 1, errc::invalid_argument, [&] {
      return "the share of rank " + std::to_string(r) + " is " + std::to_string(shares[r]) + ", not between 0 and 1";
    });
    sum += shares[r];
    offsets[r + 1] =
        std::clamp(static_cast<std::size_t>(std::llround(sum * static_cast<double>(count))), offsets[r], count);
  }
  require(std::abs(sum - 1) < 1e-9, errc::invalid_argument,
          [&] { return "the shares of the ranks add up to " + std::to_string(sum) + ", not to 1"; });
  offsets.back() = count;
  return offsets;
}

/// In-place all_reduce in which rank i owns share x_i of the vector, for links of unequal bandwidth (link_model.hpp):
/// everybody sends an owner its part of what he owns, and the owner sends the sum to everybody. Rank i sends
/// (1 + (n-2) x_i) S and receives as much. The vector goes in chunks, and a chunk's sums travel while the next ones'
/// parts do: a port that owns nothing is busy both ways all the time. Contributions are added in the order of ranks, so
/// that every run gives the same bits, and all ranks the same. 2 rounds, whatever the
/// number of chunks, which overlap: one for each `most_bytes` of the vector, 256 at most. For types of at least four
/// bytes.
/// @throws error invalid_argument when an integer sum overflows; see operation::finish
template <exchange Exchange, class T>
void weighted_all_reduce(Exchange& ex, std::span<T> values, reduce_op op, std::span<const double> shares,
                         std::size_t most_bytes = piece_bytes) {
  constexpr std::size_t ahead = 3;  // chunks whose parts are under way before the first sums go out
  constexpr std::size_t most_chunks = 256;
  constexpr std::size_t slots = 2 * ahead + 1;
  const std::uint32_t n = ex.world_size();
  const std::uint32_t self = ex.rank();
  if (n == 1) return;
  const std::vector<std::size_t> offsets = owned_offsets(values.size(), shares);
  const std::size_t chunks = std::clamp<std::size_t>(values.size_bytes() / most_bytes, 1, most_chunks);
  const auto part = [&](std::uint32_t owner, std::size_t chunk) {
    const segment s = piece_of({offsets[owner], offsets[owner + 1]}, chunks, chunk);
    return values.subspan(s.begin, s.count());
  };
  const auto owns = [&](std::uint32_t r) { return offsets[r + 1] != offsets[r] || (values.empty() && r == 0); };
  const std::size_t longest = segment_of(offsets[self + 1] - offsets[self], chunks, 0).count();

  // One slot per chunk in flight: what goes to and comes from each peer.
  struct in_flight {
    std::unique_ptr<T[]> contributions;  // first, so that it outlives the transfers into it
    std::vector<transfer> part_out, part_in, sum_out, sum_in;
  };
  std::vector<in_flight> flights(std::min(slots, chunks + ahead));
  for (in_flight& f : flights) {
    f.part_out = std::vector<transfer>(n);
    f.part_in = std::vector<transfer>(n);
    f.sum_out = std::vector<transfer>(n);
    f.sum_in = std::vector<transfer>(n);
    if (owns(self)) f.contributions = std::make_unique_for_overwrite<T[]>(longest * n);
  }
  const auto flight_of = [&](std::size_t chunk) -> in_flight& { return flights[chunk % flights.size()]; };

  const auto scatter = [&](std::size_t chunk) {
    in_flight& f = flight_of(chunk);
    for (std::uint32_t k = 1; k < n; ++k) {
      const std::uint32_t to = (self + k) % n;
      const std::uint32_t from = (self + n - k) % n;
      if (owns(self)) {
        ex.start_recv(f.part_in[from], reinterpret_cast<std::byte*>(f.contributions.get() + from * longest),
                      part(self, chunk).size_bytes(), from);
      }
      if (owns(to)) {
        const auto out = std::as_bytes(part(to, chunk));
        ex.start_send(f.part_out[to], out.data(), out.size(), to);
      }
    }
  };
  const auto add_and_spread = [&](std::size_t chunk) {
    in_flight& f = flight_of(chunk);
    const std::span<T> own = part(self, chunk);
    if (owns(self)) {
      // The first operand is the lowest rank's, whoever owns the part.
      for (std::uint32_t r = 0; r < n; ++r) {
        if (r != self) ex.finish(f.part_in[r]);
      }
      T* const first = f.contributions.get();
      std::copy(own.begin(), own.end(), first + self * longest);
      for (std::uint32_t r = 1; r < n; ++r) reduce_into(first, first + r * longest, own.size(), op);
      std::copy(first, first + own.size(), own.begin());
    }
    for (std::uint32_t k = 1; k < n; ++k) {
      const std::uint32_t to = (self + k) % n;
      const std::uint32_t from = (self + n - k) % n;
      if (owns(from)) {
        // What lay there went to its owner before the sum can come back.
        const auto in = std::as_writable_bytes(part(from, chunk));
        ex.start_recv(f.sum_in[from], in.data(), in.size(), from);
      }
      if (owns(self)) ex.start_send(f.sum_out[to], std::as_bytes(own).data(), own.size_bytes(), to);
    }
  };
  const auto settle = [&](std::size_t chunk) {
    in_flight& f = flight_of(chunk);
    for (std::vector<transfer>* const kind : {&f.sum_in, &f.part_out, &f.sum_out}) {
      for (transfer& t : *kind) ex.finish(t);
    }
  };

  for (int round = 0; round < 2; ++round) ex.count_round();
  for (std::size_t turn = 0; turn < chunks + 2 * ahead; ++turn) {
    if (turn >= 2 * ahead) settle(turn - 2 * ahead);
    if (turn < chunks) scatter(turn);
    if (turn >= ahead && turn - ahead < chunks) add_and_spread(turn - ahead);
  }
}

}  // namespace hetero::detail
