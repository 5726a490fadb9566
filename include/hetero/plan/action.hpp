// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hetero/core/ids.hpp>

/// @file
/// A rank's program as data. Pure passes build it (scheduler, then recompute, sharding, offload, synchronizer); one executor runs it.
namespace hetero {

/// What an action does.
enum class action_kind : std::uint8_t {
  forward,          ///< layers [first, end) on one micro-batch
  backward_input,   ///< gradient of the input, and of the weights too unless `split`
  backward_weight,  ///< the weight half of a split backward
  recompute,        ///< forward again for its activations
  send,             ///< an activation or gradient to `peer`
  recv,             ///< the same from `peer`
  gather,           ///< makes a sharded parameter whole
  release,          ///< drops it again
  reduce,           ///< merges gradient bucket `bucket` with the other replicas
  step,             ///< the optimizer update
  push,             ///< sends to a server
  pull,             ///< fetches from a server
  merge,            ///< mixes parameters with other replicas
  offload,          ///< moves state away from the device
  fetch,            ///< brings it back
};

[[nodiscard]] constexpr const char* to_string(action_kind kind) noexcept {
  constexpr const char* names[] = {"forward", "backward_input", "backward_weight", "recompute", "send",
                                   "recv", "gather", "release", "reduce", "step",
                                   "push", "pull", "merge", "offload", "fetch"};
  return names[static_cast<std::size_t>(kind)];
}

/// One action. Fields that a kind does not use keep their defaults.
struct action {
  action_kind kind = action_kind::forward;
  replica_id replica{};
  stage_id stage{};
  micro_batch_id micro_batch{};
  std::size_t first_layer = 0;
  std::size_t end_layer = 0;
  std::uint32_t bucket = 0;
  rank_id peer{};
  bool split = false;          ///< backward_input leaves the weights to a later backward_weight
  bool opportunistic = false;  ///< may run early when its input is there (Varuna)
  bool gradient = false;       ///< send and recv: a gradient that travels back rather than an activation
  std::vector<std::uint32_t> after{};  ///< indices of earlier actions of this program that must be finished first
  friend bool operator==(const action&, const action&) = default;
};

/// The actions of one rank for one step, in order. Order is strict unless an action is opportunistic.
using program = std::vector<action>;

/// "backward_input r0 s0 m3 layers [2, 5)".
[[nodiscard]] inline std::string to_string(const action& a) {
  std::string text = std::string{to_string(a.kind)} + " r" + std::to_string(index_of(a.replica)) + " s" +
                     std::to_string(index_of(a.stage)) + " m" + std::to_string(index_of(a.micro_batch));
  if (a.end_layer > a.first_layer) {
    text += " layers [" + std::to_string(a.first_layer) + ", " + std::to_string(a.end_layer) + ')';
  }
  if (a.kind == action_kind::reduce) text += " bucket " + std::to_string(a.bucket);
  if (a.kind == action_kind::send || a.kind == action_kind::recv) {
    text += std::string{a.gradient ? " gradient" : " activation"} + " peer " + std::to_string(index_of(a.peer));
  }
  return text;
}

}  // namespace hetero
