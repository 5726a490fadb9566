// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/core/hash.hpp>
#include <hetero/core/ids.hpp>

/// @file
/// A plan: who does which part of the model and of the batch. Data only; it is predicted, simulated, executed, compared and stored.
namespace hetero {

/// What a rank is for under a plan. An idle rank takes part in collectives and computes nothing.
enum class rank_role : std::uint8_t { worker, server, idle };

[[nodiscard]] constexpr const char* to_string(rank_role role) noexcept {
  constexpr const char* names[] = {"worker", "server", "idle"};
  return names[static_cast<std::size_t>(role)];
}

/// A contiguous range of the elements of one parameter that a rank holds; a stage without boxes holds all of its parameters.
struct shard_box {
  std::string parameter;
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const shard_box&, const shard_box&) = default;
};

/// Layers [first_layer, end_layer) of one replica, and where they run.
struct stage_placement {
  std::size_t first_layer = 0;
  std::size_t end_layer = 0;
  rank_id rank{};
  std::uint16_t device = 0;  ///< index among the rank's devices
  std::uint16_t stream = 0;  ///< index among the device's streams
  std::vector<shard_box> shards{};
  friend bool operator==(const stage_placement&, const stage_placement&) = default;
};

/// One full copy of the model and its part of the batch.
struct replica_placement {
  std::size_t share = 0;            ///< samples of the global batch; 0 is legal
  std::uint32_t micro_batches = 1;  ///< per step; some may be empty
  std::vector<stage_placement> stages{};
  friend bool operator==(const replica_placement&, const replica_placement&) = default;
};

/// The whole assignment. Equal inputs give equal plans on every rank; ranks compare `hash` before they use one.
struct plan {
  static constexpr std::uint32_t current_version = 1;

  std::uint32_t version = current_version;  ///< of this format
  std::uint64_t epoch = 0;                  ///< counts re-planning during a run
  std::size_t num_layers = 0;
  std::size_t global_batch = 0;  ///< samples per step over all replicas
  std::vector<rank_role> roles{};
  std::vector<replica_placement> replicas{};
  friend bool operator==(const plan&, const plan&) = default;

  [[nodiscard]] std::uint32_t world_size() const noexcept { return static_cast<std::uint32_t>(roles.size()); }

  /// Samples of the step that come before those of `replica`.
  [[nodiscard]] std::size_t first_sample(replica_id replica) const noexcept {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < index_of(replica); ++i) sum += replicas[i].share;
    return sum;
  }

  /// Samples that `rank` sees as holder of a first stage.
  [[nodiscard]] std::size_t share_of(rank_id rank) const noexcept {
    std::size_t sum = 0;
    for (const auto& r : replicas) {
      if (!r.stages.empty() && r.stages.front().rank == rank) sum += r.share;
    }
    return sum;
  }
};

/// Samples [begin, end) of a replica's share that micro-batch `m` takes: as even as possible, larger ones first.
struct sample_range {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t count() const noexcept { return end - begin; }
  friend bool operator==(const sample_range&, const sample_range&) = default;
};

[[nodiscard]] constexpr sample_range micro_batch_range(std::size_t share, std::uint32_t micro_batches,
                                                       micro_batch_id m) noexcept {
  const std::size_t index = index_of(m);
  const std::size_t base = share / micro_batches;
  const std::size_t longer = share % micro_batches;
  const std::size_t begin = index * base + (index < longer ? index : longer);
  return {begin, begin + base + (index < longer ? 1 : 0)};
}

/// Checks that shares add up, stages cover all layers once and in order, and ranks exist.
/// @throws error plan_does_not_fit naming the broken rule
inline void validate(const plan& p) {
  const auto refuse = [](const std::string& text) { throw error{errc::plan_does_not_fit, text}; };
  if (p.version != plan::current_version) {
    refuse("plan format " + std::to_string(p.version) + " is not the format " +
           std::to_string(plan::current_version) + " this library reads");
  }
  std::size_t samples = 0;
  for (std::size_t i = 0; i < p.replicas.size(); ++i) {
    const auto& r = p.replicas[i];
    const std::string who = "replica " + std::to_string(i);
    samples += r.share;
    if (r.micro_batches == 0) refuse(who + " has no micro-batches; at least 1 is needed");
    std::size_t next = 0;
    for (const auto& s : r.stages) {
      if (s.first_layer != next || s.end_layer <= s.first_layer) {
        refuse(who + " has stage [" + std::to_string(s.first_layer) + ", " + std::to_string(s.end_layer) +
               ") where layer " + std::to_string(next) + " should start");
      }
      if (index_of(s.rank) >= p.world_size()) {
        refuse(who + " names rank " + std::to_string(index_of(s.rank)) + " of a world of " +
               std::to_string(p.world_size()));
      }
      next = s.end_layer;
    }
    if (next != p.num_layers) {
      refuse(who + " covers " + std::to_string(next) + " of " + std::to_string(p.num_layers) + " layers");
    }
  }
  if (samples != p.global_batch) {
    refuse("shares add up to " + std::to_string(samples) + " samples, the global batch is " +
           std::to_string(p.global_batch));
  }
}

/// A hash over everything in the plan; equal on all ranks or the run stops.
[[nodiscard]] inline std::uint64_t plan_hash(const plan& p) noexcept {
  stable_hash hash;
  hash.add(p.version).add(p.epoch).add(p.num_layers).add(p.global_batch);
  hash.add(p.roles.size()).add(p.replicas.size());  // counts keep two structures of equal numbers apart
  for (const auto role : p.roles) hash.add(static_cast<std::uint64_t>(role));
  for (const auto& r : p.replicas) {
    hash.add(r.share).add(r.micro_batches).add(r.stages.size());
    for (const auto& s : r.stages) {
      hash.add(s.first_layer).add(s.end_layer).add(index_of(s.rank)).add(s.device).add(s.stream).add(s.shards.size());
      for (const auto& box : s.shards) hash.add(box.parameter).add(box.begin).add(box.end);
    }
  }
  return hash.value();
}

}  // namespace hetero
