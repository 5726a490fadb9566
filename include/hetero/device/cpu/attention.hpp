// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include <hetero/device/cpu/attention_backward.hpp>
#include <hetero/device/cpu/attention_forward.hpp>
#include <hetero/device/cpu/attention_tiles.hpp>
#include <hetero/device/cpu/dispatch.hpp>
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/op/attention.hpp>

namespace hetero::detail::cpu {

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

/// Work items per thread, so that a range lasts some 20 us; `work` is multiply-adds of one item.
[[nodiscard]] inline std::size_t attention_grain(std::size_t work) noexcept {
  return (std::size_t{1} << 19U) / (work + 1) + 1;
}

inline void run(const op::attention_forward& o, thread_team& team) {
  for_float_type("attention_forward", o.qkv.type(), [&]<class T>() {
    const attention_size size =
        check_attention("attention_forward", {"qkv", o.qkv}, {"log_sum_exp", o.log_sum_exp}, {{"out", o.out}}, o.heads);
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
    const attention_size size = check_attention("attention_backward", {"qkv", o.qkv}, {"log_sum_exp", o.log_sum_exp},
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
