// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <string>

#include <hetero/device/cpu/dispatch.hpp>
#include <hetero/device/cpu/simd.hpp>
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/op/functor/update.hpp>

/// @file
/// Optimizer updates on the CPU: one pass over memory, which is what bounds them.
namespace hetero::detail::cpu {

/// @throws error invalid_shape, unsupported, invalid_argument for step 0 or a beta outside [0, 1)
inline void run(const op::adamw_update& o, thread_team& team) {
  constexpr const char* name = "adamw_update";
  expect_alike(name, {{"param", o.param}, {"grad", o.grad}, {"moment1", o.moment1}, {"moment2", o.moment2}});
  require(o.step > 0, errc::invalid_argument, "adamw_update: steps count from 1");
  require(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1, errc::invalid_argument, [&] {
    return "adamw_update: beta1 and beta2 must lie in [0, 1); got " + std::to_string(o.beta1) + " and " +
           std::to_string(o.beta2);
  });
  for_float_type(name, o.param.type(), [&]<class T>() {
    const functor::adamw<T> update{o};
    T* const param = o.param.as<T>();
    const T* const grad = o.grad.as<T>();
    T* const moment1 = o.moment1.as<T>();
    T* const moment2 = o.moment2.as<T>();
    team.parallel(o.param.count(), elementwise_grain / 4, [&](std::size_t begin, std::size_t end, std::size_t) {
      for_lanes<T>(begin, end, [&](std::size_t i, auto lanes) {
        simd<T> p = load_lanes(param + i, lanes);
        simd<T> m = load_lanes(moment1 + i, lanes);
        simd<T> v = load_lanes(moment2 + i, lanes);
        update(p, load_lanes(grad + i, lanes), m, v);
        store_lanes(p, param + i, lanes);
        store_lanes(m, moment1 + i, lanes);
        store_lanes(v, moment2 + i, lanes);
      });
    });
  });
}

/// @throws error invalid_shape, unsupported
inline void run(const op::sgd_update& o, thread_team& team) {
  constexpr const char* name = "sgd_update";
  expect_alike(name, {{"param", o.param}, {"grad", o.grad}});
  const bool has_momentum = o.momentum_factor != 0;
  if (has_momentum) expect_alike(name, {{"param", o.param}, {"momentum", o.momentum}});
  for_float_type(name, o.param.type(), [&]<class T>() {
    const functor::sgd<T> update{o};
    T* const param = o.param.as<T>();
    const T* const grad = o.grad.as<T>();
    T* const momentum = has_momentum ? o.momentum.as<T>() : nullptr;
    team.parallel(o.param.count(), elementwise_grain, [&](std::size_t begin, std::size_t end, std::size_t) {
      for_lanes<T>(begin, end, [&](std::size_t i, auto lanes) {
        simd<T> p = load_lanes(param + i, lanes);
        const simd<T> g = load_lanes(grad + i, lanes);
        if (momentum != nullptr) {
          simd<T> m = load_lanes(momentum + i, lanes);
          update(p, g, m);
          store_lanes(m, momentum + i, lanes);
        } else {
          update(p, g);
        }
        store_lanes(p, param + i, lanes);
      });
    });
  });
}

}  // namespace hetero::detail::cpu
