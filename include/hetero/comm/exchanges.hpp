// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <hetero/comm/algorithm/direct_neighbour_exchange.hpp>
#include <hetero/comm/algorithm/pairwise_all_to_all.hpp>
#include <hetero/comm/channel_state.hpp>
#include <hetero/comm/collectives.hpp>
#include <hetero/comm/neighbour.hpp>
#include <hetero/comm/parts.hpp>
#include <hetero/core/tensor_view.hpp>

/// @file
/// `all_to_all` and `neighbour_exchange` over a channel: checks, fingerprint, algorithm.
namespace hetero::detail {

inline void copy_own(const channel_state& c, const tensor_view& in, std::span<const std::size_t> in_offsets,
                     const tensor_view& out, std::span<const std::size_t> out_offsets) {
  const std::size_t bytes = in_offsets[c.rank + 1] - in_offsets[c.rank];
  if (bytes == 0) return;
  std::memcpy(memory_of(out).data() + out_offsets[c.rank], memory_of(in).data() + in_offsets[c.rank], bytes);
}

inline void all_to_all(channel_state& c, const tensor_view& in, const tensor_view& out, traffic_class traffic) {
  check_view(in);
  check_view(out);
  require(in.type() == out.type() && in.count() == out.count() && in.count() % c.size() == 0, errc::invalid_shape, [&] {
    return "all_to_all over " + std::to_string(c.size()) + " ranks needs two views of one type and count that " +
           std::to_string(c.size()) + " divides, not " + std::to_string(in.count()) + ' ' + to_string(in.type()) +
           " and " + std::to_string(out.count()) + ' ' + to_string(out.type()) + "; use all_to_all_v for uneven parts";
  });
  check_apart(in, out);
  const std::vector<std::size_t> offsets = equal_offsets(c.size(), in.size_bytes() / c.size());
  copy_own(c, in, offsets, out, offsets);
  run_collective(c, [&] {
    operation run = c.begin(operation_kind::all_to_all, in.type(), in.count(), 0, traffic, c.collectives++);
    pairwise_all_to_all(run, memory_of(in).data(), offsets, memory_of(out).data(), offsets, [](std::uint32_t, bool) {});
  });
}

inline void all_to_all_v(channel_state& c, const tensor_view& in, std::span<const std::size_t> send_counts,
                         const tensor_view& out, std::span<const std::size_t> recv_counts, traffic_class traffic) {
  check_view(in);
  check_view(out);
  check_ranks(c, "all_to_all_v", send_counts);
  check_ranks(c, "all_to_all_v", recv_counts);
  check_whole("all_to_all_v", offsets_of(send_counts), out, in);
  check_whole("all_to_all_v", offsets_of(recv_counts), in, out);
  require(send_counts[c.rank] == recv_counts[c.rank], errc::invalid_argument, [&] {
    return "all_to_all_v sends " + std::to_string(send_counts[c.rank]) + " elements from rank " +
           std::to_string(c.rank) + " to itself and receives " + std::to_string(recv_counts[c.rank]) +
           "; the two are one count";
  });
  check_apart(in, out);
  const std::vector<std::size_t> from = offsets_of(send_counts, size_of(in.type()));
  const std::vector<std::size_t> to = offsets_of(recv_counts, size_of(in.type()));
  copy_own(c, in, from, out, to);
  run_collective(c, [&] {
    operation run = c.begin(operation_kind::all_to_all, in.type(), 0, 1, traffic, c.collectives++);
    pairwise_all_to_all(run, memory_of(in).data(), from, memory_of(out).data(), to,
                        [&](std::uint32_t peer, bool sending) {
                          run.describe(in.type(), sending ? send_counts[peer] : recv_counts[peer]);
                        });
  });
}

inline void neighbour_exchange(channel_state& c, std::span<const neighbour> neighbours, traffic_class traffic) {
  std::set<std::uint32_t> peers;
  for (const neighbour& one : neighbours) {
    check_view(one.in);
    check_view(one.out);
    check_peer(c, index_of(one.peer), "neighbour");
    require(peers.insert(index_of(one.peer)).second, errc::invalid_argument, [&] {
      return "rank " + std::to_string(index_of(one.peer)) + " is twice among the neighbours; list a rank once";
    });
  }
  run_collective(c, [&] {
    operation run = c.begin(operation_kind::neighbour_exchange, dtype::u8, 0, 0, traffic, c.collectives++);
    direct_neighbour_exchange(run, neighbours, [&](const tensor_view& view) {
      run.describe(view.count() == 0 ? dtype::u8 : view.type(), view.count());
    });
  });
}

}  // namespace hetero::detail
