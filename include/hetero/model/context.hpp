// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <hetero/device/any_device.hpp>
#include <hetero/model/parameter.hpp>
#include <hetero/model/scratch.hpp>

namespace hetero {

/// Why a layer runs. In `recompute` a layer repeats a forward pass for its activations alone and leaves state untouched.
enum class phase : std::uint8_t { train, eval, recompute };

/// What every layer may know of the call it is in.
struct execution {
  any_device& device;
  stream_id stream;
  scratch_pool& scratch;
  phase pass = phase::train;
  bool needs_input_gradient = true;  ///< false for the first layer of a model unless the user wants the input's gradient
  bool split_backward = false;       ///< `backward_weight` comes later as an action of its own
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  tensor_view sample_ids{};          ///< i64 [samples], host memory: global ids of the samples of this call

  /// Runs one op on the layer's stream. @throws error as the device does
  void launch(const device_op& op) { device.launch(op, stream); }
};

/// A model without groups: every layer computes alone.
struct no_groups {};

/// An `execution` with the communicator groups of the trainer. A layer that talks takes `auto& context` and asks
/// `context.group(parallel_group::tensor)`; the others take `execution&` and are compiled once.
template <class Groups = no_groups>
struct layer_context : execution {
  Groups* groups = nullptr;

  /// The communicator of a group. @throws error unsupported when the trainer was given no such group
  [[nodiscard]] auto& group(parallel_group name)
    requires(!std::same_as<Groups, no_groups>)
  {
    return groups->get(name);
  }
};

}  // namespace hetero
