// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <hetero/device/cpu/simd.hpp>

/// @file
/// Causal attention in tiles of 64 queries by 64 keys. Queries are scaled when they are copied, so scores need no further
/// factor; tiles above the diagonal are never touched, and of the diagonal tile only the blocks below it.
namespace hetero::detail::cpu {

inline constexpr std::size_t attention_tile = 64;

struct attention_size {
  std::size_t samples;
  std::size_t context;
  std::size_t heads;
  std::size_t head_width;

  [[nodiscard]] std::size_t width() const noexcept { return heads * head_width; }
  [[nodiscard]] std::size_t tiles() const noexcept { return (context + attention_tile - 1) / attention_tile; }
  /// The rows or columns of tile `tile`.
  [[nodiscard]] std::size_t in_tile(std::size_t tile) const noexcept {
    return std::min(attention_tile, context - tile * attention_tile);
  }
};

/// Columns to compute for a block of rows: all of a full tile, of a diagonal tile those up to the block's last row;
/// whole vectors.
template <class T>
[[nodiscard]] inline std::size_t block_columns(bool diagonal, std::size_t first_row, std::size_t rows,
                                               std::size_t keys) noexcept {
  constexpr std::size_t lanes = simd<T>::lanes;
  const std::size_t needed = diagonal ? first_row + rows : keys;
  return (needed + lanes - 1) / lanes * lanes;
}

}  // namespace hetero::detail::cpu
