// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <hetero/device/buffer.hpp>
#include <hetero/model/concepts.hpp>

namespace hetero {

/// Everything one micro-batch leaves behind between its forward and its backward pass: per layer the output and the kept
/// tensors, and two buffers between which gradients of layer borders alternate. One allocation, reused from step to step.
class activation_set {
 public:
  struct layer_views {
    tensor_view output;
    std::vector<tensor_view> kept;
    tensor_view grad_output;  ///< only when the backward pass is split; the last layer's is its output, made in place
  };

  tensor_view input;        ///< on the device
  tensor_view targets;      ///< on the device
  tensor_view weights;      ///< f32 [samples], or empty when all are 1
  tensor_view sample_ids;   ///< i64 [samples], host memory
  tensor_view grad;         ///< gradient with respect to the output of the last layer not yet walked back through

  [[nodiscard]] std::size_t samples() const noexcept { return input_shape_[0]; }
  [[nodiscard]] const layer_views& layer(std::size_t i) const noexcept { return layers_[i]; }
  /// Gradient with respect to the output of layer `i` (split backward passes keep one for each layer).
  [[nodiscard]] tensor_view grad_output(std::size_t i) const noexcept {
    return i + 1 == layers_.size() ? layers_[i].output : layers_[i].grad_output;
  }
  /// The gradient buffer that is not in use, shaped like `like`.
  [[nodiscard]] tensor_view other_grad(const shape& like) {
    turn_ = 1 - turn_;
    return {grads_[turn_], type_, like, device_};
  }

  /// Lays out memory for an input of that shape, samples first; allocates only when it needs more than before.
  /// Stream-ordered.
  /// @throws error out_of_memory
  template <model M>
  void prepare(const M& m, const shape& input_shape, dtype type, bool split_backward, any_device& device,
               stream_id stream) {
    if (input_shape == input_shape_ && split_backward == split_) return;
    std::vector<std::vector<tensor_spec>> specs;  // per layer: output first, then what it keeps
    std::size_t largest_border = 0;
    shape current = input_shape;
    for (std::size_t i = 0; i < m.size(); ++i) {
      m.visit(i, [&](const auto& unit) {
        auto kept = unit.saved({.input = current, .type = type, .split_backward = split_backward});
        current = unit.output_shape(current);
        kept.insert(kept.begin(), tensor_spec{type, current});
        specs.push_back(std::move(kept));
      });
      if (i + 1 < m.size()) largest_border = std::max(largest_border, current.count());
    }
    const auto padded = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
    std::size_t bytes = 2 * padded(largest_border * size_of(type));
    for (const auto& layer_specs : specs) {
      for (const auto& spec : layer_specs) bytes += padded(spec.extents.count() * size_of(spec.type));
      if (split_backward) bytes += padded(layer_specs.front().extents.count() * size_of(type));
    }
    if (bytes > memory_.view().count() || !memory_.view()) {
      memory_ = {};  // give back before asking for more
      memory_ = buffer{device, stream, dtype::u8, {std::max<std::size_t>(bytes, 64)}};
    }
    std::byte* next = static_cast<std::byte*>(memory_.view().data());
    const auto take = [&](std::size_t size) {
      std::byte* const here = next;
      next += padded(size);
      return here;
    };
    layers_.clear();
    for (const auto& layer_specs : specs) {
      auto& views = layers_.emplace_back();
      for (std::size_t k = 0; k < layer_specs.size(); ++k) {
        const auto& spec = layer_specs[k];
        const tensor_view view{take(spec.extents.count() * size_of(spec.type)), spec.type, spec.extents, device.id()};
        if (k == 0) {
          views.output = view;
        } else {
          views.kept.push_back(view);
        }
      }
      if (split_backward) {
        const auto& output = views.output;
        views.grad_output = {take(output.size_bytes()), type, output.extents(), device.id()};
      }
    }
    for (auto& g : grads_) g = take(largest_border * size_of(type));
    input_shape_ = input_shape;
    split_ = split_backward;
    type_ = type;
    device_ = device.id();
  }

 private:
  buffer memory_;
  std::vector<layer_views> layers_;
  std::array<std::byte*, 2> grads_{};
  std::size_t turn_ = 0;
  shape input_shape_{};
  bool split_ = false;
  dtype type_ = dtype::f32;
  device_id device_{};
};

}  // namespace hetero
