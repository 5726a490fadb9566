// SPDX-License-Identifier: Apache-2.0
// A stage cannot be passed where a rank is meant.
// expect: cannot convert|no viable conversion|no known conversion
#include <hetero/core/ids.hpp>

void send_to(hetero::rank_id peer);

void pass_on(hetero::rank_id peer, [[maybe_unused]] hetero::stage_id stage) {
#ifdef HETERO_CONTROL
  send_to(peer);
#else
  (void)peer;
  send_to(stage);
#endif
}
