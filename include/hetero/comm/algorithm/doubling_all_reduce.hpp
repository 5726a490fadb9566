// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>

#include <hetero/comm/algorithm/reduce.hpp>
#include <hetero/comm/operation.hpp>

namespace hetero::detail {

/// Small vectors live on the stack while they are sent.
template <class T> class send_copy {
 public:
  explicit send_copy(std::size_t count) {
    if (count * sizeof(T) > sizeof near_) far_ = std::make_unique_for_overwrite<std::byte[]>(count * sizeof(T));
  }
  [[nodiscard]] const std::byte* of(std::span<const T> values) noexcept {
    std::byte* const to = far_ ? far_.get() : near_;
    if (!values.empty()) std::memcpy(to, values.data(), values.size_bytes());
    return to;
  }

 private:
  alignas(64) std::byte near_[4096];
  std::unique_ptr<std::byte[]> far_;
};

/// This rank's vector and that of `peer` become their reduction on both, with equal bits: the lower rank's elements are
/// the first operands. One round, one message each way.
template <exchange Exchange, class T>
void cross_reduce(Exchange& ex, std::span<T> values, reduce_op op, std::uint32_t peer, send_copy<T>& copy) {
  ex.count_round();
  const std::byte* const out = copy.of(values);
  transfer receive;
  transfer send;
  ex.start_recv(receive, std::as_writable_bytes(values).data(), values.size_bytes(), peer,
                combiner_of<T>(op, peer < ex.rank()));
  ex.start_send(send, out, values.size_bytes(), peer);
  ex.finish(receive);
  ex.finish(send);
  if constexpr (!std::is_integral_v<T>) {
    // Which of two NaNs a sum keeps is up to the compiler.
    using wide = accumulator_of<T>;
    for (T& v : values) {
      const auto x = static_cast<wide>(v);
      v = x == x ? v : static_cast<T>(std::numeric_limits<wide>::quiet_NaN());
    }
  }
}

/// In-place all_reduce of whole vectors in floor(log2 n) rounds, and two more where n is no power of two: the fastest
/// for small ones. Every rank sends the vector once per round; ranks beyond the power of two send it once. All ranks
/// end with equal bits. For types of at least four bytes, or two ranks.
/// @throws error invalid_argument when an integer sum overflows; see operation::finish
template <exchange Exchange, class T> void doubling_all_reduce(Exchange& ex, std::span<T> values, reduce_op op) {
  const std::uint32_t n = ex.world_size();
  if (n == 1) return;
  const std::uint32_t rank = ex.rank();
  const std::uint32_t inner = std::bit_floor(n);
  const auto bytes = std::as_writable_bytes(values);
  send_copy<T> copy{values.size()};
  if (rank >= inner) {  // its partner speaks for it
    transfer send;
    transfer receive;
    ex.count_round();
    ex.start_send(send, bytes.data(), bytes.size(), rank - inner);
    ex.finish(send);
    ex.count_round();
    ex.start_recv(receive, bytes.data(), bytes.size(), rank - inner);
    ex.finish(receive);
    return;
  }
  const bool speaks = rank + inner < n;
  if (speaks) {
    transfer receive;
    ex.count_round();
    ex.start_recv(receive, bytes.data(), bytes.size(), rank + inner, combiner_of<T>(op));
    ex.finish(receive);
  }
  for (std::uint32_t distance = 1; distance < inner; distance *= 2) {
    cross_reduce(ex, values, op, rank ^ distance, copy);
  }
  if (speaks) {
    transfer send;
    ex.count_round();
    ex.start_send(send, bytes.data(), bytes.size(), rank + inner);
    ex.finish(send);
  }
}

}  // namespace hetero::detail
