// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include <hetero/core/dtype.hpp>
#include <hetero/core/error.hpp>
#include <hetero/core/ids.hpp>
#include <hetero/core/shape.hpp>

namespace hetero {

/// A non-owning window on device memory: address, element type, device, shape and strides (in elements).
///
/// Copying one is cheap; constness is that of the view, not of the elements, as with a pointer. A default-constructed view is empty and `operator bool` says so.
class tensor_view {
 public:
  tensor_view() = default;

  /// A row-major view of `extents` elements at `data`.
  tensor_view(void* data, dtype type, const shape& extents, device_id device = {}) noexcept
      : data_{static_cast<std::byte*>(data)}, shape_{extents}, type_{type}, device_{device} {
    std::size_t stride = 1;
    for (std::size_t i = extents.dims(); i-- > 0;) {
      strides_[i] = stride;
      stride *= extents[i];
    }
  }

  /// A one-dimensional view of host memory.
  template <class T, std::size_t Extent>
  explicit tensor_view(std::span<T, Extent> values) noexcept
      : tensor_view{const_cast<void*>(static_cast<const void*>(values.data())), dtype_of<std::remove_const_t<T>>,
                    shape{values.size()}} {}

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] dtype type() const noexcept { return type_; }
  [[nodiscard]] device_id device() const noexcept { return device_; }
  [[nodiscard]] const shape& extents() const noexcept { return shape_; }
  [[nodiscard]] std::size_t extent(std::size_t dim) const noexcept { return shape_[dim]; }
  [[nodiscard]] std::size_t stride(std::size_t dim) const noexcept { return strides_[dim]; }
  [[nodiscard]] std::size_t dims() const noexcept { return shape_.dims(); }
  [[nodiscard]] std::size_t count() const noexcept { return shape_.count(); }
  /// Bytes of the elements; of the memory spanned only when the view is contiguous.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return count() * size_of(type_); }
  [[nodiscard]] explicit operator bool() const noexcept { return data_ != nullptr; }

  /// True when the elements lie without gaps in row-major order.
  [[nodiscard]] bool contiguous() const noexcept {
    std::size_t expected = 1;
    for (std::size_t i = dims(); i-- > 0;) {
      if (shape_[i] != 1 && strides_[i] != expected) return false;
      expected *= shape_[i];
    }
    return true;
  }

  /// The address as `T*`.
  /// @throws error invalid_shape when `T` is not the element type
  template <class T>
  [[nodiscard]] T* as() const {
    require(type_ == dtype_of<T>, errc::invalid_shape, [&] {
      return std::string{"a tensor of "} + to_string(type_) + " was read as " + to_string(dtype_of<T>);
    });
    return reinterpret_cast<T*>(data_);
  }

  /// The elements of a contiguous view as a span.
  /// @throws error invalid_shape when `T` is not the element type or the view has gaps
  template <class T>
  [[nodiscard]] std::span<T> elements() const {
    require(contiguous(), errc::invalid_shape, "a strided view has no span of its elements; copy it first");
    return {as<T>(), count()};
  }

  /// Rows [begin, end) of dimension `dim`.
  /// @throws error invalid_shape when the range is not inside the dimension
  [[nodiscard]] tensor_view slice(std::size_t dim, std::size_t begin, std::size_t end) const {
    require(dim < dims() && begin <= end && end <= shape_[dim], errc::invalid_shape, [&] {
      return "slice [" + std::to_string(begin) + ", " + std::to_string(end) + ") of dimension " + std::to_string(dim) +
             " is outside " + to_string(shape_);
    });
    tensor_view part = *this;
    part.data_ += begin * strides_[dim] * size_of(type_);
    part.shape_[dim] = end - begin;
    return part;
  }

  /// Elements [begin, end) of a contiguous view, flattened.
  /// @throws error invalid_shape when the view has gaps or the range is outside
  [[nodiscard]] tensor_view flat(std::size_t begin, std::size_t end) const {
    return reshape({count()}).slice(0, begin, end);
  }

  /// The same elements under another shape.
  /// @throws error invalid_shape when the counts differ or the view has gaps
  [[nodiscard]] tensor_view reshape(const shape& extents) const {
    require(extents.count() == count() && contiguous(), errc::invalid_shape, [&] {
      return "cannot view " + to_string(shape_) + (contiguous() ? "" : " (strided)") + " as " + to_string(extents);
    });
    return {data_, type_, extents, device_};
  }

 private:
  std::byte* data_ = nullptr;
  shape shape_{0};
  std::array<std::size_t, shape::max_dims> strides_{1};
  dtype type_ = dtype::f32;
  device_id device_{};
};

}  // namespace hetero
