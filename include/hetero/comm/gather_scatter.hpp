// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <hetero/comm/algorithm/direct_gather.hpp>
#include <hetero/comm/algorithm/direct_scatter.hpp>
#include <hetero/comm/channel_state.hpp>
#include <hetero/comm/collectives.hpp>
#include <hetero/comm/parts.hpp>
#include <hetero/core/tensor_view.hpp>

/// @file
/// `all_gather_v`, `gather` and `scatter` over a channel: checks, fingerprint, algorithm.
namespace hetero::detail {

inline void all_gather_v(channel_state& c, const tensor_view& in, const tensor_view& out,
                         std::span<const std::size_t> counts, traffic_class traffic) {
  check_view(in);
  check_view(out);
  (void)check_counts(c, "all_gather_v", counts, in, out);
  const std::vector<std::size_t> offsets = offsets_of(counts, size_of(in.type()));
  check_own_part(out, in, offsets[c.rank]);
  std::byte* const own = memory_of(out).data() + offsets[c.rank];
  if (in.count() != 0 && own != in.data()) std::memcpy(own, in.data(), in.size_bytes());
  naming_counts(c, counts, [&] {
    run_collective(c, [&] {
      operation run = c.begin(operation_kind::all_gather, in.type(), out.count(), counts_detail(counts, 0, 0), traffic,
                              c.collectives++);
      gather_everywhere(run, memory_of(out).data(), offsets);
    });
  });
}

/// `all` is the root's.
inline void gather(channel_state& c, const tensor_view& in, const tensor_view& all,
                   std::span<const std::size_t> offsets, std::uint32_t root, std::uint32_t detail,
                   traffic_class traffic) {
  const std::size_t size = size_of(in.type());
  if (c.rank == root) {
    check_own_part(all, in, offsets[root]);
    copy_part(tensor_view{memory_of(all).data() + offsets[root], in.type(), shape{in.count()}}, memory_of(in).data());
  }
  run_collective(c, [&] {
    operation run = c.begin(operation_kind::gather, in.type(), offsets.back() / size, detail, traffic, c.collectives++);
    direct_gather(run, memory_of(in), c.rank == root ? memory_of(all).data() : nullptr, offsets, root);
  });
}

inline void gather(channel_state& c, const tensor_view& in, const tensor_view& out, std::uint32_t root,
                   traffic_class traffic) {
  check_view(in);
  check_root(c, root);
  if (c.rank == root) check_view(out), check_equal_parts(c, "gather", in, out);
  gather(c, in, out, equal_offsets(c.size(), in.size_bytes()), root, root & 0xffffU, traffic);
}

inline void gather_v(channel_state& c, const tensor_view& in, const tensor_view& out,
                     std::span<const std::size_t> counts, std::uint32_t root, traffic_class traffic) {
  check_view(in);
  check_root(c, root);
  const std::vector<std::size_t> elements = check_part(c, "gather_v", counts, in);
  if (c.rank == root) check_view(out), check_whole("gather_v", elements, in, out);
  naming_counts(c, counts, [&] {
    gather(c, in, out, offsets_of(counts, size_of(in.type())), root, counts_detail(counts, root, 16), traffic);
  });
}

/// `all` is the root's.
inline void scatter(channel_state& c, const tensor_view& all, const tensor_view& out,
                    std::span<const std::size_t> offsets, std::uint32_t root, std::uint32_t detail,
                    traffic_class traffic) {
  const std::size_t size = size_of(out.type());
  if (c.rank == root) {
    check_own_part(all, out, offsets[root]);
    copy_part(out, memory_of(all).data() + offsets[root]);
  }
  run_collective(c, [&] {
    operation run =
        c.begin(operation_kind::scatter, out.type(), offsets.back() / size, detail, traffic, c.collectives++);
    direct_scatter(run, c.rank == root ? memory_of(all).data() : nullptr, memory_of(out), offsets, root);
  });
}

inline void scatter(channel_state& c, const tensor_view& in, const tensor_view& out, std::uint32_t root,
                    traffic_class traffic) {
  check_view(out);
  check_root(c, root);
  if (c.rank == root) check_view(in), check_equal_parts(c, "scatter", out, in);
  scatter(c, in, out, equal_offsets(c.size(), out.size_bytes()), root, root & 0xffffU, traffic);
}

inline void scatter_v(channel_state& c, const tensor_view& in, const tensor_view& out,
                      std::span<const std::size_t> counts, std::uint32_t root, traffic_class traffic) {
  check_view(out);
  check_root(c, root);
  const std::vector<std::size_t> elements = check_part(c, "scatter_v", counts, out);
  if (c.rank == root) check_view(in), check_whole("scatter_v", elements, out, in);
  naming_counts(c, counts, [&] {
    scatter(c, in, out, offsets_of(counts, size_of(out.type())), root, counts_detail(counts, root, 16), traffic);
  });
}

}  // namespace hetero::detail
