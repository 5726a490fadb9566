// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <hetero/comm/all_reduce.hpp>
#include <hetero/comm/async_lane.hpp>
#include <hetero/comm/channel_state.hpp>
#include <hetero/comm/collectives.hpp>
#include <hetero/comm/concepts.hpp>
#include <hetero/comm/exchanges.hpp>
#include <hetero/comm/gather_scatter.hpp>
#include <hetero/comm/group.hpp>
#include <hetero/comm/pending.hpp>
#include <hetero/comm/reductions.hpp>
#include <hetero/comm/task_options.hpp>
#include <hetero/comm/transport.hpp>
#include <hetero/core/weighted_sum.hpp>

namespace hetero {

/// A handle on a group of ranks and on one sequence of operations among them.
///
/// Cheap to make (`channel`, `split`) and move-only: one handle belongs to one thread of control at a time, and only
/// `abort`, `counters`, `rank` and `world_size` may be called from others. Handles share the connection; the rank
/// leaves when its last one is destroyed. Operations work on contiguous host memory. Every blocking call ends at the
/// latest after the timeout. A failure ends the whole world: each pending and later call of every rank throws the same
/// code.
///
/// Unless said otherwise, every operation below is collective (all ranks of the handle call it, in the same order),
/// blocks, and throws
/// - `errc::mismatch` when ranks disagree on operation, type, count or order; the text names both sides
/// - `errc::peer_lost` when a rank died or left, `errc::timeout` when one did not answer, `errc::aborted` after `abort`
/// - `errc::unsupported` for memory of another device, `errc::invalid_shape` for a view with gaps
///
/// Arguments that are wrong by themselves fail before anything is sent: the call may be corrected and repeated.
class world {
 public:
  static constexpr std::chrono::milliseconds default_timeout{30'000};

  /// All ranks of a transport; alone when there is none. `join` and `run_ranks` are the usual makers.
  explicit world(std::shared_ptr<transport> carrier) : state_{detail::channel_state::root(std::move(carrier))} {}

  [[nodiscard]] rank_id rank() const noexcept { return rank_id{state_->rank}; }
  [[nodiscard]] std::uint32_t world_size() const noexcept { return state_->size(); }
  /// The path of purposes that led to this handle, as error texts print it.
  [[nodiscard]] const std::string& name() const noexcept { return state_->name; }

  /// Sends a view to `to`. Not collective. May wait for the matching `recv`; exchanges use `send_recv`.
  /// @throws error as above; invalid_argument for a rank that does not exist or is this one
  void send(const tensor_view& view, rank_id to, traffic_class traffic = traffic_class::other) {
    detail::send(*state_, view, index_of(to), traffic);
  }

  /// Receives into a view from `from`. Not collective.
  /// @throws error as for `send`
  void recv(const tensor_view& view, rank_id from, traffic_class traffic = traffic_class::other) {
    detail::recv(*state_, view, index_of(from), traffic);
  }

  /// Sends `out` to `to` and receives `in` from `from` at once. Not collective.
  /// @throws error as for `send`
  void send_recv(const tensor_view& out, rank_id to, const tensor_view& in, rank_id from,
                 traffic_class traffic = traffic_class::other) {
    detail::send_recv(*state_, out, index_of(to), in, index_of(from), traffic);
  }

  /// Replaces each element by its reduction over all ranks; all ranks end with equal bits. 16-bit floats and 8-bit
  /// integers are added in 32 bits and rounded once. The way follows from `rules`, the count and the type: without a
  /// tuning small vectors cross whole in about log2 n rounds, large ones move 2(n-1)/n of their bytes each way in a
  /// ring of 2(n-1) rounds, or as much as each port allows where a tuning knows the ports.
  /// @throws error as above; invalid_argument on every rank when an integer sum overflows
  void all_reduce(const tensor_view& view, reduce_op op, traffic_class traffic = traffic_class::other) {
    detail::all_reduce(*state_, view, op, traffic);
  }

  /// The reduction of one number per rank: integers in 64 bits, floating point in double.
  /// @throws error as above; invalid_argument when the result does not fit `T`
  template <class T>
  requires(std::integral<T> || std::floating_point<T>) && (!std::same_as<T, bool>) [[nodiscard]] T
      all_reduce(T value, reduce_op op, traffic_class traffic = traffic_class::control) {
    using wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
    require(
        !std::is_unsigned_v<T> || value <= static_cast<T>(std::numeric_limits<std::int64_t>::max()) || sizeof(T) < 8,
        errc::invalid_argument, "a number beyond 63 bits cannot be reduced");
    auto cell = static_cast<wide>(value);
    all_reduce(tensor_view{std::span{&cell, 1}}, op, traffic);
    if constexpr (std::is_integral_v<T>) {
      require(std::in_range<T>(cell), errc::invalid_argument,
              "the reduced number does not fit its type; pass an std::int64_t");
    }
    return static_cast<T>(cell);
  }

  /// Adds sums and weights over all ranks; only the result has a mean (law 1).
  /// @throws error as above
  [[nodiscard]] global_sum all_reduce(const weighted_sum& part, traffic_class traffic = traffic_class::control) {
    double cells[] = {part.sum, part.weight};
    all_reduce(tensor_view{std::span<double>{cells}}, reduce_op::sum, traffic);
    return global_sum{{cells[0], cells[1]}};
  }

  /// Starts an all_reduce and returns. The view must stay alive and untouched until `wait` of the result. Asynchronous
  /// operations of one handle run in the order of its queue (see `set_queue_order`), on a thread of their own and in a
  /// sequence of their own: they need no order relative to blocking ones.
  /// @throws error unsupported, invalid_shape at once; everything else at `wait`
  [[nodiscard]] pending all_reduce_async(const tensor_view& view, reduce_op op, const task_options& options) {
    detail::check_view(view);
    return queue_.submit(*this, view, op, options);
  }
  [[nodiscard]] pending all_reduce_async(const tensor_view& view, reduce_op op,
                                         traffic_class traffic = traffic_class::other) {
    return all_reduce_async(view, op, task_options{.traffic = traffic});
  }

  /// How asynchronous operations take turns, here and on channels and groups made from here later: cut into chunks, as
  /// started or the most urgent first (see `task_options`). Waits for those already started. In priority order ranks
  /// may start operations in different orders if none waits for one before it started all that others may have.
  /// @throws error mismatch when ranks ask for different ones; as above
  void set_queue_order(queue_order order, std::size_t chunk_bytes = default_chunk_bytes) {
    agree("the queue order", std::string{to_string(order)} + " in chunks of " + std::to_string(chunk_bytes) + " bytes");
    queue_.reset({order, chunk_bytes});
  }

  /// Copies the root's elements to every rank. Binomial tree of ceil(log2 n) rounds.
  /// @throws error as above; invalid_argument for a root that does not exist
  void broadcast(const tensor_view& view, rank_id root, traffic_class traffic = traffic_class::other) {
    detail::broadcast(*state_, view, index_of(root), traffic);
  }

  /// Replaces `bytes` by the root's, whatever its length.
  /// @throws error as above
  void broadcast(std::string& bytes, rank_id root, traffic_class traffic = traffic_class::control) {
    std::int64_t length = static_cast<std::int64_t>(bytes.size());
    broadcast(tensor_view{std::span{&length, 1}}, root, traffic);
    bytes.resize(static_cast<std::size_t>(length));
    broadcast(detail::bytes_of(bytes), root, traffic);
  }

  /// Gathers the `in` of every rank into `out` in rank order: out.count() == world_size() * in.count(). `in` may be its
  /// own place in `out`. Moves (n-1) in.count() elements each way: ceil(log2 n) rounds up to 32 KiB of `out`, a ring of
  /// n-1 beyond.
  /// @throws error as above; invalid_shape when the counts or types do not fit
  void all_gather(const tensor_view& in, const tensor_view& out, traffic_class traffic = traffic_class::other) {
    detail::all_gather(*state_, in, out, traffic);
  }

  /// As `all_gather`, with counts[r] elements of rank r; `counts` is equal on all ranks.
  /// @throws error as above; invalid_shape, invalid_argument when views and counts do not fit
  void all_gather_v(const tensor_view& in, const tensor_view& out, std::span<const std::size_t> counts,
                    traffic_class traffic = traffic_class::other) {
    detail::all_gather_v(*state_, in, out, counts, traffic);
  }

  /// Gathers a byte string of any length from every rank, in rank order.
  /// @throws error as above
  [[nodiscard]] std::vector<std::string> all_gather(std::string_view bytes,
                                                    traffic_class traffic = traffic_class::control) {
    return detail::all_gather_bytes(*state_, bytes, traffic);
  }

  /// Replaces the root's elements by their reduction over all ranks; other ranks are left with partial sums. 16-bit
  /// floats and 8-bit integers are added in 32 bits and rounded once. Every rank but the root sends `view` once, in
  /// ceil(log2 n) rounds; those narrow types take n rounds of n-th parts.
  /// @throws error as above; invalid_argument for a root that does not exist, and when an integer sum overflows: on
  /// every rank, on those that were done at their next call
  void reduce(const tensor_view& view, reduce_op op, rank_id root, traffic_class traffic = traffic_class::other) {
    detail::reduce(*state_, view, op, index_of(root), traffic);
  }

  /// `out` becomes part `rank()` of the reduction of `in` over all ranks: in.count() == world_size() * out.count().
  /// `in` stays as it is; `out` may be its own place in `in`. Each rank sends and receives (n-1) out.count() elements,
  /// in n-1 rounds; narrow types are rounded once.
  /// @throws error as above; invalid_shape when the counts or types do not fit; invalid_argument when an integer sum
  /// overflows: on every rank, on those that were done at their next call
  void reduce_scatter(const tensor_view& in, const tensor_view& out, reduce_op op,
                      traffic_class traffic = traffic_class::other) {
    detail::reduce_scatter(*state_, in, out, op, traffic);
  }

  /// As `reduce_scatter`, with counts[r] elements for rank r; `counts` is equal on all ranks.
  /// @throws error as for `reduce_scatter`
  void reduce_scatter_v(const tensor_view& in, const tensor_view& out, std::span<const std::size_t> counts,
                        reduce_op op, traffic_class traffic = traffic_class::other) {
    detail::reduce_scatter_v(*state_, in, out, counts, op, traffic);
  }

  /// Gathers the `in` of every rank into the root's `out`, in rank order; other ranks may pass an empty `out`. The
  /// root's `in` may be its own place in `out`. One round.
  /// @throws error as for `all_gather`; invalid_argument for a root that does not exist
  void gather(const tensor_view& in, const tensor_view& out, rank_id root,
              traffic_class traffic = traffic_class::other) {
    detail::gather(*state_, in, out, index_of(root), traffic);
  }

  /// As `gather`, with counts[r] elements of rank r; `counts` is equal on all ranks.
  /// @throws error as for `gather`
  void gather_v(const tensor_view& in, const tensor_view& out, std::span<const std::size_t> counts, rank_id root,
                traffic_class traffic = traffic_class::other) {
    detail::gather_v(*state_, in, out, counts, index_of(root), traffic);
  }

  /// `out` becomes part `rank()` of the root's `in`; other ranks may pass an empty `in`. The root's `out` may be its
  /// own place in `in`. One round.
  /// @throws error as for `gather`
  void scatter(const tensor_view& in, const tensor_view& out, rank_id root,
               traffic_class traffic = traffic_class::other) {
    detail::scatter(*state_, in, out, index_of(root), traffic);
  }

  /// As `scatter`, with counts[r] elements for rank r; `counts` is equal on all ranks.
  /// @throws error as for `gather`
  void scatter_v(const tensor_view& in, const tensor_view& out, std::span<const std::size_t> counts, rank_id root,
                 traffic_class traffic = traffic_class::other) {
    detail::scatter_v(*state_, in, out, counts, index_of(root), traffic);
  }

  /// Sends part r of `in` to rank r and receives part r of `out` from it; all parts are equally long and the views lie
  /// apart. n-1 rounds.
  /// @throws error as above; invalid_shape when the counts or types do not fit; invalid_argument for views that overlap
  void all_to_all(const tensor_view& in, const tensor_view& out, traffic_class traffic = traffic_class::other) {
    detail::all_to_all(*state_, in, out, traffic);
  }

  /// As `all_to_all`, with send_counts[r] elements to rank r and recv_counts[r] from it: this rank's own row and
  /// column.
  /// @throws error as for `all_to_all`; mismatch when one rank sends another more or less than that expects
  void all_to_all_v(const tensor_view& in, std::span<const std::size_t> send_counts, const tensor_view& out,
                    std::span<const std::size_t> recv_counts, traffic_class traffic = traffic_class::other) {
    detail::all_to_all_v(*state_, in, send_counts, out, recv_counts, traffic);
  }

  /// Exchanges with the listed ranks alone, all at once; ranks without neighbours pass an empty list. One round.
  /// @throws error as above; invalid_argument for a rank that is listed twice, does not exist or is this one; timeout
  /// when a peer does not list this rank
  void neighbour_exchange(std::span<const neighbour> neighbours, traffic_class traffic = traffic_class::other) {
    detail::neighbour_exchange(*state_, neighbours, traffic);
  }

  /// Returns once every rank has called it.
  /// @throws error as above
  void barrier(traffic_class traffic = traffic_class::control) { detail::barrier(*state_, traffic); }

  /// Law 4: returns when all ranks pass equal values for `what`.
  /// @throws error mismatch on every rank, naming `what`, the differing values and who holds them; as above
  void agree(std::string_view what, std::string_view value) { detail::agree(*state_, what, value); }

  /// Sets the rules by which collectives choose their algorithm, here and on channels and groups made from here later:
  /// rank 0's become everybody's, so that no rank chooses by itself.
  /// @throws error as above; invalid_argument on rank 0, before anything is sent, for rules that cannot be kept
  void tune(const tuning& rules) {
    detail::tune(*state_, rules);
    queue_.reset(queue_.settings());  // asynchronous operations follow the new rules too
  }
  [[nodiscard]] const tuning& rules() const noexcept { return *state_->rules; }

  /// A handle on the same ranks with its own sequence space. Costs no message: ranks agree because each asks for the
  /// same purposes equally often.
  [[nodiscard]] world channel(std::string_view purpose) const {
    return world{state_->derive(purpose), queue_.settings()};
  }

  /// A handle on these ranks of this handle alone, in this order. Only they ask for it; costs no message, as `channel`.
  /// Each call gives a new sequence space; `group_cache` gives the same handle again.
  /// @throws error invalid_argument for a list that names a rank twice, one that does not exist, or not this rank
  [[nodiscard]] world group(std::span<const rank_id> members) const {
    return world{detail::group(*state_, members), queue_.settings()};
  }

  /// The group of ranks that passed the same `color` (0 or above), ordered by (key, rank).
  /// @throws error as above; invalid_argument for a negative color
  [[nodiscard]] world split(int color, int key) { return world{detail::split(*state_, color, key), queue_.settings()}; }

  /// How messages reach a rank, for people: "shared memory", "interface eth0, 2 streams"; empty for this one.
  [[nodiscard]] std::string path_to(rank_id peer) const {
    const auto& carrier = state_->context->carrier;
    return carrier && peer != rank() ? carrier->path_to(state_->members.at(index_of(peer))) : std::string{};
  }

  /// Ends every pending and later call on every rank of the job with this reason. Returns at once; any thread.
  void abort(std::string_view reason, errc code = errc::aborted) const noexcept {
    if (state_) detail::abort(*state_, reason, code);  // a moved-from handle has left
  }

  /// What this rank has moved since it joined, over all handles. Any thread.
  [[nodiscard]] traffic_counters counters() const noexcept { return state_->context->meter.snapshot(); }
  /// What this handle's own operations have moved, asynchronous ones included.
  [[nodiscard]] traffic_counters handle_counters() const noexcept {
    return state_->meter.snapshot() + queue_.counters();
  }
  /// Equal for handles whose `counters` are the same ones.
  [[nodiscard]] const void* counter_source() const noexcept { return &state_->context->meter; }

  /// How long one call may wait, here and on channels made from here later.
  /// @throws error invalid_argument unless it is between 1 ms and 24 h
  void set_timeout(std::chrono::milliseconds timeout) {
    require(timeout >= std::chrono::milliseconds{1} && timeout <= std::chrono::hours{24}, errc::invalid_argument,
            "a timeout lies between 1 ms and 24 h; a call that waits for ever hides who is missing");
    state_->timeout = timeout;
  }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return state_->timeout; }

 private:
  explicit world(std::unique_ptr<detail::channel_state> state, queue_settings queue) noexcept
      : state_{std::move(state)}, queue_{queue} {}

  std::unique_ptr<detail::channel_state> state_;
  detail::async_queue<world> queue_;  // after the state, so that it ends first
};

static_assert(communicator<world> && all_reducer<world> && async_all_reducer<world> && priority_all_reducer<world> &&
                  broadcaster<world> && all_gatherer<world> && all_gatherer_v<world> && reducer<world> &&
                  reduce_scatterer<world> && reduce_scatterer_v<world> && gatherer<world> && gatherer_v<world> &&
                  scatterer<world> && scatterer_v<world> && all_to_all_capable<world> && all_to_all_v_capable<world> &&
                  neighbour_exchanger<world> && barrier_capable<world>,
              "the erased world must model the concepts it carries");

}  // namespace hetero
