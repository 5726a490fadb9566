// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include <hetero/device/cpu/attention_tiles.hpp>
#include <hetero/device/cpu/simd.hpp>
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/cpu/tile.hpp>
#include <hetero/device/op/functor/math.hpp>

namespace hetero::detail::cpu {

/// Gradients of one head of one sample. Tiles of keys outside, of queries inside: the gradients of keys and values stay
/// in scratch memory, those of the queries are added up in place.
template <class T>
class attention_backward_head {
 public:
  explicit attention_backward_head(const attention_size& size)
      : size_{size}, padded_{(size.head_width + simd<T>::lanes - 1) / simd<T>::lanes * simd<T>::lanes} {
    const std::size_t rows = attention_tile * padded_;
    const std::size_t columns = attention_tile * size.head_width;
    const std::size_t context = (size.context + simd<T>::lanes - 1) / simd<T>::lanes * simd<T>::lanes;
    constexpr std::size_t square = attention_tile * attention_tile;
    T* memory = tile_scratch<T>(5 * rows + 2 * columns + 2 * square + tile_rows * padded_ + context);
    const auto take = [&memory](std::size_t count) { return std::exchange(memory, memory + count); };
    query_ = take(rows);
    grad_out_ = take(rows);
    key_ = take(rows);
    grad_key_ = take(rows);
    grad_value_ = take(rows);
    key_columns_ = take(columns);
    value_columns_ = take(columns);
    p_ = take(square);
    grad_score_ = take(square);
    grad_query_ = take(tile_rows * padded_);
    delta_ = take(context);
  }

  /// The pointers are at the first element of the sample and head.
  void run(const T* qkv, const T* out, const T* grad_out, const T* log_sum_exp, T* grad_qkv) const noexcept {
    const std::size_t width = size_.width();
    const std::size_t stride = 3 * width;
    const std::size_t head_width = size_.head_width;
    const T scale = T(1) / std::sqrt(static_cast<T>(head_width));
    for (std::size_t row = 0; row < size_.context; ++row) {
      simd<T> sum(T{0});
      for_lanes<T>(0, head_width, [&](std::size_t i, auto lanes) {
        sum += load_lanes(out + row * width + i, lanes) * load_lanes(grad_out + row * width + i, lanes);
      });
      delta_[row] = sum.sum();
    }
    for (std::size_t key_tile = 0; key_tile < size_.tiles(); ++key_tile) {
      const std::size_t first_key = key_tile * attention_tile;
      const std::size_t keys = size_.in_tile(key_tile);
      const row_tile<const T> key_rows{qkv + width + first_key * stride, stride};
      copy_rows<T>(key_rows, keys, head_width, {key_, padded_});
      transpose<T>(key_rows, keys, head_width, {key_columns_, attention_tile});
      transpose<T>({key_rows.data + width, stride}, keys, head_width, {value_columns_, attention_tile});
      for (std::size_t tile = key_tile; tile < size_.tiles(); ++tile) {
        const std::size_t first = tile * attention_tile;
        const std::size_t queries = size_.in_tile(tile);
        const bool diagonal = tile == key_tile;
        copy_rows<T>({qkv + first * stride, stride}, queries, head_width, {query_, padded_}, scale);
        copy_rows<T>({grad_out + first * width, width}, queries, head_width, {grad_out_, padded_});
        for (std::size_t row = 0; row < queries; row += tile_rows) {
          const std::size_t rows = std::min(tile_rows, queries - row);
          score_gradients(row, rows, keys, diagonal, log_sum_exp + first, delta_ + first);
          multiply_rows<false, T>(rows, {grad_score_ + row * attention_tile, attention_tile, 1}, {key_, padded_},
                                  {0, diagonal ? row + rows : keys}, {grad_query_, padded_}, padded_);
          for (std::size_t r = 0; r < rows; ++r) {
            add_grad_query(grad_query_ + r * padded_, scale, key_tile != 0, grad_qkv + (first + row + r) * stride);
          }
        }
        add_key_gradients(queries, keys, diagonal);
      }
      T* grad_keys = grad_qkv + width + first_key * stride;
      for (std::size_t row = 0; row < keys; ++row) {
        std::copy_n(grad_key_ + row * padded_, head_width, grad_keys + row * stride);
        std::copy_n(grad_value_ + row * padded_, head_width, grad_keys + width + row * stride);
      }
    }
  }

 private:
  /// p = softmax again, from log_sum_exp, and grad_score = p (grad_out V^T - delta) for a block of rows.
  void score_gradients(std::size_t first_row, std::size_t rows, std::size_t keys, bool diagonal, const T* log_sum_exp,
                       const T* delta) const noexcept {
    constexpr std::size_t lanes = simd<T>::lanes;
    const std::size_t columns = block_columns<T>(diagonal, first_row, rows, keys);
    const row_tile<T> p{p_ + first_row * attention_tile, attention_tile};
    const row_tile<T> grad_score{grad_score_ + first_row * attention_tile, attention_tile};
    multiply_rows<false, T>(rows, {query_ + first_row * padded_, padded_, 1}, {key_columns_, attention_tile},
                            {0, size_.head_width}, p, columns);
    multiply_rows<false, T>(rows, {grad_out_ + first_row * padded_, padded_, 1}, {value_columns_, attention_tile},
                            {0, size_.head_width}, grad_score, columns);
    for (std::size_t r = 0; r < rows; ++r) {
      const simd<T> log_sum(log_sum_exp[first_row + r]);
      const simd<T> mean(delta[first_row + r]);
      T* p_row = p.data + r * attention_tile;
      T* grad_row = grad_score.data + r * attention_tile;
      for (std::size_t j = 0; j < columns; j += lanes) {
        // Rounding can lift a score above log_sum_exp, for huge scores by far: no probability exceeds 1.
        const simd<T> exponent = min(simd<T>::load(p_row + j) - log_sum, simd<T>(T{0}));
        const simd<T> probability = functor::fast_exp{}(exponent);
        probability.store(p_row + j);
        (probability * (simd<T>::load(grad_row + j) - mean)).store(grad_row + j);
      }
      const std::size_t seen = diagonal ? first_row + r + 1 : keys;
      std::fill(p_row + seen, p_row + columns, T{0});
      std::fill(grad_row + seen, grad_row + columns, T{0});
    }
  }

  void add_grad_query(const T* from, T scale, bool add, T* to) const noexcept {
    for_lanes<T>(0, size_.head_width, [=](std::size_t i, auto lanes) {
      const simd<T> scaled = load_lanes(from + i, lanes) * simd<T>(scale);
      store_lanes(add ? load_lanes(to + i, lanes) + scaled : scaled, to + i, lanes);
    });
  }

  /// grad_key (=, +=) grad_score^T query and grad_value (=, +=) p^T grad_out. The diagonal tile is the first one of a
  /// tile of keys, so it starts the sums; there, queries before a block of keys have not seen it.
  void add_key_gradients(std::size_t queries, std::size_t keys, bool diagonal) const noexcept {
    for (std::size_t first = 0; first < keys; first += tile_rows) {
      const std::size_t rows = std::min(tile_rows, keys - first);
      const left_tile<T> p{p_ + first, 1, attention_tile};
      const left_tile<T> grad_score{grad_score_ + first, 1, attention_tile};
      const row_tile<T> grad_key{grad_key_ + first * padded_, padded_};
      const row_tile<T> grad_value{grad_value_ + first * padded_, padded_};
      if (diagonal) {
        multiply_rows<false, T>(rows, grad_score, {query_, padded_}, {first, queries}, grad_key, padded_);
        multiply_rows<false, T>(rows, p, {grad_out_, padded_}, {first, queries}, grad_value, padded_);
      } else {
        multiply_rows<true, T>(rows, grad_score, {query_, padded_}, {0, queries}, grad_key, padded_);
        multiply_rows<true, T>(rows, p, {grad_out_, padded_}, {0, queries}, grad_value, padded_);
      }
    }
  }

  attention_size size_;
  std::size_t padded_;  ///< head width in whole vectors
  T* query_;            ///< [tile, padded], scaled
  T* grad_out_;         ///< [tile, padded]
  T* key_;              ///< [tile, padded]
  T* grad_key_;         ///< [tile, padded]
  T* grad_value_;       ///< [tile, padded]
  T* key_columns_;      ///< [head width, tile]
  T* value_columns_;    ///< [head width, tile]
  T* p_;                ///< [tile, tile]
  T* grad_score_;       ///< [tile, tile]
  T* grad_query_;       ///< [tile_rows, padded]
  T* delta_;            ///< [context] sum of out * grad_out
};

}  // namespace hetero::detail::cpu
