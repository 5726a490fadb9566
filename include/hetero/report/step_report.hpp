// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// @file
/// What one step did, as plain numbers. The trainer fills it; progress, metrics and summaries read it.
namespace hetero {

/// What one rank did in one step.
struct rank_report {
  std::uint32_t rank = 0;
  std::string device{};           ///< "cpu:0"; several are joined by "+"
  std::uint64_t share = 0;        ///< samples of this step that the rank worked on; 0 for an idle rank
  double busy = 0;                ///< fraction of the step the rank computed, 0 to 1
  double forward_backward_s = 0;  ///< time in forward and backward
  double wait_s = 0;              ///< time spent waiting for other ranks
};

/// What one step did, over all ranks. Equal on every rank but for `rank` and times.
struct step_report {
  std::uint64_t step = 0;   ///< 1-based: after the first update it is 1
  std::uint64_t steps = 0;  ///< length of the run; 0 when unknown
  std::uint32_t rank = 0;   ///< the rank that holds this report
  double loss = 0;          ///< mean over all counted targets of all ranks
  double learning_rate = 0;
  double grad_norm = 0;  ///< before clipping
  double seconds = 0;
  double samples_per_second = 0;
  double tokens_per_second = 0;
  std::uint64_t samples = 0;
  std::uint64_t tokens = 0;                 ///< counted targets
  std::optional<double> validation_loss{};  ///< where this step ended with an evaluation
  std::vector<rank_report> ranks{};
  bool rebalanced = false;  ///< the shares of the next step differ from this one's
};

}  // namespace hetero
