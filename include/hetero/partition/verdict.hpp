// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hetero/core/ids.hpp>
#include <hetero/partition/finish_time.hpp>
#include <hetero/partition/memory.hpp>

/// @file
/// Why a rank got no samples, as data: a user who rents machines wants to know which one to give back.
namespace hetero {

/// What a plan makes of a rank.
enum class rank_outcome : std::uint8_t {
  works,       ///< it has samples
  no_memory,   ///< it cannot hold the model and one sample per micro-batch
  no_speed,    ///< it cannot compute at all
  too_slow,    ///< one sample on it would take longer than the whole step of the others
  no_samples,  ///< there are more ranks than samples, or the splitter gave it none
};

[[nodiscard]] constexpr const char* to_string(rank_outcome outcome) noexcept {
  constexpr const char* names[] = {"works", "no_memory", "no_speed", "too_slow", "no_samples"};
  return names[static_cast<std::size_t>(outcome)];
}

/// One rank under a plan.
struct rank_verdict {
  rank_id rank{};
  rank_outcome outcome = rank_outcome::works;
  std::size_t share = 0;
  double finish_s = 0;  ///< predicted, with its share; for an idle rank with one sample
  std::string text{};   ///< one sentence to print; empty for a rank that works
  friend bool operator==(const rank_verdict&, const rank_verdict&) = default;

  /// True when the job would be no slower without this rank.
  [[nodiscard]] bool leave_out() const noexcept { return outcome != rank_outcome::works; }
};

/// The verdict on every rank of a plan with one stage per replica.
/// @throws error plan_does_not_fit when plan and cluster have different numbers of ranks
template <memory_model M>
[[nodiscard]] std::vector<rank_verdict> verdicts(const plan& p, const M& memory, const model_profile& model,
                                                 const cluster& machines, const workload& work) {
  const double step_s = predicted_step_s(p, machines);
  const std::vector<std::size_t> limits = sample_limits(memory, model, machines, work);
  std::vector<rank_verdict> all;
  for (std::size_t i = 0; i < machines.ranks.size(); ++i) {
    const rank_profile& rank = machines.ranks[i];
    rank_verdict v{.rank = rank_id{static_cast<std::uint32_t>(i)}};
    v.share = p.share_of(v.rank);
    v.finish_s = finish_s(rank.compute, machines.exchange, v.share > 0 ? v.share : 1);
    const std::string leave_out = "leave rank " + std::to_string(i) + " (" + rank.device + ") out: ";
    if (v.share > 0) {
      v.outcome = rank_outcome::works;
    } else if (limits[i] == 0 && work.global_batch > 0) {
      v.outcome = rank_outcome::no_memory;
      v.text = leave_out + "the model with one sample per micro-batch needs " +
               std::to_string(memory.bytes(model, work, std::size_t{0}, model.layers.size(), std::size_t{1})) +
               " bytes, it has " + std::to_string(rank.memory_bytes);
    } else if (std::isinf(v.finish_s)) {
      v.outcome = rank_outcome::no_speed;
      v.text = leave_out + "its measured speed is 0";
    } else if (v.finish_s > step_s) {
      v.outcome = rank_outcome::too_slow;
      v.text = leave_out + "one sample on it would take " + std::to_string(v.finish_s) +
               " s, the others finish the whole step in " + std::to_string(step_s) + " s";
    } else {
      v.outcome = rank_outcome::no_samples;
      v.text = leave_out + "no samples are left for it of a global batch of " + std::to_string(p.global_batch);
    }
    all.push_back(std::move(v));
  }
  return all;
}

}  // namespace hetero
