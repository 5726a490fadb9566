// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <hetero/device/cpu/simd.hpp>
#include <hetero/device/cpu/thread_team.hpp>

/// @file
/// Products of small tiles that fit the caches. A BLAS call costs more than such a product: it checks, packs and
/// synchronises, and it cannot skip the half above a diagonal.
namespace hetero::detail::cpu {

/// Rows of a register block: 6 rows by 2 vectors are 12 accumulators, enough to hide the latency of a multiply-add and
/// few enough for 16 registers.
inline constexpr std::size_t tile_rows = 6;

/// Element (row, k) is data[row * row_stride + k * k_stride], so a transposed tile needs no copy.
template <class T>
struct left_tile {
  const T* data;
  std::size_t row_stride;
  std::size_t k_stride;
};

/// Dense rows, `stride` apart.
template <class T>
struct row_tile {
  T* data;
  std::size_t stride;
};

/// The columns [j, j + Vectors * lanes) of `multiply_rows`. The pragmas keep the accumulators in registers.
template <std::size_t Rows, std::size_t Vectors, bool Add, class T>
inline void multiply_block(left_tile<T> a, row_tile<const T> b, index_range k_range, row_tile<T> c,
                           std::size_t j) noexcept {
  using native = typename simd<T>::native;
  constexpr std::size_t lanes = simd<T>::lanes_per_part;
  native sum[Rows][Vectors];
#pragma GCC unroll 8
  for (std::size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < Vectors; ++v) {
      if constexpr (Add)
        std::memcpy(&sum[r][v], c.data + r * c.stride + j + v * lanes, sizeof(native));
      else
        sum[r][v] = native{};
    }
  }
  for (std::size_t k = k_range.begin; k < k_range.end; ++k) {
    native right[Vectors];
#pragma GCC unroll 8
    for (std::size_t v = 0; v < Vectors; ++v) {
      std::memcpy(&right[v], b.data + k * b.stride + j + v * lanes, sizeof(native));
    }
#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r) {
      const native left =
          a.data[r * a.row_stride + k * a.k_stride] - native{};  // x - 0 is x for the compiler too, 0 + x is not
#pragma GCC unroll 8
      for (std::size_t v = 0; v < Vectors; ++v) sum[r][v] = left * right[v] + sum[r][v];
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < Vectors; ++v) {
      std::memcpy(c.data + r * c.stride + j + v * lanes, &sum[r][v], sizeof(native));
    }
  }
}

/// c[rows, columns] = (or += with Add) a[rows, k] b[k, columns] over k in `k_range`, for up to `tile_rows` rows;
/// columns is a multiple of the lanes of simd<T>. Each element is added in order of k, so its bits do not depend on the
/// rows and columns around it.
template <bool Add, class T>
inline void multiply_rows(std::size_t rows, left_tile<T> a, row_tile<const T> b, index_range k_range, row_tile<T> c,
                          std::size_t columns) noexcept {
  constexpr std::size_t lanes = simd<T>::lanes_per_part;
  const auto all_columns = [&]<std::size_t Rows>(std::integral_constant<std::size_t, Rows>) {
    std::size_t j = 0;
    for (; j + 2 * lanes <= columns; j += 2 * lanes) multiply_block<Rows, 2, Add>(a, b, k_range, c, j);
    if (j < columns) multiply_block<Rows, 1, Add>(a, b, k_range, c, j);
  };
  switch (rows) {
    case 6:
      return all_columns(std::integral_constant<std::size_t, 6>{});
    case 5:
      return all_columns(std::integral_constant<std::size_t, 5>{});
    case 4:
      return all_columns(std::integral_constant<std::size_t, 4>{});
    case 3:
      return all_columns(std::integral_constant<std::size_t, 3>{});
    case 2:
      return all_columns(std::integral_constant<std::size_t, 2>{});
    case 1:
      return all_columns(std::integral_constant<std::size_t, 1>{});
    default:
      return;
  }
}

/// Transposes a block of as many rows as a register has lanes, in registers: every round interleaves two halves.
template <class T>
inline void transpose_block(row_tile<const T> from, row_tile<T> to) noexcept {
  using native = typename simd<T>::native;
  constexpr std::size_t lanes = simd<T>::lanes_per_part;
  native row[lanes];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < lanes; ++i) std::memcpy(&row[i], from.data + i * from.stride, sizeof(native));
  [&]<int... Lane>(std::integer_sequence<int, Lane...>) {
    constexpr int n = static_cast<int>(lanes);
#pragma GCC unroll 4
    for (std::size_t round = 1; round < lanes; round *= 2) {
      native next[lanes];
#pragma GCC unroll 8
      for (std::size_t i = 0; i < lanes / 2; ++i) {
        next[2 * i] = __builtin_shufflevector(row[i], row[i + lanes / 2], (Lane % 2 * n + Lane / 2)...);
        next[2 * i + 1] = __builtin_shufflevector(row[i], row[i + lanes / 2], (Lane % 2 * n + (n + Lane) / 2)...);
      }
#pragma GCC unroll 16
      for (std::size_t i = 0; i < lanes; ++i) row[i] = next[i];
    }
  }
  (std::make_integer_sequence<int, static_cast<int>(lanes)>{});
#pragma GCC unroll 16
  for (std::size_t i = 0; i < lanes; ++i) std::memcpy(to.data + i * to.stride, &row[i], sizeof(native));
}

/// to[column, row] = from[row, column]
template <class T>
inline void transpose(row_tile<const T> from, std::size_t rows, std::size_t columns, row_tile<T> to) noexcept {
  constexpr std::size_t lanes = simd<T>::lanes_per_part;
  const std::size_t whole_rows = rows / lanes * lanes;
  const std::size_t whole_columns = columns / lanes * lanes;
  for (std::size_t i = 0; i < whole_rows; i += lanes) {
    for (std::size_t j = 0; j < whole_columns; j += lanes) {
      transpose_block<T>({from.data + i * from.stride + j, from.stride}, {to.data + j * to.stride + i, to.stride});
    }
  }
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
      to.data[j * to.stride + i] = from.data[i * from.stride + j];
    }
  }
}

/// to = factor * from, with zeros in the columns up to the stride of `to`.
template <class T>
inline void copy_rows(row_tile<const T> from, std::size_t rows, std::size_t columns, row_tile<T> to,
                      T factor = T{1}) noexcept {
  for (std::size_t i = 0; i < rows; ++i) {
    const T* in = from.data + i * from.stride;
    T* out = to.data + i * to.stride;
    for_lanes<T>(0, columns, [=](std::size_t j, auto lanes) {
      store_lanes(load_lanes(in + j, lanes) * simd<T>(factor), out + j, lanes);
    });
    std::fill(out + columns, out + to.stride, T{0});
  }
}

/// Memory of the calling thread for `count` elements, aligned to 64 bytes; valid until the thread's next call. It is
/// kept: blocks of this size would otherwise be mapped and zeroed by the system at every use.
template <class T>
[[nodiscard]] inline T* tile_scratch(std::size_t count) {
  constexpr std::size_t slack = 64 / sizeof(T);
  thread_local std::vector<T> memory;
  if (memory.size() < count + slack) memory.resize(count + slack);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (64 - address % 64) % 64 / sizeof(T);
}

}  // namespace hetero::detail::cpu
