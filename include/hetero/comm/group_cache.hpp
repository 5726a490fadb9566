// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <hetero/comm/concepts.hpp>

namespace hetero {

/// `c.group(members)`: those ranks in that order, without a message.
template <class C>
concept group_former = communicator<C> && requires(const C& c, std::span<const rank_id> members) {
  { c.group(members) } -> std::same_as<C>;
};

/// Keeps the groups it made: asked for the same list again, it gives the same handle, whose sequence goes on. Making
/// one costs no message, so groups may change with every step.
///
/// Only the members of a group ask for it. It forgets nothing by itself: a program that forms groups without end calls
/// `clear` now and then, on all ranks at the same point, for a new handle starts a new sequence. Used by one thread.
template <group_former C> class group_cache {
 public:
  /// `c` must outlive the cache.
  explicit group_cache(const C& c) : parent_{&c} {}

  /// The handle on these ranks, in this order; it lives as long as the cache.
  /// @throws error invalid_argument for a list that names a rank twice, one that does not exist, or not this rank
  [[nodiscard]] C& get(std::span<const rank_id> members) {
    std::vector<rank_id> key{members.begin(), members.end()};
    auto found = groups_.find(key);
    if (found == groups_.end()) found = groups_.emplace(std::move(key), parent_->group(members)).first;
    return found->second;
  }

  [[nodiscard]] std::size_t size() const noexcept { return groups_.size(); }
  void clear() noexcept { groups_.clear(); }

 private:
  const C* parent_;
  std::map<std::vector<rank_id>, C> groups_;
};

}  // namespace hetero
