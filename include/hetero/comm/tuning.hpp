// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hetero/comm/link_model.hpp>
#include <hetero/core/dtype.hpp>

/// @file
/// Which algorithm an all_reduce takes: rules that all ranks of a communicator hold alike.
namespace hetero {

/// Ways to all_reduce; each is a header in comm/algorithm/.
enum class all_reduce_algorithm : std::uint8_t {
  automatic,         ///< by the measured table
  doubling,          ///< whole vectors in log2 n rounds
  two_rank,          ///< only for two ranks
  ring,              ///< 2(n-1) rounds, the least bytes
  halving_doubling,  ///< 2 log2 n rounds, the least bytes where n is a power of two
  all_to_all,        ///< each part straight to its owner
  multi_color,       ///< trees with disjoint interiors
  weighted           ///< parts as large as each rank's bandwidth allows
};

[[nodiscard]] constexpr const char* to_string(all_reduce_algorithm a) noexcept {
  constexpr std::array names{"automatic",        "doubling",   "two_rank",    "ring",
                             "halving_doubling", "all_to_all", "multi_color", "weighted"};
  const auto index = static_cast<std::size_t>(a);
  return index < names.size() ? names[index] : "unknown";
}

/// Vectors up to a size take this way.
struct tuning_row {
  std::size_t up_to_bytes = std::numeric_limits<std::size_t>::max();
  all_reduce_algorithm algorithm = all_reduce_algorithm::automatic;
  std::size_t piece_bytes = std::size_t{256} << 10U;  ///< of a message of a large vector
  friend bool operator==(const tuning_row&, const tuning_row&) = default;
};

/// The rules of a communicator, equal on all its ranks: `world::tune` makes them so.
struct tuning {
  std::vector<tuning_row>
      all_reduce{};  ///< by size, ascending; sizes beyond the last row, and `automatic`, take the default
  std::vector<double> bytes_per_second{};  ///< of each rank's port, full duplex; empty: equal
  friend bool operator==(const tuning&, const tuning&) = default;
};

/// "all_reduce: up to 16384 bytes doubling, beyond ring in pieces of 262144 bytes; ports: 50 12.5 MB/s".
[[nodiscard]] inline std::string to_string(const tuning& t) {
  std::string text = "all_reduce:";
  if (t.all_reduce.empty()) text += " automatic";
  for (const tuning_row& row : t.all_reduce) {
    text += &row == &t.all_reduce.front() ? " " : ", ";
    text += row.up_to_bytes == std::numeric_limits<std::size_t>::max()
                ? "beyond "
                : "up to " + std::to_string(row.up_to_bytes) + " bytes ";
    text += std::string{to_string(row.algorithm)} + " in pieces of " + std::to_string(row.piece_bytes) + " bytes";
  }
  if (!t.bytes_per_second.empty()) {
    text += "; ports:";
    for (const double b : t.bytes_per_second) text += ' ' + std::to_string(static_cast<long long>(b / 1e6)) + " MB/s";
  }
  return text;
}

namespace detail {

/// What one all_reduce does.
struct all_reduce_choice {
  all_reduce_algorithm algorithm = all_reduce_algorithm::ring;
  std::size_t piece_bytes = std::size_t{256} << 10U;
  bool widened = false;  ///< narrow elements travel in 32 bits, so that they are rounded once
};

/// Measured on one host over streams and shared memory (docs/performance.md): where latency ends and bandwidth begins.
inline constexpr std::size_t whole_vector_bytes = std::size_t{8} << 10U;
inline constexpr std::size_t halving_bytes = std::size_t{128} << 10U;
/// From this size on uneven parts pay for their messages.
inline constexpr std::size_t weighted_bytes = std::size_t{64} << 10U;
/// The first sums of a weighted all_reduce come back a few chunks after the first parts left, so chunks are small.
/// Ports of 100 to 1000 Mbit/s: within 3 % of the bound from 256 KiB to 64 MiB; pieces of 256 KiB lose 5 %.
inline constexpr std::size_t weighted_piece_bytes = std::size_t{64} << 10U;
/// Uneven shares are worth it where the bound lies below the ring by this factor.
inline constexpr double weighted_gain = 1.05;

/// The way that n ranks of these rules reduce so many bytes. A pure function of what all ranks hold alike; the
/// algorithm travels in the fingerprint all the same.
[[nodiscard]] inline all_reduce_choice choose_all_reduce(const tuning& rules, std::uint32_t n, dtype type,
                                                         std::size_t bytes) {
  using a = all_reduce_algorithm;
  all_reduce_choice choice;
  choice.algorithm = a::automatic;
  for (const tuning_row& row : rules.all_reduce) {
    if (bytes > row.up_to_bytes) continue;
    choice.algorithm = row.algorithm;
    choice.piece_bytes = row.piece_bytes;
    break;
  }
  const bool narrow = size_of(type) <= 2;
  if (choice.algorithm == a::automatic) {
    if (n == 2) {
      choice.algorithm = a::two_rank;
      // Measured: through shared memory 5 to 20 % faster than 256 KiB from 1 MiB on, over streams as fast within noise.
      choice.piece_bytes = std::size_t{128} << 10U;
    } else if (bytes <= whole_vector_bytes) {
      choice.algorithm = a::doubling;
    } else if (narrow) {
      choice.algorithm = a::all_to_all;
    } else if (bytes >= weighted_bytes && !rules.bytes_per_second.empty() &&
               ring_seconds(rules.bytes_per_second, 1) > weighted_gain * all_reduce_bound(rules.bytes_per_second, 1)) {
      choice.algorithm = a::weighted;
      choice.piece_bytes = std::min(choice.piece_bytes, weighted_piece_bytes);
    } else if (bytes <= halving_bytes && std::has_single_bit(n)) {
      choice.algorithm = a::halving_doubling;
    } else {
      choice.algorithm = a::ring;
    }
  }
  // What rounds at every hop must not be done to narrow types: only an owner's sum, or 32 bits on the way.
  if (n != 2 && narrow && choice.algorithm != a::all_to_all) choice.widened = true;
  if (n != 2 && choice.algorithm == a::two_rank) choice.algorithm = a::ring;
  return choice;
}

/// The rules of a part of the ranks.
[[nodiscard]] inline tuning rules_for(const tuning& rules, std::span<const std::uint32_t> chosen) {
  tuning part{rules.all_reduce, {}};
  if (rules.bytes_per_second.empty()) return part;
  for (const std::uint32_t r : chosen) part.bytes_per_second.push_back(rules.bytes_per_second[r]);
  return part;
}

/// Plain numbers, for the way to the other ranks.
[[nodiscard]] inline std::string encode(const tuning& t) {
  std::string bytes;
  const auto put = [&](std::uint64_t word) {
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(word >> (8 * i)));
  };
  put(t.all_reduce.size());
  for (const tuning_row& row : t.all_reduce) {
    put(row.up_to_bytes);
    put(static_cast<std::uint64_t>(row.algorithm));
    put(row.piece_bytes);
  }
  for (const double b : t.bytes_per_second) put(std::bit_cast<std::uint64_t>(b));
  return bytes;
}

[[nodiscard]] inline tuning decode_tuning(std::string_view bytes) {
  std::size_t at = 0;
  const auto get = [&] {
    std::uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word |= std::uint64_t{static_cast<unsigned char>(bytes[at++])} << (8 * i);
    return word;
  };
  tuning t;
  t.all_reduce.resize(get());
  for (tuning_row& row : t.all_reduce) {
    row.up_to_bytes = get();
    row.algorithm = static_cast<all_reduce_algorithm>(get());
    row.piece_bytes = get();
  }
  while (at < bytes.size()) t.bytes_per_second.push_back(std::bit_cast<double>(get()));
  return t;
}

}  // namespace detail
}  // namespace hetero
