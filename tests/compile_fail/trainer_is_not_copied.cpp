// SPDX-License-Identifier: Apache-2.0
// A trainer owns channels and memory that its session refers to: it is not copied.
// expect: deleted
#include <hetero/model/mlp.hpp>
#include <hetero/trainer/trainer.hpp>

using trainer_type = hetero::trainer<hetero::mlp, hetero::world>;

#ifdef HETERO_CONTROL
trainer_type& again(trainer_type& t) { return t; }
#else
trainer_type again(trainer_type& t) { return t; }
#endif
