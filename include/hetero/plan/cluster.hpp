// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hetero/core/ids.hpp>

/// @file
/// What a partitioner is told about the machines and the work: measured numbers, no handles.
namespace hetero {

/// Step time of a rank as a line in its samples b: seconds = fixed_s + per_sample_s * b. Of the variable part,
/// `backward_share` is backward time, so that overlap with communication can be modelled (Cannikin, H3).
struct compute_model {
  double fixed_s = 0;
  double per_sample_s = 0;
  double backward_share = 2.0 / 3.0;
  friend bool operator==(const compute_model&, const compute_model&) = default;
};

/// One rank of the cluster.
struct rank_profile {
  std::string device;             ///< "cpu:1@0.33 (emulated)"
  device_kind kind = device_kind::cpu;
  compute_model compute{};
  std::size_t memory_bytes = 0;   ///< 0: not limited
  friend bool operator==(const rank_profile&, const rank_profile&) = default;
};

/// Gradient exchange of one step: the part that can overlap with backward, the part that cannot, and the fraction of backward
/// after which the first bucket is ready.
struct communication_model {
  double overlapped_s = 0;
  double exposed_s = 0;
  double first_bucket_at = 0;  ///< in [0, 1]
  friend bool operator==(const communication_model&, const communication_model&) = default;
};

/// All ranks, in rank order, and what a gradient exchange among them costs.
struct cluster {
  std::vector<rank_profile> ranks{};
  communication_model exchange{};
  friend bool operator==(const cluster&, const cluster&) = default;
};

/// What is to be computed in one step.
struct workload {
  std::size_t global_batch = 0;
  std::uint32_t micro_batches = 1;
  std::size_t bytes_per_parameter = 16;  ///< parameter, gradient and optimizer state
  friend bool operator==(const workload&, const workload&) = default;
};

}  // namespace hetero
