// SPDX-License-Identifier: Apache-2.0
// Two sets of options would leave open which one counts.
// expect: hetero::trainer was given two trainer_options; pass one
#include <hetero/trainer/policies.hpp>

#ifdef HETERO_CONTROL
using chosen = hetero::detail::policy_set<hetero::adamw, hetero::trainer_options>;
#else
using chosen = hetero::detail::policy_set<hetero::adamw, hetero::trainer_options, hetero::trainer_options>;
#endif
constexpr std::size_t size = sizeof(chosen);
