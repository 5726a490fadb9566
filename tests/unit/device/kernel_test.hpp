// SPDX-License-Identifier: Apache-2.0
// What the tests of CPU kernels share: owned tensors, random values, bit comparison, and the code of a thrown error.
#pragma once

#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <hetero/core/rng.hpp>
#include <hetero/core/tensor_view.hpp>
#include <hetero/device/cpu/thread_team.hpp>

namespace hetero::test::kernels {

/// A tensor that owns its memory. New elements are NaN (or the lowest integer), so that a kernel which counts on
/// cleared memory, or leaves a gap, is found out.
template <class T>
struct tensor {
  shape extents;
  std::vector<T> values;

  tensor(std::initializer_list<std::size_t> sizes)  // NOLINT: a list of extents reads best without a type
      : extents{sizes}, values(extents.count(), poison()) {}
  tensor(shape s, std::vector<T> v) : extents{s}, values(std::move(v)) {}

  [[nodiscard]] tensor_view view() const { return {const_cast<T*>(values.data()), dtype_of<T>, extents}; }
  operator tensor_view() const { return view(); }
  [[nodiscard]] T& operator[](std::size_t i) { return values[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return values[i]; }
  [[nodiscard]] std::size_t count() const { return values.size(); }

  static T poison() {
    if constexpr (std::is_floating_point_v<T>)
      return std::numeric_limits<T>::quiet_NaN();
    else
      return std::numeric_limits<T>::lowest();
  }
};

/// Normal values, a pure function of (stream, index).
template <class T>
[[nodiscard]] tensor<T> normal(std::initializer_list<std::size_t> sizes, std::uint32_t stream, double scale = 1,
                               double offset = 0) {
  tensor<T> result(sizes);
  const counter_rng rng{7, rng_purpose::test, stream};
  for (std::size_t i = 0; i < result.count(); ++i) {
    result[i] = static_cast<T>(offset + scale * static_cast<double>(rng.normal(i)));
  }
  return result;
}

/// Rows [first, first + rows) of the outermost dimension, copied.
template <class T>
[[nodiscard]] tensor<T> rows_of(const tensor<T>& whole, std::size_t first, std::size_t rows) {
  shape extents = whole.extents;
  const std::size_t row = whole.count() / extents[0];
  extents[0] = rows;
  const auto begin = whole.values.begin() + static_cast<std::ptrdiff_t>(first * row);
  return {extents, std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(rows * row))};
}

template <class T>
[[nodiscard]] bool same_bits(const tensor<T>& a, const tensor<T>& b) {
  return a.count() == b.count() && std::memcmp(a.values.data(), b.values.data(), a.count() * sizeof(T)) == 0;
}

/// Largest |a - b| over the largest |b| (at least `floor`); infinite when a NaN or an infinity is on one side only.
template <class T>
[[nodiscard]] double distance(const std::vector<T>& a, const std::vector<double>& b, double floor = 1e-3) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double most = floor;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]);
    if (!std::isfinite(x) || !std::isfinite(b[i])) return std::numeric_limits<double>::infinity();
    most = std::max(most, std::abs(b[i]));
    worst = std::max(worst, std::abs(x - b[i]));
  }
  return worst / most;
}

/// What a kernel in T may differ from the reference in double.
template <class T>
inline constexpr double tolerance = std::is_same_v<T, float> ? 2e-6 : 1e-13;

struct failure {
  std::optional<errc> code;
  std::string text;
};

template <class F>
[[nodiscard]] failure failure_of(F&& f) {
  try {
    f();
  } catch (const error& e) {
    return {e.code(), e.what()};
  }
  return {};
}

}  // namespace hetero::test::kernels
