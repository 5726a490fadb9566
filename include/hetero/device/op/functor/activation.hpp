// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include <hetero/core/config.hpp>
#include <hetero/device/op/functor/math.hpp>

/// @file
/// Activation functions and their derivatives, for float, double and packs of lanes of either.
namespace hetero::functor {

namespace detail {

/// F itself for a scalar, the type of one lane for a pack.
template <class F>
struct scalar_of {
  using type = F;
};
template <lane_pack V>
struct scalar_of<V> {
  using type = std::remove_cvref_t<decltype(V{}.part[0][0])>;
};

/// A literal in the precision of F.
template <class F>
HETERO_HOST_DEVICE constexpr F constant(double value) noexcept {
  return F(static_cast<typename scalar_of<F>::type>(value));
}

/// f(values...) for scalars, register by register for packs: for formulas with comparisons.
template <class Function, class F, class... Others>
HETERO_HOST_DEVICE inline F choose(Function f, const F& x, const Others&... others) noexcept {
  if constexpr (lane_pack<F>) {
    return by_part(f, x, others...);
  } else {
    return f(x, others...);
  }
}

/// 2 sqrt(2 / pi) (x + 0.044715 x^3). In the tanh form gelu(x) = x / (1 + e^-u) with this u; unlike 1 + tanh, the
/// quotient does not cancel for negative x.
template <class F>
HETERO_HOST_DEVICE inline F gelu_exponent(const F& x, const F& square) noexcept {
  return x * (constant<F>(1.5957691216057308) + constant<F>(0.07135481627260025) * square);
}

}  // namespace detail

/// x Phi(x) by the tanh form; for finite x below -12 or so the result is -0.
struct gelu {
  template <class F>
  HETERO_HOST_DEVICE F operator()(const F& x) const noexcept {
    const F one = detail::constant<F>(1);
    return x / (one + fast_exp{}(detail::constant<F>(0) - detail::gelu_exponent(x, x * x)));
  }
};

/// grad * d gelu(x) / dx
struct gelu_gradient {
  template <class F>
  HETERO_HOST_DEVICE F operator()(const F& any_x, const F& grad) const noexcept {
    // Beyond 10 the derivative is 0 or 1 to all digits, but its formula would multiply 0 by infinity far out.
    const F x = detail::choose(
        []<class X>(const X& value) {
          const X low = X{} - 10;
          const X high = X{} + 10;
          const X raised = value < low ? low : value;
          return raised > high ? high : raised;
        },
        any_x);
    const F one = detail::constant<F>(1);
    const F square = x * x;
    const F s = one / (one + fast_exp{}(detail::constant<F>(0) - detail::gelu_exponent(x, square)));
    const F slope = detail::constant<F>(1.5957691216057308) + detail::constant<F>(3 * 0.07135481627260025) * square;
    return grad * (s + (x * slope) * (s * (one - s)));
  }
};

/// max(x, 0); NaN stays NaN.
struct relu {
  template <class F>
  HETERO_HOST_DEVICE F operator()(const F& x) const noexcept {
    return detail::choose([]<class X>(const X& value) { return value < X{} ? X{} : value; }, x);
  }
};

/// grad where the output was positive, else 0.
struct relu_gradient {
  template <class F>
  HETERO_HOST_DEVICE F operator()(const F& out, const F& grad) const noexcept {
    return detail::choose([]<class X>(const X& o, const X& g) { return o > X{} ? g : X{}; }, out, grad);
  }
};

}  // namespace hetero::functor
