// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hetero/comm/traffic.hpp>
#include <hetero/core/tensor_view.hpp>
#include <hetero/core/weighted_sum.hpp>
#include <hetero/plan/cluster.hpp>
#include <hetero/report/step_report.hpp>

namespace hetero {

/// What every rank tells the others once per step: its part of the loss and how long its work took.
struct step_record {
  weighted_sum loss{};
  double samples = 0;
  double compute_s = 0;  ///< device time of forward and backward, emulated slowness included
  double wait_s = 0;     ///< of the step before: time spent waiting for others
  double busy = 0;       ///< of the step before: fraction of it the device computed, updates included
  std::vector<std::size_t> proposal{};  ///< new shares; the first rank's counts, empty for no change
};

/// Exchanges the records of all ranks, in rank order. Collective, blocking. One ring all_gather of
/// (7 + world_size) doubles per rank.
template <class World>
[[nodiscard]] std::vector<step_record> exchange(World& world, const step_record& mine) {
  const std::size_t n = world.world_size();
  constexpr std::size_t fixed = 7;
  std::vector<double> out{mine.loss.sum, mine.loss.weight, mine.samples, mine.compute_s, mine.wait_s, mine.busy,
                          mine.proposal.empty() ? 0.0 : 1.0};
  for (std::size_t r = 0; r < n; ++r) out.push_back(mine.proposal.empty() ? 0.0 : static_cast<double>(mine.proposal[r]));
  std::vector<double> in(n * out.size());
  world.all_gather(tensor_view{std::span{out}}, tensor_view{std::span{in}}, traffic_class::control);
  std::vector<step_record> records(n);
  for (std::size_t r = 0; r < n; ++r) {
    const double* const row = in.data() + r * out.size();
    records[r] = {{row[0], row[1]}, row[2], row[3], row[4], row[5], {}};
    if (row[6] == 0.0) continue;
    for (std::size_t i = 0; i < n; ++i) records[r].proposal.push_back(static_cast<std::size_t>(row[fixed + i]));
  }
  return records;
}

/// Fills the part of a report that the records of all ranks tell: samples, tokens, rates and one row per rank.
inline void describe_ranks(step_report& report, const std::vector<step_record>& records, const cluster& machines) {
  for (std::size_t r = 0; r < records.size(); ++r) {
    const auto& record = records[r];
    report.samples += static_cast<std::uint64_t>(record.samples);
    report.ranks.push_back({.rank = static_cast<std::uint32_t>(r),
                            .device = r < machines.ranks.size() ? machines.ranks[r].device : "",
                            .share = static_cast<std::uint64_t>(record.samples),
                            .busy = record.busy > 0 ? record.busy : std::min(1.0, record.compute_s / report.seconds),
                            .forward_backward_s = record.compute_s,
                            .wait_s = record.wait_s});
  }
  report.samples_per_second = static_cast<double>(report.samples) / report.seconds;
  report.tokens_per_second = static_cast<double>(report.tokens) / report.seconds;
}

}  // namespace hetero
