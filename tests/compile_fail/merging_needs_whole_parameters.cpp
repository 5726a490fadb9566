// SPDX-License-Identifier: Apache-2.0
// A synchronizer that merges parameters means nothing where no rank keeps them whole.
// expect: this synchronizer merges whole parameters, but the sharding policy does not keep them whole on a rank
#include <hetero/trainer/policies.hpp>

/// Keeps each parameter on one rank.
struct scattered_sharding : hetero::replicated_sharding {
#ifdef HETERO_CONTROL
  static constexpr bool replicates_parameters = true;
#else
  static constexpr bool replicates_parameters = false;
#endif
};

/// Averages parameters now and then.
struct averaging_synchronizer : hetero::all_reduce_synchronizer {
  static constexpr bool exact = false;
};

constexpr std::size_t size = sizeof(hetero::detail::policy_set<scattered_sharding, averaging_synchronizer>);
