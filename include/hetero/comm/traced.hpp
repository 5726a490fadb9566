// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <hetero/comm/decorator.hpp>

namespace hetero {

/// One blocking call that ended well, or one chunk of an asynchronous operation.
struct trace_event {
  comm_call call;
  std::chrono::steady_clock::time_point begin, end;
  std::uint64_t bytes = 0;  ///< sent and received
  std::uint64_t rounds = 0;
};

/// Where events go. Copied to channels and groups, and called on the thread that made the call, so copies that share
/// something must guard it.
template <class S>
concept trace_sink = std::copy_constructible<S> && std::invocable<S&, const trace_event&>;

/// Wants no events: `traced` then measures nothing.
struct null_sink {
  void operator()(const trace_event&) const noexcept {}
};

/// Tells a sink about every call that passes through it.
template <communicator C, trace_sink Sink = null_sink> class traced : public detail::decorator<traced<C, Sink>, C> {
  using base = detail::decorator<traced<C, Sink>, C>;
  friend base;

 public:
  explicit traced(C inner, Sink sink = {}) : base{std::move(inner)}, sink_{std::move(sink)} {}

 private:
  [[nodiscard]] traced wrap(C inner) const { return traced{std::move(inner), sink_}; }

  template <class Body> void around(const comm_call& call, Body& body) {
    if constexpr (std::is_same_v<Sink, null_sink>) {
      body();
    } else {
      trace_event event{.call = call, .begin = std::chrono::steady_clock::now(), .end = {}};
      const traffic_totals before = this->moved_inside().total();
      body();
      event.end = std::chrono::steady_clock::now();
      const traffic_totals moved = this->moved_inside().total() - before;
      event.bytes = moved.bytes_sent + moved.bytes_received;
      event.rounds = moved.rounds;
      sink_(event);
    }
  }

  [[no_unique_address]] Sink sink_;
};

template <class C> traced(C) -> traced<C>;
template <class C, class Sink> traced(C, Sink) -> traced<C, Sink>;

}  // namespace hetero
