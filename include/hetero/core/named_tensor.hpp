// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <hetero/core/tensor_view.hpp>

namespace hetero {

/// A view under its stable name, as checkpoints and synchronizers list their state.
struct named_tensor {
  std::string name;
  tensor_view view;
};

}  // namespace hetero
