// SPDX-License-Identifier: Apache-2.0
// Law 1: ranks add sums and weights; there is no reduction that averages.
// expect: .avg. is not a member|no member named 'avg'
#include <hetero/comm/reduce_op.hpp>

#ifdef HETERO_CONTROL
constexpr auto op = hetero::reduce_op::sum;
#else
constexpr auto op = hetero::reduce_op::avg;
#endif
