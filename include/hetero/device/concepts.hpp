// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <hetero/core/ids.hpp>
#include <hetero/core/tensor_view.hpp>
#include <hetero/device/op/op.hpp>

namespace hetero {

/// What a device has done so far. Tests assert on these before they assert on clocks.
struct device_counters {
  std::uint64_t allocations = 0;
  std::uint64_t bytes_allocated = 0;       ///< all allocations ever
  std::uint64_t bytes_in_use = 0;
  std::uint64_t peak_bytes_in_use = 0;
  std::uint64_t copies = 0;
  std::uint64_t bytes_copied = 0;
  std::uint64_t launches = 0;
  double busy_s = 0;                       ///< seconds the device computed, as it emulates them

  friend bool operator==(const device_counters&, const device_counters&) = default;
};

/// A device backend: memory, ordered streams and a closed set of ops. docs/concepts/device_backend.md has the whole table.
///
/// Everything that takes a stream is stream-ordered: it may return before the work is done, and only `synchronize`
/// blocks. A backend may finish the work before it returns (the CPU does). Failures throw `hetero::error`; `deallocate`
/// and `destroy_stream` do not throw. One thread at a time may use one stream; different streams may be used from
/// different threads. The concept cannot check that memory is 64-byte aligned or that ops are exact; the conformance suite does.
template <class D>
concept device_backend =
    std::movable<D> && requires(D& d, const D& cd, void* p, std::size_t bytes, tensor_view v, const device_op& op,
                                stream_id s) {
      { cd.id() } noexcept -> std::same_as<device_id>;
      { cd.threads() } noexcept -> std::same_as<std::size_t>;
      { cd.counters() } -> std::same_as<device_counters>;
      { cd.budget_bytes() } noexcept -> std::same_as<std::size_t>;
      { d.create_stream() } -> std::same_as<stream_id>;
      { d.destroy_stream(s) } noexcept -> std::same_as<void>;
      { d.allocate(bytes, s) } -> std::same_as<void*>;
      { d.deallocate(p, bytes, s) } noexcept -> std::same_as<void>;
      { d.copy(v, v, s) } -> std::same_as<void>;
      { d.launch(op, s) } -> std::same_as<void>;
      { d.order(s, s) } -> std::same_as<void>;
      { d.synchronize(s) } -> std::same_as<void>;
    };

}  // namespace hetero
