// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <hetero/device/any_device.hpp>

namespace hetero {

/// Owns one allocation on a device and gives it back on the same stream. Move-only; the contents start undefined.
class buffer {
 public:
  buffer() = default;

  /// Allocates `extents.count()` elements. Stream-ordered.
  /// @throws error out_of_memory
  buffer(any_device device, stream_id stream, dtype type, const shape& extents)
      : device_{std::make_unique<any_device>(std::move(device))}, stream_{stream} {
    const std::size_t bytes = extents.count() * size_of(type);
    view_ = tensor_view{bytes == 0 ? nullptr : device_->allocate(bytes, stream_), type, extents, device_->id()};
  }

  buffer(buffer&& other) noexcept
      : device_{std::move(other.device_)}, stream_{other.stream_}, view_{std::exchange(other.view_, {})} {}
  buffer& operator=(buffer&& other) noexcept {
    if (this != &other) {
      release();
      device_ = std::move(other.device_);
      stream_ = other.stream_;
      view_ = std::exchange(other.view_, {});
    }
    return *this;
  }
  ~buffer() { release(); }

  /// The whole buffer; valid while the buffer lives and is not moved from.
  [[nodiscard]] const tensor_view& view() const noexcept { return view_; }

 private:
  void release() noexcept {
    if (view_) device_->deallocate(view_.data(), view_.size_bytes(), stream_);
    view_ = {};
  }

  std::unique_ptr<any_device> device_;
  stream_id stream_{};
  tensor_view view_;
};

}  // namespace hetero
