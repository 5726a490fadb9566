// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <string>

#include <hetero/core/error.hpp>
#include <hetero/optim/concepts.hpp>

namespace hetero::detail {

/// Checks what every optimizer relies on: `count` state views, all views of equal counts, a usable rate and scale.
/// @throws error invalid_shape, invalid_argument
inline void require_state(const update_request& request, std::size_t count, const char* name) {
  require(request.state.size() == count, errc::invalid_shape, [&] {
    return std::string{name} + " needs " + std::to_string(count) + " state tensors, " +
           std::to_string(request.state.size()) + " were given; they come in the order of state_names()";
  });
  const std::size_t elements = request.param.count();
  require(request.grad.count() == elements, errc::invalid_shape, [&] {
    return "a range of " + std::to_string(elements) + " parameters came with " + std::to_string(request.grad.count()) +
           " gradients";
  });
  for (const auto& view : request.state) {
    require(view.count() == elements, errc::invalid_shape, [&] {
      return "a range of " + std::to_string(elements) + " parameters came with " + std::to_string(view.count()) +
             " elements of state";
    });
  }
  require(std::isfinite(request.learning_rate) && request.learning_rate >= 0 && std::isfinite(request.grad_scale) &&
              request.step >= 1,
          errc::invalid_argument, [&] {
            return "an update with learning rate " + std::to_string(request.learning_rate) + ", gradient scale " +
                   std::to_string(request.grad_scale) + " at step " + std::to_string(request.step) +
                   "; finite numbers, a rate from 0 up and steps from 1 are needed";
          });
}

}  // namespace hetero::detail
