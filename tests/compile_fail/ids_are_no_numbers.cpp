// SPDX-License-Identifier: Apache-2.0
// A bare number does not become a rank.
// expect: cannot convert|cannot initialize|no viable conversion|no known conversion
#include <hetero/core/ids.hpp>

hetero::rank_id next(hetero::rank_id rank) {
#ifdef HETERO_CONTROL
  return hetero::rank_id{hetero::index_of(rank) + 1};
#else
  return hetero::index_of(rank) + 1;
#endif
}
