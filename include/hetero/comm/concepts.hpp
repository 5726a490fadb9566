// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <hetero/comm/neighbour.hpp>
#include <hetero/comm/reduce_op.hpp>
#include <hetero/comm/task_options.hpp>
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
///
/// Collectives take a traffic class as their last argument, which may be left out. Those that end in `_v` take a count
/// of elements for every rank, equal on all ranks; a count may be zero. Arguments that are wrong by themselves fail
/// with invalid_argument or invalid_shape on the rank that passes them, before anything is sent.
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
concept communicator = std::movable<C> &&
    requires(C& c, const C& cc, const tensor_view& view, rank_id peer, std::string_view text) {
  { cc.rank() }
  noexcept->std::same_as<rank_id>;
  { cc.world_size() }
  noexcept->std::same_as<std::uint32_t>;
  { c.send(view, peer) } -> std::same_as<void>;
  { c.recv(view, peer) } -> std::same_as<void>;
  { c.send_recv(view, peer, view, peer) } -> std::same_as<void>;
  { cc.abort(text) }
  noexcept->std::same_as<void>;
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

/// `c.set_queue_order(order, chunk_bytes)` and `c.all_reduce_async(view, op, task_options)`: asynchronous operations in
/// chunks, of which the most urgent goes next, on all ranks alike.
template <class C>
concept priority_all_reducer = async_all_reducer<C> && requires(C& c, const tensor_view& view) {
  { c.set_queue_order(queue_order::priority) } -> std::same_as<void>;
  { c.all_reduce_async(view, reduce_op::sum, task_options{}).wait() } -> std::same_as<void>;
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

/// `c.all_gather_v(in, out, counts)`: as all_gather, with in.count == counts[rank].
template <class C>
concept all_gatherer_v = communicator<C> &&
    requires(C& c, const tensor_view& view, std::span<const std::size_t> counts) {
  { c.all_gather_v(view, view, counts) } -> std::same_as<void>;
};

/// `c.reduce(view, op, root)`: in place; the root's view ends with the reduction, the others' with partial sums.
template <class C>
concept reducer = communicator<C> && requires(C& c, const tensor_view& view, rank_id root) {
  { c.reduce(view, reduce_op::sum, root) } -> std::same_as<void>;
};

/// `c.reduce_scatter(in, out, op)`: `out` is part `rank` of the reduction of `in`; in.count == world_size * out.count.
template <class C>
concept reduce_scatterer = communicator<C> && requires(C& c, const tensor_view& view) {
  { c.reduce_scatter(view, view, reduce_op::sum) } -> std::same_as<void>;
};

/// `c.reduce_scatter_v(in, out, counts, op)`: as reduce_scatter, with out.count == counts[rank].
template <class C>
concept reduce_scatterer_v = communicator<C> &&
    requires(C& c, const tensor_view& view, std::span<const std::size_t> counts) {
  { c.reduce_scatter_v(view, view, counts, reduce_op::sum) } -> std::same_as<void>;
};

/// `c.gather(in, out, root)`: the root's `out` holds the `in` of every rank in rank order; the others' may be empty.
template <class C>
concept gatherer = communicator<C> && requires(C& c, const tensor_view& view, rank_id root) {
  { c.gather(view, view, root) } -> std::same_as<void>;
};

/// `c.gather_v(in, out, counts, root)`: as gather, with in.count == counts[rank].
template <class C>
concept gatherer_v = communicator<C> &&
    requires(C& c, const tensor_view& view, std::span<const std::size_t> counts, rank_id root) {
  { c.gather_v(view, view, counts, root) } -> std::same_as<void>;
};

/// `c.scatter(in, out, root)`: `out` is part `rank` of the root's `in`; the others' `in` may be empty.
template <class C>
concept scatterer = communicator<C> && requires(C& c, const tensor_view& view, rank_id root) {
  { c.scatter(view, view, root) } -> std::same_as<void>;
};

/// `c.scatter_v(in, out, counts, root)`: as scatter, with out.count == counts[rank].
template <class C>
concept scatterer_v = communicator<C> &&
    requires(C& c, const tensor_view& view, std::span<const std::size_t> counts, rank_id root) {
  { c.scatter_v(view, view, counts, root) } -> std::same_as<void>;
};

/// `c.all_to_all(in, out)`: part r of `in` goes to rank r, part r of `out` came from rank r; all parts are equally
/// long.
template <class C>
concept all_to_all_capable = communicator<C> && requires(C& c, const tensor_view& view) {
  { c.all_to_all(view, view) } -> std::same_as<void>;
};

/// `c.all_to_all_v(in, send_counts, out, recv_counts)`: as all_to_all with this rank's own counts; what rank a sends to
/// rank b is what rank b receives from rank a.
template <class C>
concept all_to_all_v_capable = communicator<C> &&
    requires(C& c, const tensor_view& view, std::span<const std::size_t> counts) {
  { c.all_to_all_v(view, counts, view, counts) } -> std::same_as<void>;
};

/// `c.neighbour_exchange(neighbours)`: exchanges with the listed ranks alone; see `neighbour`.
template <class C>
concept neighbour_exchanger = communicator<C> && requires(C& c, std::span<const neighbour> neighbours) {
  { c.neighbour_exchange(neighbours) } -> std::same_as<void>;
};

/// `c.barrier()`: returns once every rank has called it.
template <class C>
concept barrier_capable = communicator<C> && requires(C& c) {
  { c.barrier() } -> std::same_as<void>;
};

}  // namespace hetero
