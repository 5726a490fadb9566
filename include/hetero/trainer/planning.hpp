// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/traffic.hpp>
#include <hetero/partition/fit.hpp>
#include <hetero/partition/rebalance.hpp>
#include <hetero/plan/action.hpp>
#include <hetero/plan/cluster.hpp>
#include <hetero/plan/share.hpp>
#include <hetero/trainer/exchange.hpp>
#include <hetero/trainer/options.hpp>

namespace hetero {

/// Tells every rank what each rank measured of itself, in rank order. Collective, blocking.
template <class World>
[[nodiscard]] cluster gather_profiles(World& world, const rank_profile& mine) {
  const double numbers[] = {mine.compute.fixed_s, mine.compute.per_sample_s, mine.compute.backward_share,
                            static_cast<double>(mine.memory_bytes), static_cast<double>(mine.kind)};
  std::string bytes(sizeof numbers, '\0');
  std::memcpy(bytes.data(), numbers, sizeof numbers);
  cluster machines;
  for (const std::string& row : world.all_gather(std::string_view{bytes + mine.device})) {
    double values[std::size(numbers)];
    require(row.size() >= sizeof values, errc::mismatch, "a rank sent a device profile of another format");
    std::memcpy(values, row.data(), sizeof values);
    machines.ranks.push_back({.device = row.substr(sizeof values),
                              .kind = static_cast<device_kind>(values[4]),
                              .compute = {values[0], values[1], values[2]},
                              .memory_bytes = static_cast<std::size_t>(values[3])});
  }
  return machines;
}

/// The first rank's shares, for all: arithmetic that differs in a last bit between machines cannot split the job.
/// Collective, blocking.
template <class World>
[[nodiscard]] std::vector<std::size_t> agreed_shares(World& world, const std::vector<std::size_t>& mine) {
  std::vector<std::int64_t> cells(mine.begin(), mine.end());
  world.broadcast(tensor_view{std::span{cells}}, rank_id{0}, traffic_class::control);
  return {cells.begin(), cells.end()};
}

/// Samples that no action of a program would touch must not get lost without a word.
/// @throws error invalid_argument for samples on an idle rank, or more than reproducible mode has micro-batches for
inline void require_room_for(std::size_t samples, const program& actions, numerics mode) {
  if (samples == 0) return;
  std::size_t micro_batches = 0;
  for (const auto& a : actions) micro_batches += a.kind == action_kind::forward && a.first_layer == 0 ? 1 : 0;
  require(micro_batches > 0, errc::invalid_argument, [&] {
    return "this rank is idle under the plan and was given " + std::to_string(samples) +
           " samples; give it none, or rebind to a plan with a share for it";
  });
  require(mode == numerics::fast || samples <= micro_batches, errc::invalid_argument, [&] {
    return "reproducible mode computes one sample at a time, for the " + std::to_string(micro_batches) +
           " of this rank's share; it was given " + std::to_string(samples) + ", so rebind to a plan with a larger share";
  });
}

/// What a trainer knows of its machines, and the shares it used: measured before the run, followed during it, recorded for
/// checkpoints, or taken from a recording.
class shares_planner {
 public:
  shares_planner(const trainer_options& options, rebalancer policy)
      : replay_{options.replay}, policy_{policy}, follows_{options.rebalance && options.replay.empty()} {}

  [[nodiscard]] const cluster& machines() const noexcept { return machines_; }
  [[nodiscard]] const std::vector<share_record>& history() const noexcept { return history_; }

  /// Takes freshly measured profiles of all ranks.
  void adopt(cluster machines) {
    machines_ = std::move(machines);
    fitters_.clear();
    for (const auto& rank : machines_.ranks) fitters_.push_back(policy_.fitter(rank.compute));
    proposal_.clear();
  }

  /// Notes the shares in force from `step` on.
  void record(std::uint64_t step, std::vector<std::size_t> shares) {
    if (!history_.empty() && history_.back().shares == shares) return;
    if (!history_.empty() && history_.back().step == step) history_.pop_back();
    history_.push_back({step, std::move(shares)});
  }

  void restore(std::vector<share_record> history) { history_ = std::move(history); }

  /// The recorded shares for `step` when this run replays another; null when it measures.
  [[nodiscard]] const std::vector<std::size_t>* replayed(std::uint64_t step) const { return in_force(replay_, step); }

  /// The shares to begin with at `step`: replayed, or those a checkpoint left; null when the devices have to be measured.
  /// A checkpoint of another world size or global batch leaves none.
  [[nodiscard]] const std::vector<std::size_t>* starting_shares(std::uint64_t step, std::size_t ranks,
                                                                std::size_t global_batch) const {
    if (const auto* shares = replayed(step)) return shares;
    const auto* shares = in_force(history_, step);
    const bool fits = shares != nullptr && shares->size() == ranks &&
                      std::accumulate(shares->begin(), shares->end(), std::size_t{0}) == global_batch;
    return fits ? shares : nullptr;
  }

  /// Learns from one step, and on the first rank decides whether other shares are worth it. Whatever it decides travels
  /// with the next step's records, so that all ranks change at once.
  template <partitioner P>
  void observe(const std::vector<step_record>& records, const plan& current, rank_id me, const P& partition,
               const model_profile& model, const workload& work) {
    if (!follows_ || fitters_.size() != records.size()) return;
    bool changed = false;
    for (std::size_t r = 0; r < records.size(); ++r) {
      const auto& record = records[r];
      if (record.samples == 0) continue;
      changed = fitters_[r].observe(static_cast<std::size_t>(record.samples), record.compute_s) || changed;
      machines_.ranks[r].compute = fitters_[r].estimate();
    }
    if (!changed || index_of(me) != 0) return;
    if (auto next = policy_.propose(partition, current, model, machines_, work)) proposal_ = shares_of(*next);
  }

  /// The pending proposal, once.
  [[nodiscard]] std::vector<std::size_t> take_proposal() noexcept { return std::exchange(proposal_, {}); }

 private:
  static const std::vector<std::size_t>* in_force(const std::vector<share_record>& records, std::uint64_t step) {
    const std::vector<std::size_t>* shares = nullptr;
    for (const auto& record : records) {
      if (record.step <= step) shares = &record.shares;
    }
    return shares;
  }

  std::vector<share_record> replay_;
  rebalancer policy_;
  bool follows_;
  cluster machines_;
  std::vector<compute_model_fitter> fitters_;
  std::vector<share_record> history_;
  std::vector<std::size_t> proposal_;
};

}  // namespace hetero
