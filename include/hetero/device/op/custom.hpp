// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <hetero/core/ids.hpp>
#include <hetero/core/tensor_view.hpp>

namespace hetero::op {

/// What a custom op's launcher is given: its arguments, and the vendor's stream behind the stream id (null on CPU).
struct custom_arguments {
  std::span<const tensor_view> tensors;
  std::span<const double> numbers;
  void* native_stream = nullptr;
  std::size_t threads = 1;  ///< threads the device may use
};

/// A user's op: a name, arguments, and one launcher per device kind. A kind without a launcher is errc::unsupported.
struct custom_op {
  std::string name;
  std::vector<tensor_view> tensors{};
  std::vector<double> numbers{};
  std::map<device_kind, std::function<void(const custom_arguments&)>> launchers{};
};

}  // namespace hetero::op
