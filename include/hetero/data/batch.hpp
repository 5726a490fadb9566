// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/core/tensor_view.hpp>

/// @file
/// A batch: which samples (global ids), how much each counts, and their payload, all in host memory.
namespace hetero {

/// A tensor that owns its elements in host memory, 64-byte aligned, so that vector loads and device copies run at full
/// speed. Copying copies the elements. Fresh elements are not initialised.
class host_tensor {
 public:
  host_tensor() = default;

  /// Storage for `extents` elements of `type`.
  /// @throws error out_of_memory when the host refuses the allocation
  host_tensor(dtype type, const shape& extents) { resize(type, extents); }

  host_tensor(const host_tensor& other) { *this = other; }
  host_tensor& operator=(const host_tensor& other) {
    if (this == &other) return *this;
    if (other.memory_ == nullptr) {
      *this = host_tensor{};
      return *this;
    }
    resize(other.type_, other.shape_);
    std::memcpy(memory_.get(), other.memory_.get(), other.size_bytes());
    return *this;
  }
  host_tensor(host_tensor&& other) noexcept { *this = std::move(other); }
  host_tensor& operator=(host_tensor&& other) noexcept {
    if (this == &other) return *this;
    memory_ = std::move(other.memory_);
    capacity_bytes_ = std::exchange(other.capacity_bytes_, 0);
    shape_ = std::exchange(other.shape_, shape{0});
    type_ = other.type_;
    return *this;
  }
  ~host_tensor() = default;

  /// Changes type and shape; keeps the allocation when it is large enough, and never keeps the elements. Views of the
  /// old elements end here.
  /// @throws error out_of_memory when the host refuses the allocation
  void resize(dtype type, const shape& extents) {
    std::size_t bytes = size_of(type);
    for (const std::size_t extent : extents) {
      const bool fits = extent == 0 || bytes <= std::numeric_limits<std::size_t>::max() / 2 / extent;
      require(fits, errc::out_of_memory,
              [&] { return "a host tensor of " + to_string(extents) + " passes any memory"; });
      bytes *= extent;
    }
    if (bytes > capacity_bytes_ || memory_ == nullptr) {
      const std::size_t rounded =
          (bytes / alignment + 1) * alignment;  // never zero: an empty tensor has an address too
      void* fresh = ::operator new (rounded, std::align_val_t{alignment}, std::nothrow);
      require(fresh != nullptr, errc::out_of_memory, [&] {
        return "the host refused " + std::to_string(rounded) + " bytes for a tensor of " + to_string(extents) +
               "; a smaller batch would fit";
      });
      memory_.reset(static_cast<std::byte*>(fresh));
      capacity_bytes_ = rounded;
    }
    type_ = type;
    shape_ = extents;
  }

  /// All elements as a view, or an empty view for a default-constructed tensor. Constness is that of the handle, as
  /// everywhere with views.
  [[nodiscard]] tensor_view view() const noexcept {
    return memory_ == nullptr ? tensor_view{} : tensor_view{memory_.get(), type_, shape_};
  }
  [[nodiscard]] dtype type() const noexcept { return type_; }
  [[nodiscard]] const shape& extents() const noexcept { return shape_; }
  [[nodiscard]] std::size_t count() const noexcept { return shape_.count(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return count() * size_of(type_); }

  /// The elements as a span.
  /// @throws error invalid_shape when `T` is not the element type
  template <class T> [[nodiscard]] std::span<T> elements() const { return view().template elements<T>(); }

 private:
  static constexpr std::size_t alignment = 64;
  struct release {
    void operator()(std::byte* p) const noexcept { ::operator delete (p, std::align_val_t{alignment}); }
  };
  std::unique_ptr<std::byte, release> memory_;
  std::size_t capacity_bytes_ = 0;
  shape shape_{0};
  dtype type_ = dtype::f32;
};

/// Consecutive samples of a batch, without a copy; valid while the batch lives unchanged.
struct batch_view {
  std::span<const std::uint64_t> sample_ids;  ///< global ids
  std::span<const float> weights;             ///< one per sample
  tensor_view inputs;                         ///< [samples, ...]
  tensor_view targets;                        ///< [samples, ...]

  [[nodiscard]] std::size_t size() const noexcept { return sample_ids.size(); }
  [[nodiscard]] bool empty() const noexcept { return sample_ids.empty(); }

  /// Samples [begin, end); an empty range is legal and gives views with a first extent of 0.
  /// @throws error invalid_shape when the range is not inside the batch
  [[nodiscard]] batch_view slice(std::size_t begin, std::size_t end) const {
    require(begin <= end && end <= size(), errc::invalid_shape, [&] {
      return "samples [" + std::to_string(begin) + ", " + std::to_string(end) + ") of a batch of " +
             std::to_string(size());
    });
    return {sample_ids.subspan(begin, end - begin), weights.subspan(begin, end - begin),
            inputs ? inputs.slice(0, begin, end) : inputs, targets ? targets.slice(0, begin, end) : targets};
  }
};

/// Samples with their global ids, their weights and their payload. No samples at all is legal: an idle rank has such a
/// batch.
struct batch {
  std::vector<std::uint64_t> sample_ids;  ///< global ids: the keys of every random number a sample needs
  std::vector<float> weights;  ///< one per sample, usually 1; multiplies the sample's share of loss and weight
  host_tensor inputs;          ///< [samples, ...]
  host_tensor targets;         ///< [samples, ...]

  [[nodiscard]] std::size_t size() const noexcept { return sample_ids.size(); }
  [[nodiscard]] bool empty() const noexcept { return sample_ids.empty(); }
  [[nodiscard]] batch_view view() const noexcept { return {sample_ids, weights, inputs.view(), targets.view()}; }
  /// Samples [begin, end) without a copy.
  /// @throws error invalid_shape when the range is not inside the batch
  [[nodiscard]] batch_view slice(std::size_t begin, std::size_t end) const { return view().slice(begin, end); }

  /// Takes `ids` with weight 1 each and makes room for their payload: [ids, ...sample shape].
  /// @throws error out_of_memory, or invalid_shape when a sample shape leaves no dimension for the batch
  void prepare(std::span<const std::uint64_t> ids, dtype input_type, const shape& input_shape, dtype target_type,
               const shape& target_shape) {
    sample_ids.assign(ids.begin(), ids.end());
    weights.assign(ids.size(), 1.0F);
    inputs.resize(input_type, with_samples(ids.size(), input_shape));
    targets.resize(target_type, with_samples(ids.size(), target_shape));
  }

 private:
  [[nodiscard]] static shape with_samples(std::size_t samples, const shape& sample) {
    require(sample.dims() < shape::max_dims, errc::invalid_shape,
            [&] { return "a sample of " + to_string(sample) + " leaves no dimension for the batch"; });
    std::size_t extents[shape::max_dims] = {samples};
    for (std::size_t i = 0; i < sample.dims(); ++i) extents[i + 1] = sample[i];
    return shape{std::span<const std::size_t>{extents, sample.dims() + 1}};
  }
};

}  // namespace hetero
