// SPDX-License-Identifier: Apache-2.0
// Law 1: a rank's part of a sum does not turn into a number by itself.
// expect: cannot convert|no viable conversion
#include <hetero/core/weighted_sum.hpp>

double loss(const hetero::weighted_sum& part) {
#ifdef HETERO_CONTROL
  return part.sum;
#else
  return part;
#endif
}
