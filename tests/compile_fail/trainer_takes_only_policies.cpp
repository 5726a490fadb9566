// SPDX-License-Identifier: Apache-2.0
// An argument that is no policy is refused, with the list of what a trainer takes.
// expect: hetero::trainer takes policies, trainer_options and an any_device; one argument is none of these
#include <hetero/trainer/policies.hpp>

struct almost_a_policy {
  double learning_rate = 1;
};

#ifdef HETERO_CONTROL
using chosen = hetero::detail::policy_set<hetero::adamw, hetero::trainer_options>;
#else
using chosen = hetero::detail::policy_set<hetero::adamw, almost_a_policy>;
#endif
chosen policies{{}, {}};
