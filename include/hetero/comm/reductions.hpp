// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hetero/comm/algorithm/direct_gather.hpp>
#include <hetero/comm/algorithm/pairwise_reduce_scatter.hpp>
#include <hetero/comm/algorithm/tree_reduce.hpp>
#include <hetero/comm/channel_state.hpp>
#include <hetero/comm/collectives.hpp>
#include <hetero/comm/counts.hpp>
#include <hetero/comm/parts.hpp>
#include <hetero/core/tensor_view.hpp>

/// @file
/// `reduce` and `reduce_scatter` over a channel: checks, fingerprint, algorithm.
namespace hetero::detail {

/// Narrow types are reduced in parts by their owners, which round once and send them to the root.
template <exchange Exchange, class T>
void narrow_reduce(Exchange& ex, std::span<T> values, reduce_op op, std::uint32_t root) {
  const std::uint32_t n = ex.world_size();
  std::vector<std::size_t> offsets(n + 1);
  for (std::uint32_t r = 0; r < n; ++r) offsets[r + 1] = segment_of(values.size(), n, r).end;
  const std::span<T> own = values.subspan(offsets[ex.rank()], segment_of(values.size(), n, ex.rank()).count());
  pairwise_reduce_scatter(ex, std::span<const T>{values}, own, std::span<const std::size_t>{offsets}, op);
  for (std::size_t& offset : offsets) offset *= sizeof(T);
  direct_gather(ex, std::as_bytes(own), std::as_writable_bytes(values).data(), offsets, root);
}

inline void reduce(channel_state& c, const tensor_view& view, reduce_op op, std::uint32_t root, traffic_class traffic) {
  check_view(view);
  check_root(c, root);
  run_collective(c, [&] {
    const std::uint32_t detail = static_cast<std::uint32_t>(op) | root << 8U;
    operation run = c.begin(operation_kind::reduce, view.type(), view.count(), detail, traffic, c.collectives++);
    visit_dtype(view.type(), [&]<class T>(T) {
      const std::span<T> values{reinterpret_cast<T*>(view.data()), view.count()};
      if constexpr (is_narrow(dtype_of<T>)) {
        narrow_reduce(run, values, op, root);
      } else {
        tree_reduce(run, values, op, root);
      }
    });
  });
}

/// `detail` is the reduce_op and, above it, what is compared of the counts.
inline void reduce_scatter(channel_state& c, const tensor_view& in, const tensor_view& out, reduce_op op,
                           std::span<const std::size_t> offsets, std::uint32_t detail, traffic_class traffic) {
  const std::size_t size = size_of(in.type());
  check_own_part(in, out, offsets[c.rank] * size);
  if (c.size() == 1) copy_part(out, memory_of(in).data());
  run_collective(c, [&] {
    operation run = c.begin(operation_kind::reduce_scatter, in.type(), in.count(), detail, traffic, c.collectives++);
    visit_dtype(in.type(), [&]<class T>(T) {
      pairwise_reduce_scatter(run, std::span<const T>{reinterpret_cast<const T*>(in.data()), in.count()},
                              std::span<T>{reinterpret_cast<T*>(out.data()), out.count()}, offsets, op);
    });
  });
}

inline void reduce_scatter(channel_state& c, const tensor_view& in, const tensor_view& out, reduce_op op,
                           traffic_class traffic) {
  check_view(in);
  check_view(out);
  check_equal_parts(c, "reduce_scatter", out, in);
  reduce_scatter(c, in, out, op, equal_offsets(c.size(), out.count()), static_cast<std::uint32_t>(op), traffic);
}

inline void reduce_scatter_v(channel_state& c, const tensor_view& in, const tensor_view& out,
                             std::span<const std::size_t> counts, reduce_op op, traffic_class traffic) {
  check_view(in);
  check_view(out);
  const std::vector<std::size_t> offsets = check_counts(c, "reduce_scatter_v", counts, out, in);
  naming_counts(c, counts, [&] {
    reduce_scatter(c, in, out, op, offsets, counts_detail(counts, static_cast<std::uint32_t>(op), 8), traffic);
  });
}

}  // namespace hetero::detail
