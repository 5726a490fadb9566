// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <hetero/device/cpu/simd.hpp>

using hetero::detail::simd;

TEMPLATE_TEST_CASE("lanes compute what scalars compute", "", float, double) {
  using T = TestType;
  constexpr std::size_t lanes = simd<T>::lanes;
  CHECK(lanes * sizeof(T) == 64);
  std::vector<T> a(lanes), b(lanes);
  for (std::size_t i = 0; i < lanes; ++i) {
    a[i] = static_cast<T>(i) - T(3);
    b[i] = T(1) + static_cast<T>(i) / T(7);
  }
  const auto x = simd<T>::load(a.data());
  const auto y = simd<T>::load(b.data());
  const simd<T> three{T(3)};
  T total = 0;
  for (std::size_t i = 0; i < lanes; ++i) {
    CHECK((x + y)[i] == a[i] + b[i]);
    CHECK((x - y)[i] == a[i] - b[i]);
    CHECK((x * y)[i] == a[i] * b[i]);
    CHECK((x / y)[i] == a[i] / b[i]);
    CHECK(fma(x, y, three)[i] == Approx(static_cast<double>(a[i] * b[i] + T(3))));
    CHECK(sqrt(y)[i] == std::sqrt(b[i]));
    CHECK(max(x, y)[i] == std::max(a[i], b[i]));
    CHECK(min(x, y)[i] == std::min(a[i], b[i]));
    CHECK(abs(x)[i] == std::abs(a[i]));
    CHECK(if_positive(x, x, three)[i] == (a[i] > 0 ? a[i] : T(3)));
    total += a[i];
  }
  CHECK(x.sum() == total);  // small integers: exact in any order
  CHECK(x.maximum() == a.back());
}

TEMPLATE_TEST_CASE("a sum halves the lanes, the same on every instruction set", "", float, double) {
  using T = TestType;
  constexpr std::size_t lanes = simd<T>::lanes;
  std::vector<T> values(lanes);
  for (std::size_t i = 0; i < lanes; ++i) values[i] = T(1) / static_cast<T>(3 + 5 * i * i);
  std::vector<T> tree = values;
  for (std::size_t half = lanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) tree[i] += tree[i + half];
  }
  CHECK(simd<T>::load(values.data()).sum() == tree[0]);
}

TEMPLATE_TEST_CASE("partial loads and stores touch nothing beyond their count", "", float, double) {
  using T = TestType;
  constexpr std::size_t lanes = simd<T>::lanes;
  for (std::size_t count = 0; count <= lanes; ++count) {
    const std::vector<T> exact(count, T(2));  // an address sanitizer sees one element more
    const auto x = simd<T>::load_partial(exact.data(), count);
    CHECK(x.sum() == T(2) * static_cast<T>(count));
    std::vector<T> out(lanes + 1, T(9));
    x.store_partial(out.data(), count);
    for (std::size_t i = 0; i < out.size(); ++i) CHECK(out[i] == (i < count ? T(2) : T(9)));
  }
}

TEST_CASE("a NaN is kept by keep_nan, though max passes over it") {
  std::vector<float> values(16, 1.0F);
  values[5] = std::numeric_limits<float>::quiet_NaN();
  const auto x = simd<float>::load(values.data());
  CHECK(max(simd<float>{0.0F}, x)[5] == 0.0F);
  CHECK(std::isnan(keep_nan(simd<float>{0.0F}, x)[5]));
  CHECK(keep_nan(simd<float>{0.0F}, x)[4] == 0.0F);
}

TEST_CASE("floats widen to doubles in order") {
  std::vector<float> values(16);
  for (std::size_t i = 0; i < 16; ++i) values[i] = 0.1F * static_cast<float>(i);
  const auto x = simd<float>::load(values.data());
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(hetero::detail::load_widened(values.data() + 3)[i] == static_cast<double>(values[3 + i]));
    CHECK(hetero::detail::widen(x, 0)[i] == static_cast<double>(values[i]));
    CHECK(hetero::detail::widen(x, 1)[i] == static_cast<double>(values[8 + i]));
  }
}

TEST_CASE("for_lanes visits every element once, the last group partial") {
  for (const std::size_t end : {std::size_t{3}, std::size_t{19}, std::size_t{35}, std::size_t{36}}) {
    std::vector<int> visits(end, 0);
    hetero::detail::for_lanes<float>(3, end, [&](std::size_t i, auto lanes) {
      for (std::size_t lane = 0; lane < lanes; ++lane) ++visits[i + lane];
    });
    for (std::size_t i = 0; i < end; ++i) CHECK(visits[i] == (i < 3 ? 0 : 1));
  }
}
