// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <hetero/device/buffer.hpp>

namespace hetero {

/// Temporary memory of one device and stream, given out like a stack. Blocks are kept and reused, so a steady step
/// allocates nothing.
class scratch_pool {
 public:
  scratch_pool(any_device device, stream_id stream) : device_{std::move(device)}, stream_{stream} {}

  /// Memory that lives until the frame it was taken in ends; contents undefined. Stream-ordered.
  /// @throws error out_of_memory
  [[nodiscard]] tensor_view take(dtype type, const shape& extents) {
    const std::size_t bytes = (extents.count() * size_of(type) + 63) / 64 * 64;
    while (block_ < blocks_.size() && blocks_[block_].view().count() - used_ < bytes) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) {
      constexpr std::size_t smallest_block = std::size_t{1} << 16U;
      blocks_.emplace_back(device_, stream_, dtype::u8, shape{bytes > smallest_block ? bytes : smallest_block});
      used_ = 0;
    }
    void* const data = static_cast<std::byte*>(blocks_[block_].view().data()) + used_;
    used_ += bytes;
    return {data, type, extents, device_.id()};
  }

  /// Gives back at its end what was taken during its life.
  class frame {
   public:
    explicit frame(scratch_pool& pool) noexcept : pool_{pool}, block_{pool.block_}, used_{pool.used_} {}
    frame(const frame&) = delete;
    frame& operator=(const frame&) = delete;
    ~frame() {
      pool_.block_ = block_;
      pool_.used_ = used_;
    }

   private:
    scratch_pool& pool_;
    std::size_t block_;
    std::size_t used_;
  };

 private:
  any_device device_;
  stream_id stream_;
  std::vector<buffer> blocks_;
  std::size_t block_ = 0;  // block in use; blocks before it are full
  std::size_t used_ = 0;   // bytes used in it
};

}  // namespace hetero
