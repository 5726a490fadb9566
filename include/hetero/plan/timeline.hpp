// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <hetero/core/ids.hpp>
#include <hetero/plan/action.hpp>

/// @file
/// When actions ran, or are predicted to run. The same data comes from a clock and from a simulation, so both can be
/// drawn and compared.
namespace hetero {

/// One action on one queue of one rank. Seconds count from the start of the step.
struct interval {
  rank_id rank{};
  std::uint16_t stream = 0;  ///< index among the rank's queues
  std::uint32_t action = 0;  ///< index in the rank's program
  action_kind kind = action_kind::forward;
  double begin_s = 0;
  double end_s = 0;
  friend bool operator==(const interval&, const interval&) = default;
};

/// The intervals of one step, in no particular order.
struct timeline {
  bool measured = false;  ///< false: predicted
  std::vector<interval> intervals{};
  friend bool operator==(const timeline&, const timeline&) = default;
};

/// Seconds from the earliest begin to the latest end; 0 without intervals.
[[nodiscard]] inline double duration_s(const timeline& t) {
  if (t.intervals.empty()) return 0;
  double begin = t.intervals.front().begin_s;
  double end = t.intervals.front().end_s;
  for (const auto& i : t.intervals) {
    begin = std::min(begin, i.begin_s);
    end = std::max(end, i.end_s);
  }
  return end - begin;
}

/// Seconds in which at least one queue of `rank` computed: forward, backward, recompute and step. Overlapping
/// intervals count once; transfers and waiting do not count.
[[nodiscard]] inline double busy_s(const timeline& t, rank_id rank) {
  std::vector<std::pair<double, double>> spans;
  for (const auto& i : t.intervals) {
    const bool computes = i.kind == action_kind::forward || i.kind == action_kind::backward_input ||
                          i.kind == action_kind::backward_weight || i.kind == action_kind::recompute ||
                          i.kind == action_kind::step;
    if (i.rank == rank && computes && i.end_s > i.begin_s) spans.emplace_back(i.begin_s, i.end_s);
  }
  std::sort(spans.begin(), spans.end());
  double busy = 0;
  double covered_to = 0;
  bool first = true;
  for (const auto& [begin, end] : spans) {
    const double from = first ? begin : std::max(begin, covered_to);
    if (end > from) busy += end - from;
    covered_to = first ? end : std::max(covered_to, end);
    first = false;
  }
  return busy;
}

}  // namespace hetero
