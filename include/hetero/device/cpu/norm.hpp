// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <hetero/device/cpu/dispatch.hpp>
#include <hetero/device/cpu/simd.hpp>
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/op/norm.hpp>

/// @file
/// Layer norm and RMS norm. A row is read several times, but from the first-level cache; every sum is split over lanes,
/// in an order that depends on the width alone.
namespace hetero::detail::cpu {

/// sum over i of term(i, lanes), two vectors at a time.
template <class T, class Term>
[[nodiscard]] inline T lane_split_sum(std::size_t count, Term term) noexcept {
  constexpr std::size_t lanes = simd<T>::lanes;
  constexpr std::integral_constant<std::size_t, lanes> all{};
  simd<T> a(T{0});
  simd<T> b(T{0});
  std::size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    a += term(i, all);
    b += term(i + lanes, all);
  }
  for_lanes<T>(i, count, [&](std::size_t k, auto some) { a += term(k, some); });
  return (a + b).sum();
}

/// x in the first `count` lanes, 0 in the others.
template <class T, class Count>
[[nodiscard]] inline simd<T> keep_lanes(const simd<T>& x, Count count) noexcept {
  if constexpr (std::is_same_v<Count, std::size_t>) {
    alignas(64) T lane[simd<T>::lanes];
    x.store(lane);
    return simd<T>::load_partial(lane, count);
  } else {
    return x;
  }
}

/// Rows per thread below which sharing costs more than it gains.
[[nodiscard]] inline std::size_t row_grain(std::size_t width) noexcept {
  return std::max<std::size_t>(1, elementwise_grain / 2 / std::max<std::size_t>(1, width));
}

struct norm_size {
  std::size_t rows;
  std::size_t width;
};

/// `matrix` is [rows, width] (leading dimensions fold into rows), the statistics [rows], the vectors [width].
inline norm_size check_norm(const char* op, std::initializer_list<operand> matrices,
                            std::initializer_list<operand> statistics, std::initializer_list<operand> vectors) {
  expect_alike(op, matrices);
  const operand& first = *matrices.begin();
  const std::size_t width = first.view.extents().last();
  const std::size_t rows = width == 0 ? 0 : first.view.count() / width;
  for (const operand& o : matrices) {
    expect(o.view.extents().last() == width, op, "all matrices need the same last extent", matrices);
  }
  for (const operand& o : statistics) expect_dense(op, o, rows, first.view.type());
  for (const operand& o : vectors) expect_dense(op, o, width, first.view.type());
  return {rows, width};
}

inline void run(const op::layer_norm_forward& o, thread_team& team) {
  for_float_type("layer_norm_forward", o.out.type(), [&]<class T>() {
    const auto [rows, width] = check_norm("layer_norm_forward", {{"out", o.out}, {"in", o.in}},
                                          {{"mean", o.mean}, {"rstd", o.rstd}}, {{"gain", o.gain}});
    if (o.bias) expect_dense("layer_norm_forward", {"bias", o.bias}, width, o.out.type());
    const T* gain = o.gain.as<T>();
    const T* bias = o.bias ? o.bias.as<T>() : nullptr;
    const T per_element = T(1) / static_cast<T>(width);
    team.parallel(rows, row_grain(width), [&, width = width](std::size_t begin, std::size_t end, std::size_t) {
      for (std::size_t row = begin; row < end; ++row) {
        const T* in = o.in.as<T>() + row * width;
        T* out = o.out.as<T>() + row * width;
        const T mean = per_element *
                       lane_split_sum<T>(width, [&](std::size_t i, auto lanes) { return load_lanes(in + i, lanes); });
        // The second pass over the row instead of sum(x^2) - n mean^2, which loses all digits when |mean| >> deviation.
        const T variance = per_element * lane_split_sum<T>(width, [&](std::size_t i, auto lanes) {
                             const simd<T> centred = keep_lanes(load_lanes(in + i, lanes) - simd<T>(mean), lanes);
                             return centred * centred;
                           });
        const T rstd = T(1) / std::sqrt(variance + static_cast<T>(o.epsilon));
        for_lanes<T>(0, width, [&](std::size_t i, auto lanes) {
          const simd<T> normal = (load_lanes(in + i, lanes) - simd<T>(mean)) * simd<T>(rstd);
          const simd<T> scaled = normal * load_lanes(gain + i, lanes);
          store_lanes(bias == nullptr ? scaled : scaled + load_lanes(bias + i, lanes), out + i, lanes);
        });
        o.mean.as<T>()[row] = mean;
        o.rstd.as<T>()[row] = rstd;
      }
    });
  });
}

inline void run(const op::rms_norm_forward& o, thread_team& team) {
  for_float_type("rms_norm_forward", o.out.type(), [&]<class T>() {
    const auto [rows, width] =
        check_norm("rms_norm_forward", {{"out", o.out}, {"in", o.in}}, {{"rstd", o.rstd}}, {{"gain", o.gain}});
    const T* gain = o.gain.as<T>();
    team.parallel(rows, row_grain(width), [&, width = width](std::size_t begin, std::size_t end, std::size_t) {
      for (std::size_t row = begin; row < end; ++row) {
        const T* in = o.in.as<T>() + row * width;
        T* out = o.out.as<T>() + row * width;
        const T square = lane_split_sum<T>(width, [&](std::size_t i, auto lanes) {
          const simd<T> x = load_lanes(in + i, lanes);
          return x * x;
        });
        const T rstd = T(1) / std::sqrt(square / static_cast<T>(width) + static_cast<T>(o.epsilon));
        for_lanes<T>(0, width, [&](std::size_t i, auto lanes) {
          store_lanes(load_lanes(in + i, lanes) * simd<T>(rstd) * load_lanes(gain + i, lanes), out + i, lanes);
        });
        o.rstd.as<T>()[row] = rstd;
      }
    });
  });
}

/// With n = (x - mean) rstd and d = grad_out gain: grad_in = rstd (d - average of d - n average of (d n)); without
/// `mean` (RMS norm) the average of d is left out.
template <class T>
inline void norm_backward_rows(norm_size size, T* grad_in, const T* grad_out, const T* in, const T* mean, const T* rstd,
                               const T* gain, thread_team& team) {
  const std::size_t width = size.width;
  const T per_element = T(1) / static_cast<T>(width);
  team.parallel(size.rows, row_grain(width), [=](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t row = begin; row < end; ++row) {
      const T* x = in + row * width;
      const T* g = grad_out + row * width;
      T* result = grad_in + row * width;
      const T r = rstd[row];
      const simd<T> middle(mean == nullptr ? T{0} : mean[row]);
      const auto scaled_grad = [=](std::size_t i, auto lanes) {
        return load_lanes(g + i, lanes) * load_lanes(gain + i, lanes);
      };
      const T average = mean == nullptr ? T{0} : per_element * lane_split_sum<T>(width, [=](std::size_t i, auto lanes) {
                                                   return scaled_grad(i, lanes);
                                                 });
      // The lanes beyond the row hold x - mean = -mean, but their gradient is 0.
      const T along = r * per_element * lane_split_sum<T>(width, [=](std::size_t i, auto lanes) {
                        return scaled_grad(i, lanes) * (load_lanes(x + i, lanes) - middle);
                      });
      for_lanes<T>(0, width, [=](std::size_t i, auto lanes) {
        const simd<T> normal = (load_lanes(x + i, lanes) - middle) * simd<T>(r);
        const simd<T> left = scaled_grad(i, lanes) - simd<T>(average);
        store_lanes((left - normal * simd<T>(along)) * simd<T>(r), result + i, lanes);
      });
    }
  });
}

inline void run(const op::layer_norm_backward_input& o, thread_team& team) {
  for_float_type("layer_norm_backward_input", o.grad_in.type(), [&]<class T>() {
    const norm_size size =
        check_norm("layer_norm_backward_input", {{"grad_in", o.grad_in}, {"grad_out", o.grad_out}, {"in", o.in}},
                   {{"mean", o.mean}, {"rstd", o.rstd}}, {{"gain", o.gain}});
    norm_backward_rows<T>(size, o.grad_in.as<T>(), o.grad_out.as<T>(), o.in.as<T>(), o.mean.as<T>(), o.rstd.as<T>(),
                          o.gain.as<T>(), team);
  });
}

inline void run(const op::rms_norm_backward_input& o, thread_team& team) {
  for_float_type("rms_norm_backward_input", o.grad_in.type(), [&]<class T>() {
    const norm_size size =
        check_norm("rms_norm_backward_input", {{"grad_in", o.grad_in}, {"grad_out", o.grad_out}, {"in", o.in}},
                   {{"rstd", o.rstd}}, {{"gain", o.gain}});
    norm_backward_rows<T>(size, o.grad_in.as<T>(), o.grad_out.as<T>(), o.in.as<T>(), nullptr, o.rstd.as<T>(),
                          o.gain.as<T>(), team);
  });
}

/// grad_gain[j] = sum over rows of grad_out n, grad_bias[j] = sum of grad_out. Threads share columns, so every column
/// is added in row order whatever their number; four rows at a time, which also halves the rounding error.
template <class T>
inline void norm_backward_columns(norm_size size, T* grad_gain, T* grad_bias, const T* grad_out, const T* in,
                                  const T* mean, const T* rstd, bool accumulate, thread_team& team) {
  constexpr std::size_t lanes_per_vector = simd<T>::lanes;
  const auto [rows, width] = size;
  const std::size_t vectors = (width + lanes_per_vector - 1) / lanes_per_vector;
  const std::size_t grain = std::max<std::size_t>(1, elementwise_grain / 2 / (lanes_per_vector * (rows + 1)));
  team.parallel(vectors, grain, [=, rows = rows, width = width](std::size_t first, std::size_t last, std::size_t) {
    const std::size_t begin = first * lanes_per_vector;
    const std::size_t end = std::min(width, last * lanes_per_vector);
    if (!accumulate) {
      std::fill(grad_gain + begin, grad_gain + end, T{0});
      if (grad_bias != nullptr) std::fill(grad_bias + begin, grad_bias + end, T{0});
    }
    for (std::size_t row = 0; row < rows; row += 4) {
      const std::size_t group = std::min<std::size_t>(4, rows - row);
      for_lanes<T>(begin, end, [=](std::size_t i, auto lanes) {
        const auto term = [=](std::size_t k, simd<T>& gain, simd<T>& bias) {
          const std::size_t at = (row + k) * width + i;
          const simd<T> g = load_lanes(grad_out + at, lanes);
          const simd<T> middle(mean == nullptr ? T{0} : mean[row + k]);
          gain += g * ((load_lanes(in + at, lanes) - middle) * simd<T>(rstd[row + k]));
          bias += g;
        };
        simd<T> gain(T{0});
        simd<T> bias(T{0});
        if (group == 4) {
          simd<T> other_gain(T{0});
          simd<T> other_bias(T{0});
          term(0, gain, bias);
          term(1, other_gain, other_bias);
          term(2, gain, bias);
          term(3, other_gain, other_bias);
          gain += other_gain;
          bias += other_bias;
        } else {
          for (std::size_t k = 0; k < group; ++k) term(k, gain, bias);
        }
        store_lanes(load_lanes(grad_gain + i, lanes) + gain, grad_gain + i, lanes);
        if (grad_bias != nullptr) store_lanes(load_lanes(grad_bias + i, lanes) + bias, grad_bias + i, lanes);
      });
    }
  });
}

inline void run(const op::layer_norm_backward_weight& o, thread_team& team) {
  for_float_type("layer_norm_backward_weight", o.grad_gain.type(), [&]<class T>() {
    const norm_size size = check_norm("layer_norm_backward_weight", {{"grad_out", o.grad_out}, {"in", o.in}},
                                      {{"mean", o.mean}, {"rstd", o.rstd}}, {{"grad_gain", o.grad_gain}});
    if (o.grad_bias) expect_dense("layer_norm_backward_weight", {"grad_bias", o.grad_bias}, size.width, o.in.type());
    norm_backward_columns<T>(size, o.grad_gain.as<T>(), o.grad_bias ? o.grad_bias.as<T>() : nullptr, o.grad_out.as<T>(),
                             o.in.as<T>(), o.mean.as<T>(), o.rstd.as<T>(), o.accumulate, team);
  });
}

inline void run(const op::rms_norm_backward_weight& o, thread_team& team) {
  for_float_type("rms_norm_backward_weight", o.grad_gain.type(), [&]<class T>() {
    const norm_size size = check_norm("rms_norm_backward_weight", {{"grad_out", o.grad_out}, {"in", o.in}},
                                      {{"rstd", o.rstd}}, {{"grad_gain", o.grad_gain}});
    norm_backward_columns<T>(size, o.grad_gain.as<T>(), nullptr, o.grad_out.as<T>(), o.in.as<T>(), nullptr,
                             o.rstd.as<T>(), o.accumulate, team);
  });
}

}  // namespace hetero::detail::cpu
