// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <hetero/comm/channel_state.hpp>
#include <hetero/comm/collectives.hpp>
#include <hetero/comm/concepts.hpp>
#include <hetero/comm/pending.hpp>
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
  /// integers are added in 32 bits and rounded once. Moves 2(n-1)/n of the bytes each way in 2(n-1) rounds.
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
  /// operations of one handle run in the order they were started, on a thread of their own and in a sequence of their
  /// own: they need no order relative to blocking ones.
  /// @throws error unsupported, invalid_shape at once; everything else at `wait`
  [[nodiscard]] pending all_reduce_async(const tensor_view& view, reduce_op op,
                                         traffic_class traffic = traffic_class::other) {
    detail::check_view(view);
    if (!progress_) progress_ = std::make_unique<progress>(state_->derive("async"));
    auto task = std::make_shared<detail::async_task>();
    task->work = [lane = progress_.get(), view, op, traffic, timeout = state_->timeout] {
      lane->state->timeout = timeout;
      detail::all_reduce(*lane->state, view, op, traffic);
    };
    progress_->thread.submit(task);
    return pending{std::move(task)};
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
  /// own place in `out`. Ring of n-1 rounds.
  /// @throws error as above; invalid_shape when the counts or types do not fit
  void all_gather(const tensor_view& in, const tensor_view& out, traffic_class traffic = traffic_class::other) {
    detail::all_gather(*state_, in, out, traffic);
  }

  /// Gathers a byte string of any length from every rank, in rank order.
  /// @throws error as above
  [[nodiscard]] std::vector<std::string> all_gather(std::string_view bytes,
                                                    traffic_class traffic = traffic_class::control) {
    return detail::all_gather_bytes(*state_, bytes, traffic);
  }

  /// Returns once every rank has called it.
  /// @throws error as above
  void barrier(traffic_class traffic = traffic_class::control) { detail::barrier(*state_, traffic); }

  /// Law 4: returns when all ranks pass equal values for `what`.
  /// @throws error mismatch on every rank, naming `what`, the differing values and who holds them; as above
  void agree(std::string_view what, std::string_view value) { detail::agree(*state_, what, value); }

  /// A handle on the same ranks with its own sequence space. Costs no message: ranks agree because each asks for the
  /// same purposes equally often.
  [[nodiscard]] world channel(std::string_view purpose) const { return world{state_->derive(purpose)}; }

  /// The group of ranks that passed the same `color` (0 or above), ordered by (key, rank).
  /// @throws error as above; invalid_argument for a negative color
  [[nodiscard]] world split(int color, int key) { return world{detail::split(*state_, color, key)}; }

  /// Ends every pending and later call on every rank of the job with errc::aborted and this reason. Returns at once;
  /// any thread.
  void abort(std::string_view reason) const noexcept { detail::abort(*state_, reason); }

  /// What this rank has moved since it joined, over all handles. Any thread.
  [[nodiscard]] traffic_counters counters() const noexcept { return state_->context->meter.snapshot(); }

  /// How long one call may wait, here and on channels made from here later.
  /// @throws error invalid_argument unless it is between 1 ms and 24 h
  void set_timeout(std::chrono::milliseconds timeout) {
    require(timeout >= std::chrono::milliseconds{1} && timeout <= std::chrono::hours{24}, errc::invalid_argument,
            "a timeout lies between 1 ms and 24 h; a call that waits for ever hides who is missing");
    state_->timeout = timeout;
  }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return state_->timeout; }

 private:
  struct progress {
    explicit progress(std::unique_ptr<detail::channel_state> s) : state{std::move(s)} {}
    std::unique_ptr<detail::channel_state> state;  // used by the thread alone
    detail::progress_thread thread;
  };

  explicit world(std::unique_ptr<detail::channel_state> state) noexcept : state_{std::move(state)} {}

  std::unique_ptr<detail::channel_state> state_;
  std::unique_ptr<progress> progress_;
};

static_assert(communicator<world> && all_reducer<world> && async_all_reducer<world> && broadcaster<world> &&
                  all_gatherer<world> && barrier_capable<world>,
              "the erased world must model the concepts it carries");

}  // namespace hetero
