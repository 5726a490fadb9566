// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hetero/comm/world.hpp>

namespace hetero {

/// The world of one rank: collectives are identities and nothing is connected.
[[nodiscard]] inline world self() { return world{std::shared_ptr<transport>{}}; }

}  // namespace hetero
