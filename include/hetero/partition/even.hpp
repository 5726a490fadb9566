// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/partition/concepts.hpp>

namespace hetero {

/// The same number of samples for every rank, the first ranks one more: what systems do that do not look at speeds.
struct even_splitter {
  /// @throws error plan_does_not_fit when the cluster has no ranks
  [[nodiscard]] std::vector<std::size_t> split(std::size_t samples, const cluster& machines) const {
    const std::size_t ranks = machines.ranks.size();
    require(ranks > 0, errc::plan_does_not_fit, "a cluster without ranks has nobody to give samples to");
    std::vector<std::size_t> shares(ranks, samples / ranks);
    for (std::size_t i = 0; i < samples % ranks; ++i) ++shares[i];
    return shares;
  }
  friend constexpr bool operator==(const even_splitter&, const even_splitter&) = default;
};

static_assert(batch_splitter<even_splitter>);

}  // namespace hetero
