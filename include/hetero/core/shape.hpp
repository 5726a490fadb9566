// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

#include <hetero/core/error.hpp>

namespace hetero {

/// Extents of a tensor, outermost first, at most `max_dims` of them. A shape without dimensions is a scalar (count 1).
class shape {
 public:
  static constexpr std::size_t max_dims = 6;

  constexpr shape() = default;

  /// @throws error invalid_shape beyond `max_dims` dimensions
  constexpr shape(std::initializer_list<std::size_t> extents) : shape(std::span{extents.begin(), extents.size()}) {}

  /// @throws error invalid_shape beyond `max_dims` dimensions
  constexpr explicit shape(std::span<const std::size_t> extents) {
    require(extents.size() <= max_dims, errc::invalid_shape, "a shape has at most 6 dimensions");
    for (const std::size_t extent : extents) extents_[dims_++] = extent;
  }

  [[nodiscard]] constexpr std::size_t dims() const noexcept { return dims_; }
  [[nodiscard]] constexpr std::size_t operator[](std::size_t dim) const noexcept { return extents_[dim]; }
  [[nodiscard]] constexpr std::size_t& operator[](std::size_t dim) noexcept { return extents_[dim]; }
  [[nodiscard]] constexpr const std::size_t* begin() const noexcept { return extents_.data(); }
  [[nodiscard]] constexpr const std::size_t* end() const noexcept { return extents_.data() + dims_; }
  /// The last extent; 1 for a scalar.
  [[nodiscard]] constexpr std::size_t last() const noexcept { return dims_ == 0 ? 1 : extents_[dims_ - 1]; }

  /// Number of elements.
  [[nodiscard]] constexpr std::size_t count() const noexcept {
    std::size_t product = 1;
    for (const std::size_t extent : *this) product *= extent;
    return product;
  }

  friend constexpr bool operator==(const shape& a, const shape& b) noexcept {
    if (a.dims_ != b.dims_) return false;
    for (std::size_t i = 0; i < a.dims_; ++i) {
      if (a.extents_[i] != b.extents_[i]) return false;
    }
    return true;
  }

 private:
  std::array<std::size_t, max_dims> extents_{};
  std::size_t dims_ = 0;
};

/// "[4, 64, 128]".
[[nodiscard]] inline std::string to_string(const shape& s) {
  std::string text = "[";
  for (std::size_t i = 0; i < s.dims(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(s[i]);
  return text + ']';
}

}  // namespace hetero
