// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <hetero/comm/decorator.hpp>

namespace hetero {

/// Counts what passes through it, its channels, groups and asynchronous operations, and nothing else that its rank
/// moves.
template <communicator C> class counted : public detail::decorator<counted<C>, C> {
  using base = detail::decorator<counted<C>, C>;
  friend base;

 public:
  explicit counted(C inner) : counted{std::move(inner), std::make_shared<detail::traffic_meter>()} {}

  /// Bytes, messages and rounds that passed, by traffic class. Any thread.
  [[nodiscard]] traffic_counters passed() const noexcept { return meter_->snapshot(); }

 private:
  counted(C inner, std::shared_ptr<detail::traffic_meter> meter) : base{std::move(inner)}, meter_{std::move(meter)} {}

  [[nodiscard]] counted wrap(C inner) const { return {std::move(inner), meter_}; }

  template <class Body> void around(const comm_call&, Body& body) {
    const traffic_counters before = this->moved_inside();
    body();
    meter_->add(this->moved_inside() - before);
  }

  std::shared_ptr<detail::traffic_meter> meter_;
};

template <class C> counted(C) -> counted<C>;

}  // namespace hetero
