// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <hetero/device/cpu/dispatch.hpp>
#include <hetero/device/cpu/simd.hpp>
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/op/elementwise.hpp>
#include <hetero/device/op/functor/activation.hpp>

namespace hetero::detail::cpu {

/// out[i] = f(in[i]...), in whole vectors; out may be any of the inputs.
template <class T, class F, class... In>
inline void map_lanes(thread_team& team, F f, std::size_t count, T* out, const In*... in) {
  team.parallel(count, elementwise_grain, [=](std::size_t begin, std::size_t end, std::size_t) {
    for_lanes<T>(begin, end,
                 [=](std::size_t i, auto lanes) { store_lanes(f(load_lanes(in + i, lanes)...), out + i, lanes); });
  });
}

inline void run(const op::gelu_forward& o, thread_team& team) {
  for_float_type("gelu_forward", o.out.type(), [&]<class T>() {
    expect_alike("gelu_forward", {{"out", o.out}, {"in", o.in}});
    map_lanes<T>(team, functor::gelu{}, o.out.count(), o.out.as<T>(), o.in.as<T>());
  });
}

inline void run(const op::gelu_backward& o, thread_team& team) {
  for_float_type("gelu_backward", o.grad_in.type(), [&]<class T>() {
    expect_alike("gelu_backward", {{"grad_in", o.grad_in}, {"grad_out", o.grad_out}, {"in", o.in}});
    map_lanes<T>(team, functor::gelu_gradient{}, o.grad_in.count(), o.grad_in.as<T>(), o.in.as<T>(),
                 o.grad_out.as<T>());
  });
}

inline void run(const op::relu_forward& o, thread_team& team) {
  for_float_type("relu_forward", o.out.type(), [&]<class T>() {
    expect_alike("relu_forward", {{"out", o.out}, {"in", o.in}});
    map_lanes<T>(team, functor::relu{}, o.out.count(), o.out.as<T>(), o.in.as<T>());
  });
}

inline void run(const op::relu_backward& o, thread_team& team) {
  for_float_type("relu_backward", o.grad_in.type(), [&]<class T>() {
    expect_alike("relu_backward", {{"grad_in", o.grad_in}, {"grad_out", o.grad_out}, {"out", o.out}});
    map_lanes<T>(team, functor::relu_gradient{}, o.grad_in.count(), o.grad_in.as<T>(), o.out.as<T>(),
                 o.grad_out.as<T>());
  });
}

}  // namespace hetero::detail::cpu
