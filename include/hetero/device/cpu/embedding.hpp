// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <hetero/device/cpu/dispatch.hpp>
#include <hetero/device/cpu/simd.hpp>
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/op/embedding.hpp>

namespace hetero::detail::cpu {

/// rows of `ids`, width of the table, its vocabulary, and the number of positions (1 without positions).
struct embedding_size {
  std::size_t rows;
  std::size_t width;
  std::size_t vocabulary;
  std::size_t context;
};

/// @throws error invalid_shape; invalid_argument for an id outside the table, naming row and id
inline embedding_size check_embedding(const char* op, const operand& table, const operand& positions,
                                      const operand& per_row, const tensor_view& ids) {
  expect(table.view.dims() == 2 && table.view.contiguous() && table.view, op, "needs a contiguous matrix as table",
         {table});
  const embedding_size size{
      ids.count(), table.view.extent(1), table.view.extent(0),
      positions.view ? positions.view.count() / std::max<std::size_t>(1, table.view.extent(1)) : 1};
  expect_dense(op, {"ids", ids}, size.rows, dtype::i32);
  expect_dense(op, per_row, size.rows * size.width, table.view.type());
  if (positions.view) {
    expect(size.context > 0, op, "needs at least one row of positions", {positions, table});
    expect_dense(op, positions, size.context * size.width, table.view.type());
  }
  const auto* id = ids.as<std::int32_t>();
  for (std::size_t row = 0; row < size.rows; ++row) {
    require(id[row] >= 0 && static_cast<std::size_t>(id[row]) < size.vocabulary, errc::invalid_argument, [&] {
      return std::string{op} + ": id " + std::to_string(id[row]) + " in row " + std::to_string(row) +
             " is outside a table of " + std::to_string(size.vocabulary) + " rows";
    });
  }
  return size;
}

inline void run(const op::embedding_forward& o, thread_team& team) {
  for_float_type("embedding_forward", o.out.type(), [&]<class T>() {
    const embedding_size size =
        check_embedding("embedding_forward", {"table", o.table}, {"positions", o.positions}, {"out", o.out}, o.ids);
    const auto* ids = o.ids.as<std::int32_t>();
    const std::size_t grain = elementwise_grain / std::max<std::size_t>(1, size.width) + 1;
    team.parallel(size.rows, grain, [&](std::size_t begin, std::size_t end, std::size_t) {
      for (std::size_t row = begin; row < end; ++row) {
        const T* from = o.table.as<T>() + static_cast<std::size_t>(ids[row]) * size.width;
        T* out = o.out.as<T>() + row * size.width;
        if (!o.positions) {
          std::copy(from, from + size.width, out);
          continue;
        }
        const T* position = o.positions.as<T>() + row % size.context * size.width;
        for_lanes<T>(0, size.width, [=](std::size_t i, auto lanes) {
          store_lanes(load_lanes(from + i, lanes) + load_lanes(position + i, lanes), out + i, lanes);
        });
      }
    });
  });
}

/// Threads share columns, so that every element is added in row order whatever their number.
inline void run(const op::embedding_backward& o, thread_team& team) {
  for_float_type("embedding_backward", o.grad_table.type(), [&]<class T>() {
    const embedding_size size = check_embedding("embedding_backward", {"grad_table", o.grad_table},
                                                {"grad_positions", o.grad_positions}, {"grad_out", o.grad_out}, o.ids);
    const auto clear = [&](const tensor_view& view) {
      team.parallel(view.count(), elementwise_grain, [&](std::size_t begin, std::size_t end, std::size_t) {
        std::fill(view.as<T>() + begin, view.as<T>() + end, T{0});
      });
    };
    if (!o.accumulate_table) clear(o.grad_table);
    if (o.grad_positions && !o.accumulate_positions) clear(o.grad_positions);

    constexpr std::size_t lanes_per_vector = simd<T>::lanes;
    const auto* ids = o.ids.as<std::int32_t>();
    const std::size_t vectors = (size.width + lanes_per_vector - 1) / lanes_per_vector;
    const std::size_t grain = elementwise_grain / 2 / (lanes_per_vector * (size.rows + 1)) + 1;
    team.parallel(vectors, grain, [&](std::size_t first, std::size_t last, std::size_t) {
      const std::size_t begin = first * lanes_per_vector;
      const std::size_t end = std::min(size.width, last * lanes_per_vector);
      const auto add = [=](T* into, const T* from) {
        for_lanes<T>(begin, end, [=](std::size_t i, auto lanes) {
          store_lanes(load_lanes(into + i, lanes) + load_lanes(from + i, lanes), into + i, lanes);
        });
      };
      for (std::size_t row = 0; row < size.rows; ++row) {
        const T* from = o.grad_out.as<T>() + row * size.width;
        add(o.grad_table.as<T>() + static_cast<std::size_t>(ids[row]) * size.width, from);
        if (o.grad_positions) add(o.grad_positions.as<T>() + row % size.context * size.width, from);
      }
    });
  });
}

}  // namespace hetero::detail::cpu
