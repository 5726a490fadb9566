// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <hetero/device/any_device.hpp>

namespace hetero {

/// Owns one stream of a device, which it keeps alive. Move-only.
class stream {
 public:
  /// @throws error device_lost when the device refuses
  explicit stream(any_device device) : device_{std::move(device)}, id_{device_.create_stream()}, owned_{true} {}
  stream(stream&& other) noexcept
      : device_{other.device_}, id_{other.id_}, owned_{std::exchange(other.owned_, false)} {}
  stream& operator=(stream&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(id_, other.id_);
    std::swap(owned_, other.owned_);
    return *this;
  }
  ~stream() {
    if (owned_) device_.destroy_stream(id_);
  }

  [[nodiscard]] stream_id id() const noexcept { return id_; }
  [[nodiscard]] any_device& device() noexcept { return device_; }

  /// Runs one op; stream-ordered. @throws error invalid_shape, unsupported
  void launch(const device_op& op) { device_.launch(op, id_); }
  /// Copies equal counts and types; stream-ordered. @throws error invalid_shape
  void copy(tensor_view to, tensor_view from) { device_.copy(to, from, id_); }
  /// Blocks until the stream is empty. @throws error device_lost
  void synchronize() { device_.synchronize(id_); }

 private:
  any_device device_;
  stream_id id_;
  bool owned_;
};

}  // namespace hetero
