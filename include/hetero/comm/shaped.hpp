// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <hetero/comm/decorator.hpp>

namespace hetero {

/// An emulated link.
struct link_shape {
  std::chrono::nanoseconds latency{0};
  double bytes_per_second = std::numeric_limits<double>::infinity();  ///< each way
};

/// Makes every operation last as long as on a slower link: at least rounds x latency + max(sent, received) / bandwidth,
/// by what the inner communicator counted; a message is one round. The difference is slept, to absolute deadlines.
/// Times taken through it are *emulated*.
///
/// Channels and groups made from a handle share its link: they queue for its bandwidth and not for its latency. Each
/// rank has a link of its own and measures from its own start of an operation, so a rank that came early may leave
/// early.
template <communicator C> class shaped : public detail::decorator<shaped<C>, C> {
  using base = detail::decorator<shaped<C>, C>;
  friend base;
  using clock = std::chrono::steady_clock;

 public:
  /// @throws error invalid_argument for a negative latency or a bandwidth that is not above 0
  shaped(C inner, const link_shape& shape) : shaped{std::move(inner), shape, std::make_shared<link>()} {
    require(shape.latency.count() >= 0 && shape.bytes_per_second > 0, errc::invalid_argument,
            "an emulated link needs a latency of 0 or more and a bandwidth above 0");
  }

 private:
  struct link {
    std::mutex mutex;
    clock::time_point free_at{};
  };

  shaped(C inner, const link_shape& shape, std::shared_ptr<link> shared)
      : base{std::move(inner)}, shape_{shape}, link_{std::move(shared)} {}

  [[nodiscard]] shaped wrap(C inner) const { return {std::move(inner), shape_, link_}; }

  template <class Body> void around(const comm_call& call, Body& body) {
    const clock::time_point start = clock::now();
    const traffic_totals before = this->moved_inside().total();
    body();
    const traffic_totals moved = this->moved_inside().total() - before;
    const auto bytes = static_cast<double>(std::max(moved.bytes_sent, moved.bytes_received));
    const auto busy =
        std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>{bytes / shape_.bytes_per_second});
    const auto rounds = std::max<std::uint64_t>(moved.rounds, call.kind == operation_kind::message ? 1 : 0);
    clock::time_point end;
    {
      const std::lock_guard lock{link_->mutex};
      end = link_->free_at = std::max(start, link_->free_at) + busy;
    }
    std::this_thread::sleep_until(end + shape_.latency * rounds);
  }

  link_shape shape_;
  std::shared_ptr<link> link_;
};

template <class C> shaped(C, link_shape) -> shaped<C>;

}  // namespace hetero
