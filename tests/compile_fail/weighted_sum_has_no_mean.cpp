// SPDX-License-Identifier: Apache-2.0
// Law 1: only the sum over all ranks has a mean.
// expect: (no member named|has no member named) .mean
#include <hetero/core/weighted_sum.hpp>

double loss(const hetero::weighted_sum& part) {
#ifdef HETERO_CONTROL
  return hetero::global_sum{part}.mean();
#else
  return part.mean();
#endif
}
