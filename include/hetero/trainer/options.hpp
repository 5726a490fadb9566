// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <hetero/core/dtype.hpp>

namespace hetero {

/// How sums are formed (law 2).
enum class numerics : std::uint8_t {
  fast,          ///< batched kernels, floating-point sums: within 1e-5 of a single device
  reproducible,  ///< one sample per kernel call, integer sums: the same bits for any split, transport and number of ranks
};

/// The shares of all ranks from one step on, as a run recorded them.
struct share_record {
  std::uint64_t step = 0;
  std::vector<std::size_t> shares{};
  friend bool operator==(const share_record&, const share_record&) = default;
};

/// What a trainer takes beside its policies. All but the last two are equal on all ranks: they compare at construction.
struct trainer_options {
  std::uint64_t seed = 1337;  ///< of initial parameters and dropout
  numerics mode = numerics::fast;
  dtype type = dtype::f32;  ///< of parameters, gradients and activations: f32 or f64
  bool measure = true;                       ///< time the devices before the first step; otherwise their declared speed counts
  bool rebalance = true;                     ///< measure on, and move shares when a device's speed drifts
  std::vector<share_record> replay{};        ///< follow these shares instead of measuring, for bitwise repeats of a run
  double declared_speed = 1;                 ///< of one thread of this rank's device, in any unit that all ranks share
  std::string device_name{};                 ///< what reports call this rank's device; empty: its id
};

/// The part that must be equal on all ranks, as ranks compare and print it.
[[nodiscard]] inline std::string describe(const trainer_options& o) {
  return "seed " + std::to_string(o.seed) + ", " + (o.mode == numerics::fast ? "fast" : "reproducible") + " numerics, " +
         to_string(o.type) + ", measure " + (o.measure ? "on" : "off") + ", rebalance " + (o.rebalance ? "on" : "off") +
         ", " + std::to_string(o.replay.size()) + " replayed shares";
}

}  // namespace hetero
