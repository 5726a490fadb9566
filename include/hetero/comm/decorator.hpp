// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <hetero/comm/collective_mixin.hpp>
#include <hetero/comm/concepts.hpp>
#include <hetero/comm/transport.hpp>
#include <hetero/comm/tuning.hpp>

namespace hetero {

/// One blocking call, as a decorator sees it.
struct comm_call {
  operation_kind kind = operation_kind::message;
  std::size_t count = 0;  ///< elements of the first view
  dtype type = dtype::u8;
  traffic_class traffic = traffic_class::other;
  std::optional<rank_id> peer;  ///< of a message: where it goes, or comes from
};

namespace detail {

template <class T, class... Args> [[nodiscard]] T first_of(T otherwise, const Args&... args) {
  bool found = false;
  const auto look = [&](const auto& arg) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(arg)>, T>) {
      if (!std::exchange(found, true)) otherwise = arg;
    }
  };
  (look(args), ...);
  return otherwise;
}

/// The base of decorators: a communicator with the capabilities of `C`, each blocking call of which goes through
/// `Derived::around(call, body)`, where `body` makes the call on the inner one. Numbers, texts and asynchronous
/// operations are made of those calls, so they go through it too.
///
/// `Derived` also has `Derived wrap(C inner) const`: a handle like this one on another channel or group.
template <class Derived, communicator C> class decorator : public collective_mixin<Derived> {
  using mixin = collective_mixin<Derived>;

 public:
  [[nodiscard]] rank_id rank() const noexcept { return inner_.rank(); }
  [[nodiscard]] std::uint32_t world_size() const noexcept { return inner_.world_size(); }
  [[nodiscard]] traffic_counters counters() const noexcept { return inner_.counters(); }
  [[nodiscard]] traffic_counters handle_counters() const noexcept { return moved_inside() + this->async_counters(); }
  void abort(std::string_view reason) const noexcept { inner_.abort(reason); }
  void abort(std::string_view reason, errc code) const noexcept requires requires(const C& c) { c.abort(reason, code); }
  { inner_.abort(reason, code); }
  [[nodiscard]] const void* counter_source() const noexcept requires requires(const C& c) { c.counter_source(); }
  { return inner_.counter_source(); }
  [[nodiscard]] const std::string& name() const noexcept requires requires(const C& c) { c.name(); }
  { return inner_.name(); }
  [[nodiscard]] std::string path_to(rank_id peer) const requires requires(const C& c) { c.path_to(peer); }
  { return std::string{inner_.path_to(peer)}; }
  void tune(const tuning& rules) requires requires(C& c) { c.tune(rules); }
  {
    inner_.tune(rules);
    this->inherit(*this);  // asynchronous operations follow the new rules too
  }
  void set_timeout(std::chrono::milliseconds timeout) requires has_timeout<C> { inner_.set_timeout(timeout); }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept requires has_timeout<C> { return inner_.timeout(); }

  [[nodiscard]] Derived channel(std::string_view purpose) const { return again(inner_.channel(purpose)); }
  [[nodiscard]] Derived split(int color, int key) { return again(inner_.split(color, key)); }
  [[nodiscard]] Derived group(std::span<const rank_id> members) const requires requires(const C& c) {
    c.group(members);
  }
  { return again(inner_.group(members)); }

  void send(const tensor_view& view, rank_id to, traffic_class traffic = traffic_class::other) {
    through({operation_kind::message, view.count(), view.type(), traffic, to}, [&] { inner_.send(view, to, traffic); });
  }
  void recv(const tensor_view& view, rank_id from, traffic_class traffic = traffic_class::other) {
    through({operation_kind::message, view.count(), view.type(), traffic, from},
            [&] { inner_.recv(view, from, traffic); });
  }
  void send_recv(const tensor_view& out, rank_id to, const tensor_view& in, rank_id from,
                 traffic_class traffic = traffic_class::other) {
    through({operation_kind::message, out.count(), out.type(), traffic, to},
            [&] { inner_.send_recv(out, to, in, from, traffic); });
  }

  using mixin::all_reduce;
  void all_reduce(const tensor_view& view, reduce_op op,
                  traffic_class traffic = traffic_class::other) requires all_reducer<C> {
    through({operation_kind::all_reduce, view.count(), view.type(), traffic, {}},
            [&] { inner_.all_reduce(view, op, traffic); });
  }
  using mixin::broadcast;
  void broadcast(const tensor_view& view, rank_id root,
                 traffic_class traffic = traffic_class::other) requires broadcaster<C> {
    through({operation_kind::broadcast, view.count(), view.type(), traffic, {}},
            [&] { inner_.broadcast(view, root, traffic); });
  }
  using mixin::all_gather;
  void all_gather(const tensor_view& in, const tensor_view& out,
                  traffic_class traffic = traffic_class::other) requires all_gatherer<C> {
    through({operation_kind::all_gather, in.count(), in.type(), traffic, {}},
            [&] { inner_.all_gather(in, out, traffic); });
  }
  void barrier(traffic_class traffic = traffic_class::control) requires barrier_capable<C> {
    through({operation_kind::barrier, 0, dtype::u8, traffic, {}}, [&] { inner_.barrier(traffic); });
  }

#define HETERO_FORWARD(operation, named)                                                                      \
  template <class... Args>                                                                                    \
  requires requires(C & c, Args && ... args) { c.operation(std::forward<Args>(args)...); }                    \
  void operation(Args&&... args) {                                                                            \
    through(call_of(operation_kind::named, args...), [&] { inner_.operation(std::forward<Args>(args)...); }); \
  }
  HETERO_FORWARD(all_gather_v, all_gather)
  HETERO_FORWARD(reduce, reduce)
  HETERO_FORWARD(reduce_scatter, reduce_scatter)
  HETERO_FORWARD(reduce_scatter_v, reduce_scatter)
  HETERO_FORWARD(gather, gather)
  HETERO_FORWARD(gather_v, gather)
  HETERO_FORWARD(scatter, scatter)
  HETERO_FORWARD(scatter_v, scatter)
  HETERO_FORWARD(all_to_all, all_to_all)
  HETERO_FORWARD(all_to_all_v, all_to_all)
  HETERO_FORWARD(neighbour_exchange, neighbour_exchange)
#undef HETERO_FORWARD

  /// The communicator below.
  [[nodiscard]] C& inner() noexcept { return inner_; }
  [[nodiscard]] const C& inner() const noexcept { return inner_; }

 protected:
  explicit decorator(C inner) : inner_{std::move(inner)} {}
  /// What the calls that went through `around` have moved.
  [[nodiscard]] traffic_counters moved_inside() const noexcept { return handle_counters_of(inner_); }

 private:
  [[nodiscard]] Derived again(C inner) const {
    Derived other = static_cast<const Derived&>(*this).wrap(std::move(inner));
    static_cast<mixin&>(other).inherit(*this);
    return other;
  }
  template <class Body> void through(const comm_call& call, Body&& body) {
    static_cast<Derived&>(*this).around(call, body);
  }
  template <class... Args> [[nodiscard]] static comm_call call_of(operation_kind kind, const Args&... args) {
    const tensor_view first = first_of(tensor_view{}, args...);
    return {kind, first.count(), first.type(), first_of(traffic_class::other, args...), {}};
  }

  C inner_;
};

}  // namespace detail
}  // namespace hetero
