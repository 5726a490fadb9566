// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include <hetero/device/cpu/attention_tiles.hpp>
#include <hetero/device/cpu/simd.hpp>
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/cpu/tile.hpp>
#include <hetero/device/op/functor/math.hpp>

namespace hetero::detail::cpu {

/// One tile of queries of one head against all earlier keys.
template <class T>
class attention_forward_tile {
 public:
  explicit attention_forward_tile(const attention_size& size)
      : size_{size}, padded_{(size.head_width + simd<T>::lanes - 1) / simd<T>::lanes * simd<T>::lanes} {
    const std::size_t rows = attention_tile * padded_;
    const std::size_t columns = attention_tile * size.head_width;
    constexpr std::size_t block = attention_tile * tile_rows;
    T* memory = tile_scratch<T>(3 * rows + columns + block + 2 * attention_tile);
    const auto take = [&memory](std::size_t count) { return std::exchange(memory, memory + count); };
    query_ = take(rows);
    value_ = take(rows);
    out_ = take(rows);
    key_ = take(columns);
    score_ = take(block);
    most_ = take(attention_tile);
    sum_ = take(attention_tile);
  }

  /// `qkv` points at the first query element of the sample and head, `out` and `log_sum_exp` likewise.
  void run(const T* qkv, T* out, T* log_sum_exp, std::size_t query_tile) const noexcept {
    const std::size_t width = size_.width();
    const std::size_t stride = 3 * width;
    const std::size_t queries = size_.in_tile(query_tile);
    const std::size_t first_query = query_tile * attention_tile;
    const T scale = T(1) / std::sqrt(static_cast<T>(size_.head_width));
    copy_rows<T>({qkv + first_query * stride, stride}, queries, size_.head_width, {query_, padded_}, scale);
    for (std::size_t tile = 0; tile <= query_tile; ++tile) {
      const T* keys = qkv + width + tile * attention_tile * stride;
      transpose<T>({keys, stride}, size_.in_tile(tile), size_.head_width, {key_, attention_tile});
      copy_rows<T>({keys + width, stride}, size_.in_tile(tile), size_.head_width, {value_, padded_});
      for (std::size_t row = 0; row < queries; row += tile_rows) {
        add_keys(row, std::min(tile_rows, queries - row), size_.in_tile(tile), tile == 0, tile == query_tile);
      }
    }
    for (std::size_t row = 0; row < queries; ++row) {
      copy_rows<T>({out_ + row * padded_, padded_}, 1, size_.head_width,
                   {out + (first_query + row) * width, size_.head_width}, T(1) / sum_[row]);
      log_sum_exp[first_query + row] = most_[row] + std::log(sum_[row]);
    }
  }

 private:
  /// Scores of `rows` queries against the keys of one tile, folded into the running maximum, sum and output.
  void add_keys(std::size_t first_row, std::size_t rows, std::size_t keys, bool first_tile,
                bool diagonal) const noexcept {
    constexpr std::size_t lanes = simd<T>::lanes;
    const std::size_t columns = block_columns<T>(diagonal, first_row, rows, keys);
    multiply_rows<false, T>(rows, {query_ + first_row * padded_, padded_, 1}, {key_, attention_tile},
                            {0, size_.head_width}, {score_, attention_tile}, columns);
    for (std::size_t r = 0; r < rows; ++r) {
      T* score = score_ + r * attention_tile;
      const std::size_t row = first_row + r;
      const std::size_t seen = diagonal ? row + 1 : keys;
      std::fill(score + seen, score + columns, -std::numeric_limits<T>::infinity());
      simd<T> tile_most = simd<T>::load(score);
      for (std::size_t j = lanes; j < columns; j += lanes) tile_most = max(tile_most, simd<T>::load(score + j));
      const T before = first_tile ? -std::numeric_limits<T>::infinity() : most_[row];
      const T most = std::max(before, tile_most.maximum());
      simd<T> sum(T{0});
      for (std::size_t j = 0; j < columns; j += lanes) {
        const simd<T> p = functor::fast_exp{}(simd<T>::load(score + j) - simd<T>(most));
        p.store(score + j);
        sum += p;
      }
      most_[row] = most;
      if (first_tile) {
        sum_[row] = sum.sum();
        continue;
      }
      const T correction = functor::fast_exp{}(before - most);
      sum_[row] = sum_[row] * correction + sum.sum();
      T* out = out_ + row * padded_;
      for (std::size_t j = 0; j < padded_; j += lanes) (simd<T>::load(out + j) * simd<T>(correction)).store(out + j);
    }
    const left_tile<T> p{score_, attention_tile, 1};
    const row_tile<T> out{out_ + first_row * padded_, padded_};
    const index_range seen{0, diagonal ? first_row + rows : keys};
    if (first_tile)
      multiply_rows<false, T>(rows, p, {value_, padded_}, seen, out, padded_);
    else
      multiply_rows<true, T>(rows, p, {value_, padded_}, seen, out, padded_);
  }

  attention_size size_;
  std::size_t padded_;  ///< head width in whole vectors
  T* query_;            ///< [tile, padded], scaled
  T* key_;              ///< [head width, tile]: transposed, so that a vector holds one component of many keys
  T* value_;            ///< [tile, padded]
  T* out_;              ///< [tile, padded], not yet divided by sum_
  T* score_;            ///< [tile_rows, tile]
  T* most_;             ///< [tile] largest score so far
  T* sum_;              ///< [tile] sum of e^(score - most)
};

}  // namespace hetero::detail::cpu
