// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hetero/core/named_tensor.hpp>
#include <hetero/device/buffer.hpp>
#include <hetero/model/initialise.hpp>
#include <hetero/plan/parameter_layout.hpp>

namespace hetero {

/// The memory of one replica on one device: flat parameters, flat gradients and optimizer state, and the views a layer sees.
class parameter_store {
 public:
  /// Allocates and initialises from `seed`; optimizer state starts at zero.
  /// @throws error out_of_memory
  parameter_store(any_device device, stream_id stream, parameter_layout layout, dtype type, std::uint64_t seed,
                  std::vector<std::string> state_names)
      : device_{std::move(device)},
        stream_{stream},
        layout_{std::move(layout)},
        params_{device_, stream_, type, {layout_.elements}},
        grads_{device_, stream_, type, {layout_.trainable_elements}},
        state_names_{std::move(state_names)} {
    device_.launch(op::fill{params_.view(), 0}, stream_);
    device_.launch(op::fill{grads_.view(), 0}, stream_);
    for (std::size_t i = 0; i < state_names_.size(); ++i) {
      state_.emplace_back(device_, stream_, type, shape{layout_.trainable_elements});
      device_.launch(op::fill{state_.back().view(), 0}, stream_);
    }
    device_.synchronize(stream_);  // the host writes next
    for (const auto& entry : layout_.entries) draw_into(param(entry), entry.spec, seed);
    for (std::size_t l = 0; l < layout_.of_layer.size(); ++l) {
      auto& views = layer_params_.emplace_back();
      for (const auto index : layout_.of_layer[l]) views.push_back(param(layout_.entries[index]));
    }
  }

  [[nodiscard]] const parameter_layout& layout() const noexcept { return layout_; }
  [[nodiscard]] dtype type() const noexcept { return params_.view().type(); }

  /// All trainable parameters, flat.
  [[nodiscard]] tensor_view params() const { return params_.view().slice(0, 0, layout_.trainable_elements); }
  /// All gradients, flat; gradients of the sum of losses.
  [[nodiscard]] tensor_view grads() const { return grads_.view(); }
  /// Optimizer state `i`, flat.
  [[nodiscard]] tensor_view state(std::size_t i) const { return state_[i].view(); }
  [[nodiscard]] const std::vector<std::string>& state_names() const noexcept { return state_names_; }

  /// One parameter in its own shape.
  [[nodiscard]] tensor_view param(const parameter_entry& entry) const {
    return params_.view().slice(0, entry.offset, entry.end()).reshape(entry.spec.extents);
  }
  /// One gradient in the shape of its parameter, inside `flat` (the store's own gradients or a leaf of the same layout).
  [[nodiscard]] static tensor_view grad(const tensor_view& flat, const parameter_entry& entry) {
    return flat.slice(0, entry.offset, entry.end()).reshape(entry.spec.extents);
  }

  /// The parameters of one layer as its `forward` expects them.
  [[nodiscard]] layer_parameters of_layer(std::size_t layer) const noexcept { return layer_params_[layer]; }

  /// The parameters by name.
  [[nodiscard]] std::vector<named_tensor> parameters() const {
    std::vector<named_tensor> tensors;
    for (const auto& entry : layout_.entries) tensors.push_back({entry.spec.name, param(entry)});
    return tensors;
  }

  /// Every tensor that a checkpoint must hold, by stable name: parameters under their own, optimizer state as
  /// "optimizer.<state>.<parameter>".
  [[nodiscard]] std::vector<named_tensor> named() const {
    std::vector<named_tensor> tensors = parameters();
    for (std::size_t i = 0; i < state_names_.size(); ++i) {
      for (const auto& entry : layout_.entries) {
        if (!entry.spec.trainable) continue;
        tensors.push_back({"optimizer." + state_names_[i] + '.' + entry.spec.name, grad(state_[i].view(), entry)});
      }
    }
    return tensors;
  }

 private:
  void draw_into(const tensor_view& to, const parameter_spec& spec, std::uint64_t seed) {
    if (device_.id().kind == device_kind::cpu) {
      initialise(spec, seed, to);
      return;
    }
    std::vector<std::byte> host(to.size_bytes());
    const tensor_view staged{host.data(), to.type(), to.extents()};
    initialise(spec, seed, staged);
    device_.copy(to, staged, stream_);
    device_.synchronize(stream_);
  }

  any_device device_;
  stream_id stream_;
  parameter_layout layout_;
  buffer params_;
  buffer grads_;
  std::vector<std::string> state_names_;
  std::vector<buffer> state_;
  std::vector<std::vector<tensor_view>> layer_params_;
};

}  // namespace hetero
