// SPDX-License-Identifier: Apache-2.0
// Law 1: a local sum becomes a global one only where the program says so.
// expect: could not convert|conversion from .*weighted_sum|no viable conversion
#include <hetero/core/weighted_sum.hpp>

double mean_of(hetero::global_sum total) { return total.mean(); }

double loss(const hetero::weighted_sum& part) {
#ifdef HETERO_CONTROL
  return mean_of(hetero::global_sum{part});
#else
  return mean_of(part);
#endif
}
