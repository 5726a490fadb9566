// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hetero/shard/concepts.hpp>

namespace hetero {

/// Every rank holds all parameters, gradients and optimizer state: the least communication, the most memory.
struct replicated_sharding {
  using policy_kind = sharding_policy;
  static constexpr bool replicates_parameters = true;

  /// An even cut of the flat order: work on owned elements is then even as well.
  [[nodiscard]] element_range owned(const parameter_layout& layout, const plan& p, rank_id rank) const {
    const std::size_t n = layout.trainable_elements;
    return {n * index_of(rank) / p.world_size(), n * (index_of(rank) + 1) / p.world_size()};
  }

  [[nodiscard]] element_range state_held(const parameter_layout& layout, const plan&, rank_id) const {
    return {0, layout.trainable_elements};
  }

  /// Nothing to gather or release.
  [[nodiscard]] program insert(const program& actions, const parameter_layout&, const plan&, rank_id) const {
    return actions;
  }

  friend constexpr bool operator==(const replicated_sharding&, const replicated_sharding&) = default;
};

static_assert(sharding<replicated_sharding>, "replicated_sharding models sharding");

}  // namespace hetero
