// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/plan/action.hpp>
#include <hetero/plan/bucket.hpp>

namespace hetero {

/// The pass that lets communication overlap with the last backward pass of a step: that action is cut where buckets become complete,
/// and a reduce action follows each piece. A rank without work reduces just before its step, so that all ranks take part.
/// @throws error invalid_argument when the program has no step action
[[nodiscard]] inline program insert_reduce(const program& actions, const std::vector<bucket>& buckets) {
  std::size_t step = actions.size();
  std::size_t last_backward = actions.size();
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const auto kind = actions[i].kind;
    if (kind == action_kind::step) step = i;
    const bool completes_weights =
        kind == action_kind::backward_weight || (kind == action_kind::backward_input && !actions[i].split);
    if (completes_weights) last_backward = i;
  }
  require(step < actions.size(), errc::invalid_argument,
          "a program without a step action has no place for a gradient exchange");

  program result;
  std::vector<std::uint32_t> moved(actions.size());  // where an action of the input ended up
  std::uint32_t next_bucket = 0;
  const auto reduce_ready = [&](std::size_t done_layer, std::vector<std::uint32_t> after) {
    while (next_bucket < buckets.size() && buckets[next_bucket].ready_layer >= done_layer) {
      result.push_back({.kind = action_kind::reduce, .bucket = next_bucket++, .after = after});
    }
  };

  for (std::size_t i = 0; i < actions.size(); ++i) {
    action current = actions[i];
    for (auto& dependency : current.after) dependency = moved[dependency];
    if (i == step) reduce_ready(0, {});  // what no backward pass of this rank completes
    if (i == last_backward) {
      std::size_t end = current.end_layer;
      while (next_bucket < buckets.size() && buckets[next_bucket].ready_layer > current.first_layer) {
        action piece = current;
        piece.first_layer = buckets[next_bucket].ready_layer;
        piece.end_layer = end;
        end = piece.first_layer;
        result.push_back(piece);
        reduce_ready(end, {static_cast<std::uint32_t>(result.size() - 1)});
      }
      current.end_layer = end;
      result.push_back(current);
      moved[i] = static_cast<std::uint32_t>(result.size() - 1);
      reduce_ready(current.first_layer, {moved[i]});
      continue;
    }
    if (i == step) {
      for (std::size_t j = 0; j < result.size(); ++j) {
        if (result[j].kind == action_kind::reduce) current.after.push_back(static_cast<std::uint32_t>(j));
      }
    }
    result.push_back(current);
    moved[i] = static_cast<std::uint32_t>(result.size() - 1);
  }
  return result;
}

}  // namespace hetero
