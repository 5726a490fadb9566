// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

#include <hetero/comm/reduce_op.hpp>
#include <hetero/comm/traffic.hpp>
#include <hetero/core/ids.hpp>
#include <hetero/core/tensor_view.hpp>

/// @file
/// How bytes move and get summed: a small core, and one capability concept per collective that a policy asks for.
///
/// Every call blocks until its views may be used again, at most until the communicator's timeout. A communicator is
/// used by one thread at a time; a second thread takes its own `channel`. What the concepts cannot check: messages
/// between two ranks on one channel arrive in the order in which they were sent; all ranks of a channel call its
/// collectives in the same order with equal arguments, and a rank that does not ends the call on every rank with
/// errc::mismatch.
namespace hetero {

/// Ranks that exchange messages.
///
/// | expression                       | meaning                                                    | fails with |
/// |----------------------------------|------------------------------------------------------------|------------|
/// | `c.rank()`, `c.world_size()`     | who this is, of how many                                   | never      |
/// | `c.send(view, to)`               | moves a contiguous host view; may wait for its `recv`      | (1)        |
/// | `c.recv(view, from)`             | the other side; type and count must agree                  | (1)        |
/// | `c.send_recv(out, to, in, from)` | both at once, so that a ring of them cannot deadlock       | (1)        |
/// | `c.abort(reason)`                | ends every pending and later call on every rank            | never      |
/// | `c.channel(purpose)`             | an independent sequence space, agreed without a message    | never      |
/// | `c.split(color, key)`            | collective: equal colors form a group, by (key, rank)      | (1)        |
/// | `c.counters()`                   | what this rank has moved so far                            | never      |
///
/// (1) peer_lost, timeout, aborted, mismatch; unsupported and invalid_shape for a view that cannot travel.
template <class C>
concept communicator =
    std::movable<C> && requires(C& c, const C& cc, const tensor_view& view, rank_id peer, std::string_view text) {
      { cc.rank() } noexcept -> std::same_as<rank_id>;
      { cc.world_size() } noexcept -> std::same_as<std::uint32_t>;
      { c.send(view, peer) } -> std::same_as<void>;
      { c.recv(view, peer) } -> std::same_as<void>;
      { c.send_recv(view, peer, view, peer) } -> std::same_as<void>;
      { cc.abort(text) } noexcept -> std::same_as<void>;
      { cc.channel(text) } -> std::same_as<C>;
      { c.split(0, 0) } -> std::same_as<C>;
      { cc.counters() } -> std::same_as<traffic_counters>;
    };

/// `c.all_reduce(view, op)`: in place, every rank ends with the same bits.
template <class C>
concept all_reducer = communicator<C> && requires(C& c, const tensor_view& view) {
  { c.all_reduce(view, reduce_op::sum) } -> std::same_as<void>;
};

/// `c.all_reduce_async(view, op)`: returns at once; `wait()` of the result rethrows what went wrong. Operations of one
/// communicator run in the order in which they were started.
template <class C>
concept async_all_reducer = all_reducer<C> && requires(C& c, const tensor_view& view) {
  { c.all_reduce_async(view, reduce_op::sum).wait() } -> std::same_as<void>;
};

/// `c.broadcast(view, root)`: every rank ends with the root's elements.
template <class C>
concept broadcaster = communicator<C> && requires(C& c, const tensor_view& view, rank_id root) {
  { c.broadcast(view, root) } -> std::same_as<void>;
};

/// `c.all_gather(in, out)`: `out` holds the `in` of every rank in rank order; out.count == world_size * in.count.
template <class C>
concept all_gatherer = communicator<C> && requires(C& c, const tensor_view& view) {
  { c.all_gather(view, view) } -> std::same_as<void>;
};

/// `c.barrier()`: returns once every rank has called it.
template <class C>
concept barrier_capable = communicator<C> && requires(C& c) {
  { c.barrier() } -> std::same_as<void>;
};

}  // namespace hetero
