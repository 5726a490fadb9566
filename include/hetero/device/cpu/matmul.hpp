// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include <hetero/device/cpu/dispatch.hpp>
#include <hetero/device/cpu/gemm.hpp>
#include <hetero/device/cpu/simd.hpp>
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/op/matmul.hpp>

namespace hetero::detail::cpu {

/// A view as BLAS sees it: rows of dense elements, `stride` elements apart. Leading dimensions of a dense view fold
/// into rows.
struct matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t stride = 1;
};

/// @throws error invalid_shape
[[nodiscard]] inline matrix as_matrix(const char* op, const operand& o) {
  const tensor_view& v = o.view;
  constexpr std::size_t most = std::numeric_limits<int>::max();
  expect(v.dims() >= 2, op, "an operand needs at least two dimensions", {o});
  expect(v || v.count() == 0, op, "an operand has no memory", {o});
  const std::size_t columns = v.extents().last();
  const bool dense = v.contiguous();
  expect(dense || (v.dims() == 2 && (columns < 2 || v.stride(1) == 1) && v.stride(0) >= columns), op,
         "rows may be strided, but their elements must be dense", {o});
  const std::size_t rows = v.dims() == 2 ? v.extent(0) : (columns == 0 ? 0 : v.count() / columns);
  const std::size_t stride = dense ? columns : v.stride(0);
  expect(rows <= most && columns <= most && stride <= most, op, "BLAS takes at most 2^31 - 1 rows or columns", {o});
  return {rows, columns, stride == 0 ? 1 : stride};
}

/// Operands of one matrix product, as pointers and strides.
template <class T> struct product {
  T* out;
  const T* a;
  const T* b;
  const T* bias;  ///< or null
  matrix out_shape, a_shape, b_shape;
  std::size_t inner;
  bool transpose_a, transpose_b, accumulate;

  /// Computes the block of `rows` x `columns` of out.
  void compute(index_range rows, index_range columns) const {
    const std::size_t m = rows.end - rows.begin;
    const std::size_t n = columns.end - columns.begin;
    T* const block = out + rows.begin * out_shape.stride + columns.begin;
    if (bias != nullptr || (inner == 0 && !accumulate)) {
      for (std::size_t row = 0; row < m; ++row) {
        if (bias != nullptr) {
          std::memcpy(block + row * out_shape.stride, bias + columns.begin, n * sizeof(T));
        } else {
          std::memset(block + row * out_shape.stride, 0, n * sizeof(T));
        }
      }
    }
    if (inner == 0 || m == 0 || n == 0) return;
    const T* const first = a + rows.begin * (transpose_a ? 1 : a_shape.stride);
    const T* const second = b + columns.begin * (transpose_b ? b_shape.stride : 1);
    // beta 0 does not read out, which may be uninitialised and hold NaNs.
    gemm<T>({.transpose_a = transpose_a,
             .transpose_b = transpose_b,
             .m = static_cast<int>(m),
             .n = static_cast<int>(n),
             .k = static_cast<int>(inner),
             .a = first,
             .a_stride = static_cast<int>(a_shape.stride),
             .b = second,
             .b_stride = static_cast<int>(b_shape.stride),
             .beta = accumulate || bias != nullptr ? T{1} : T{0},
             .c = block,
             .c_stride = static_cast<int>(out_shape.stride)});
  }

  /// Each thread computes a strip of the larger dimension of out, so that what both must pack is the smaller operand.
  /// Strips begin at multiples of 16, the widest tile of the BLAS kernels.
  void compute(thread_team& team) const {
    constexpr std::size_t tile = 16;
    const std::size_t m = out_shape.rows;
    const std::size_t n = out_shape.columns;
    const bool by_rows = m >= n;
    const std::size_t tiles = ((by_rows ? m : n) + tile - 1) / tile;
    // Below a quarter of a million multiplications (some 5 us) waking a thread costs more than it brings.
    const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(inner);
    const std::size_t grain = work < 262144 ? tiles : 1;
    team.parallel(tiles, grain, [&](std::size_t begin, std::size_t end, std::size_t) {
      const index_range whole{0, by_rows ? n : m};
      const index_range strip{begin * tile, std::min(end * tile, by_rows ? m : n)};
      by_rows ? compute(strip, whole) : compute(whole, strip);
    });
  }
};

/// @throws error invalid_shape with every shape, unsupported
inline void run(const op::matmul& o, thread_team& team) {
  constexpr const char* name = "matmul";
  const std::initializer_list<operand> all = {{"out", o.out}, {"a", o.a}, {"b", o.b}};
  const matrix out = as_matrix(name, {"out", o.out});
  const matrix a = as_matrix(name, {"a", o.a});
  const matrix b = as_matrix(name, {"b", o.b});
  expect(o.a.type() == o.out.type() && o.b.type() == o.out.type(), name, "all operands need one type", all);
  const std::size_t inner = o.transpose_a ? a.rows : a.columns;
  const bool fits = out.rows == (o.transpose_a ? a.columns : a.rows) &&
                    out.columns == (o.transpose_b ? b.rows : b.columns) &&
                    inner == (o.transpose_b ? b.columns : b.rows);
  expect(fits, name,
         o.transpose_a
             ? (o.transpose_b ? "out [m, n] needs a [k, m] and b [n, k]" : "out [m, n] needs a [k, m] and b [k, n]")
         : o.transpose_b ? "out [m, n] needs a [m, k] and b [n, k]"
                         : "out [m, n] needs a [m, k] and b [k, n]",
         all);
  if (o.bias) {
    expect_dense(name, {"bias", o.bias}, out.columns, o.out.type());
    require(!o.accumulate, errc::invalid_argument, "matmul: a bias cannot be added to an accumulated product");
  }
  if (out.rows == 0 || out.columns == 0) return;
  keep_blas_single_threaded();
  for_float_type(name, o.out.type(), [&]<class T>() {
    product<T>{o.out.as<T>(), o.a.as<T>(),   o.b.as<T>(), o.bias ? o.bias.as<T>() : nullptr, out, a, b, inner,
               o.transpose_a, o.transpose_b, o.accumulate}
        .compute(team);
  });
}

/// Rows are added in order, whatever the number of threads, which share the columns.
/// @throws error invalid_shape, unsupported
inline void run(const op::column_sum& o, thread_team& team) {
  constexpr const char* name = "column_sum";
  const matrix in = as_matrix(name, {"in", o.in});
  expect_dense(name, {"out", o.out}, in.columns, o.in.type());
  for_float_type(name, o.in.type(), [&]<class T>() {
    constexpr std::size_t lanes = simd<T>::lanes;
    T* const out = o.out.as<T>();
    const T* const values = o.in.as<T>();
    const auto column_group = [&](std::size_t column, auto count) {
      simd<T> sum = o.accumulate ? load_lanes(out + column, count) : simd<T>{T{0}};
      for (std::size_t row = 0; row < in.rows; ++row) sum += load_lanes(values + row * in.stride + column, count);
      store_lanes(sum, out + column, count);
    };
    const auto wide_group = [&](std::size_t column) {  // four groups at once: whole cache lines and no waiting
      simd<T> sums[4];
      for (std::size_t g = 0; g < 4; ++g) {
        sums[g] = o.accumulate ? simd<T>::load(out + column + g * lanes) : simd<T>{T{0}};
      }
      for (std::size_t row = 0; row < in.rows; ++row) {
        const T* const from = values + row * in.stride + column;
        for (std::size_t g = 0; g < 4; ++g) sums[g] += simd<T>::load(from + g * lanes);
      }
      for (std::size_t g = 0; g < 4; ++g) sums[g].store(out + column + g * lanes);
    };
    const std::size_t groups = (in.columns + lanes - 1) / lanes;
    const std::size_t grain = in.rows * in.columns < 2 * elementwise_grain ? groups : 1;
    team.parallel(groups, grain, [&](std::size_t begin, std::size_t end, std::size_t) {
      std::size_t column = begin * lanes;
      const std::size_t stop = std::min(end * lanes, in.columns);
      for (; column + 4 * lanes <= stop; column += 4 * lanes) wide_group(column);
      for_lanes<T>(column, stop, column_group);
    });
  });
}

}  // namespace hetero::detail::cpu
