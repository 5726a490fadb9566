// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <hetero/device/cpu/dispatch.hpp>
#include <hetero/device/cpu/simd.hpp>
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/op/cross_entropy.hpp>
#include <hetero/device/op/functor/math.hpp>

namespace hetero::detail::cpu {

/// Targets and weights of a batch of rows, checked.
class target_rows {
 public:
  /// @throws error invalid_shape; invalid_argument naming row and target
  target_rows(const char* op, const tensor_view& logits, const tensor_view& targets, const tensor_view& weights,
              std::int32_t ignored)
      : rows_{targets.count()}, ignored_{ignored} {
    expect(logits.dims() == 2 && logits.extent(0) == rows_ && (logits.extent(1) < 2 || logits.stride(1) == 1), op,
           "logits must be [rows, classes] with dense rows, one row per target",
           {{"logits", logits}, {"targets", targets}});
    expect_dense(op, {"targets", targets}, rows_, dtype::i32);
    targets_ = targets.as<std::int32_t>();
    if (weights) {
      const std::size_t samples = weights.count();
      expect(samples > 0 && rows_ % samples == 0, op, "rows must be a multiple of the samples that have weights",
             {{"weights", weights}, {"targets", targets}});
      expect_dense(op, {"weights", weights}, samples, dtype::f32);
      weights_ = weights.as<float>();
      rows_per_sample_ = rows_ / samples;
    }
    for (std::size_t row = 0; row < rows_; ++row) {
      const std::int32_t target = targets_[row];
      require(target == ignored_ || (target >= 0 && static_cast<std::size_t>(target) < logits.extent(1)),
              errc::invalid_argument, [&] {
                return std::string{op} + ": target " + std::to_string(target) + " in row " + std::to_string(row) +
                       " is neither one of " + std::to_string(logits.extent(1)) + " classes nor the ignored target " +
                       std::to_string(ignored_);
              });
    }
  }

  [[nodiscard]] std::size_t count() const noexcept { return rows_; }
  [[nodiscard]] std::size_t target(std::size_t row) const noexcept { return static_cast<std::size_t>(targets_[row]); }
  /// 0 for an ignored row.
  [[nodiscard]] double weight(std::size_t row) const noexcept {
    if (targets_[row] == ignored_) return 0;
    return weights_ == nullptr ? 1.0 : static_cast<double>(weights_[row / rows_per_sample_]);
  }

 private:
  std::size_t rows_;
  std::int32_t ignored_;
  const std::int32_t* targets_ = nullptr;
  const float* weights_ = nullptr;
  std::size_t rows_per_sample_ = 1;
};

/// Adds {sum of weight x value, sum of weights} to `result`, in row order, so that the bits do not depend on threads.
/// A row of weight 0 counts nothing, whatever its value.
inline void add_in_row_order(const tensor_view& result, const target_rows& rows, const std::vector<double>& values) {
  double sum = 0;
  double weights = 0;
  for (std::size_t row = 0; row < rows.count(); ++row) {
    const double weight = rows.weight(row);
    if (weight == 0) continue;
    sum += weight * values[row];
    weights += weight;
  }
  result.as<double>()[0] += sum;
  result.as<double>()[1] += weights;
}

/// The largest of `count` values. The second accumulator hides the latency of the first.
template <class T>
[[nodiscard]] inline T row_maximum(const T* row, std::size_t count) noexcept {
  constexpr std::size_t lanes = simd<T>::lanes;
  simd<T> a(-std::numeric_limits<T>::infinity());
  simd<T> b = a;
  std::size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    a = max(a, simd<T>::load(row + i));
    b = max(b, simd<T>::load(row + i + lanes));
  }
  T most = max(a, b).maximum();
  for (; i < count; ++i) most = row[i] > most ? row[i] : most;
  return most;
}

/// Sum of e^(row[i] - most), in double beyond pieces of 2048 terms; the terms themselves go to `terms` unless it is
/// null.
template <class T>
[[nodiscard]] inline double exp_sum(const T* row, std::size_t count, T most, T* terms) noexcept {
  constexpr std::size_t lanes_per_vector = simd<T>::lanes;
  constexpr std::size_t piece = 2048;
  double total = 0;
  for (std::size_t begin = 0; begin < count; begin += piece) {
    const std::size_t end = std::min(count, begin + piece);
    simd<T> sum(T{0});
    for_lanes<T>(begin, end, [&](std::size_t i, auto lanes) {
      const simd<T> term = functor::fast_exp{}(load_lanes(row + i, lanes) - simd<T>(most));
      if (terms != nullptr) store_lanes(term, terms + i, lanes);
      if constexpr (std::is_same_v<decltype(lanes), std::size_t>) {
        alignas(64) T lane[lanes_per_vector];
        term.store(lane);
        sum += simd<T>::load_partial(lane, lanes);
      } else {
        sum += term;
      }
    });
    total += static_cast<double>(sum.sum());
  }
  return total;
}

inline void run(const op::cross_entropy& o, thread_team& team) {
  for_float_type("cross_entropy", o.logits.type(), [&]<class T>() {
    const target_rows rows{"cross_entropy", o.logits, o.targets, o.weights, o.ignored_target};
    expect_dense("cross_entropy", {"result", o.result}, 2, dtype::f64);
    const std::size_t classes = o.logits.extent(1);
    if (o.grad_logits) {
      expect(o.grad_logits.type() == o.logits.type() && o.grad_logits.extents() == o.logits.extents() &&
                 (classes < 2 || o.grad_logits.stride(1) == 1),
             "cross_entropy", "grad_logits must be like logits, with dense rows",
             {{"grad_logits", o.grad_logits}, {"logits", o.logits}});
    }
    std::vector<double> losses(rows.count());
    const std::size_t grain = elementwise_grain / 4 / std::max<std::size_t>(1, classes) + 1;
    team.parallel(rows.count(), grain, [&](std::size_t begin, std::size_t end, std::size_t) {
      for (std::size_t row = begin; row < end; ++row) {
        const T* logits = o.logits.as<T>() + row * o.logits.stride(0);
        T* grad = o.grad_logits ? o.grad_logits.as<T>() + row * o.grad_logits.stride(0) : nullptr;
        const double weight = rows.weight(row);
        if (weight == 0) {
          if (grad != nullptr) std::fill(grad, grad + classes, T{0});
          continue;
        }
        const std::size_t target = rows.target(row);
        const T most = row_maximum(logits, classes);
        const double chosen = static_cast<double>(logits[target]);  // read before grad, which may be logits, is written
        const double sum = exp_sum(logits, classes, most, grad);
        losses[row] = std::log(sum) + (static_cast<double>(most) - chosen);
        if (grad == nullptr) continue;
        const simd<T> factor(static_cast<T>(weight / sum));
        for_lanes<T>(0, classes, [=](std::size_t i, auto lanes) {
          store_lanes(load_lanes(grad + i, lanes) * factor, grad + i, lanes);
        });
        grad[target] -= static_cast<T>(weight);
      }
    });
    add_in_row_order(o.result, rows, losses);
  });
}

/// A row is correct when its target's logit beats all earlier and equals or beats all later ones (of equal logits the
/// first is the prediction); a NaN anywhere in the row makes it wrong.
inline void run(const op::count_correct& o, thread_team& team) {
  for_float_type("count_correct", o.logits.type(), [&]<class T>() {
    const target_rows rows{"count_correct", o.logits, o.targets, o.weights, o.ignored_target};
    expect_dense("count_correct", {"correct", o.correct}, 2, dtype::f64);
    const std::size_t classes = o.logits.extent(1);
    std::vector<double> correct(rows.count());
    const std::size_t grain = elementwise_grain / std::max<std::size_t>(1, classes) + 1;
    team.parallel(rows.count(), grain, [&](std::size_t begin, std::size_t end, std::size_t) {
      for (std::size_t row = begin; row < end; ++row) {
        if (rows.weight(row) == 0) continue;
        const T* logits = o.logits.as<T>() + row * o.logits.stride(0);
        const std::size_t target = rows.target(row);
        const T chosen = logits[target];
        unsigned losses = 0;
        for (std::size_t i = 0; i < target; ++i) losses += logits[i] < chosen ? 0U : 1U;
        for (std::size_t i = target; i < classes; ++i) losses += logits[i] <= chosen ? 0U : 1U;
        correct[row] = losses == 0 ? 1 : 0;
      }
    });
    add_in_row_order(o.correct, rows, correct);
  });
}

}  // namespace hetero::detail::cpu
