// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include <hetero/device/cpu/dispatch.hpp>
#include <hetero/device/cpu/simd.hpp>
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/cpu/tile.hpp>
#include <hetero/device/op/attention.hpp>
#include <hetero/device/op/functor/math.hpp>

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

/// @throws error invalid_shape, invalid_argument
inline attention_size check_attention(const char* op, const operand& qkv, const operand& log_sum_exp,
                                      std::initializer_list<operand> outs, std::uint32_t heads) {
  const tensor_view& view = qkv.view;
  expect(view.dims() == 3 && view.extent(2) % 3 == 0 && view.contiguous() && (view || view.count() == 0), op,
         "qkv must be a contiguous [samples, context, 3 * width]", {qkv});
  require(heads > 0 && view.extent(2) / 3 % heads == 0, errc::invalid_argument, [&] {
    return std::string{op} + ": a width of " + std::to_string(view.extent(2) / 3) + " does not divide into " +
           std::to_string(heads) + " heads";
  });
  const attention_size size{view.extent(0), view.extent(1), heads, view.extent(2) / 3 / heads};
  for (const operand& out : outs) expect_dense(op, out, size.samples * size.context * size.width(), view.type());
  expect_dense(op, log_sum_exp, size.samples * heads * size.context, view.type());
  return size;
}

/// Columns to compute for a block of rows: all of a full tile, of a diagonal tile those up to the block's last row; whole
/// vectors.
template <class T>
[[nodiscard]] inline std::size_t block_columns(bool diagonal, std::size_t first_row, std::size_t rows,
                                               std::size_t keys) noexcept {
  constexpr std::size_t lanes = simd<T>::lanes;
  const std::size_t needed = diagonal ? first_row + rows : keys;
  return (needed + lanes - 1) / lanes * lanes;
}

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
    if (first_tile) multiply_rows<false, T>(rows, p, {value_, padded_}, seen, out, padded_);
    else multiply_rows<true, T>(rows, p, {value_, padded_}, seen, out, padded_);
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

/// Work items per thread, so that a range lasts some 20 us; `work` is multiply-adds of one item.
[[nodiscard]] inline std::size_t attention_grain(std::size_t work) noexcept {
  return (std::size_t{1} << 19U) / (work + 1) + 1;
}

inline void run(const op::attention_forward& o, thread_team& team) {
  for_float_type("attention_forward", o.qkv.type(), [&]<class T>() {
    const attention_size size = check_attention("attention_forward", {"qkv", o.qkv}, {"log_sum_exp", o.log_sum_exp},
                                                {{"out", o.out}}, o.heads);
    const std::size_t items = size.samples * size.heads * size.tiles();
    const std::size_t grain = attention_grain(attention_tile * size.context * size.head_width);
    team.parallel(items, grain, [&](std::size_t begin, std::size_t end, std::size_t) {
      const attention_forward_tile<T> worker{size};
      for (std::size_t item = begin; item < end; ++item) {
        const std::size_t tile = item % size.tiles();
        const std::size_t head = item / size.tiles() % size.heads;
        const std::size_t sample = item / size.tiles() / size.heads;
        const std::size_t row = sample * size.context * size.width();
        const std::size_t column = head * size.head_width;
        worker.run(o.qkv.as<T>() + 3 * row + column, o.out.as<T>() + row + column,
                   o.log_sum_exp.as<T>() + (sample * size.heads + head) * size.context, tile);
      }
    });
  });
}

inline void run(const op::attention_backward& o, thread_team& team) {
  for_float_type("attention_backward", o.qkv.type(), [&]<class T>() {
    const attention_size size =
        check_attention("attention_backward", {"qkv", o.qkv}, {"log_sum_exp", o.log_sum_exp},
                        {{"out", o.out}, {"grad_out", o.grad_out}}, o.heads);
    expect_dense("attention_backward", {"grad_qkv", o.grad_qkv}, o.qkv.count(), o.qkv.type());
    const std::size_t grain = attention_grain(size.context * size.context * size.head_width * 5 / 2);
    team.parallel(size.samples * size.heads, grain, [&](std::size_t begin, std::size_t end, std::size_t) {
      const attention_backward_head<T> worker{size};
      for (std::size_t item = begin; item < end; ++item) {
        const std::size_t head = item % size.heads;
        const std::size_t sample = item / size.heads;
        const std::size_t row = sample * size.context * size.width();
        const std::size_t column = head * size.head_width;
        worker.run(o.qkv.as<T>() + 3 * row + column, o.out.as<T>() + row + column, o.grad_out.as<T>() + row + column,
                   o.log_sum_exp.as<T>() + item * size.context, o.grad_qkv.as<T>() + 3 * row + column);
      }
    });
  });
}

}  // namespace hetero::detail::cpu
