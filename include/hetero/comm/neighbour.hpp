// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hetero/core/ids.hpp>
#include <hetero/core/tensor_view.hpp>

namespace hetero {

/// What a rank exchanges with one other in a `neighbour_exchange`. The peer lists this rank in turn, with an `in` of
/// the type and count of this `out`, and the other way round. A view may be empty.
struct neighbour {
  rank_id peer;
  tensor_view out;  ///< to the peer
  tensor_view in;   ///< from the peer
};

}  // namespace hetero
