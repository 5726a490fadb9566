// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/partition/concepts.hpp>
#include <hetero/partition/largest_count.hpp>

namespace hetero {

/// Memory of a rank that holds everything of its layers: parameters with gradients and optimizer state, the activations
/// of one micro-batch, and two gradients of the largest activation that crosses a layer.
struct replicated_memory_model {
  /// Bytes for layers [first_layer, end_layer) and `samples` samples per micro-batch. Never falls with `samples`.
  [[nodiscard]] std::size_t bytes(const model_profile& model, const workload& work, std::size_t first_layer,
                                  std::size_t end_layer, std::size_t samples) const {
    std::size_t parameters = 0;
    std::size_t activations_bytes = 0;
    std::size_t widest_bytes = 0;
    for (std::size_t i = first_layer; i < std::min(end_layer, model.layers.size()); ++i) {
      parameters += model.layers[i].parameters;
      activations_bytes += model.layers[i].activation_bytes;
      widest_bytes = std::max(widest_bytes, model.layers[i].output_bytes);
    }
    return parameters * work.bytes_per_parameter + (activations_bytes + 2 * widest_bytes) * samples;
  }
  friend constexpr bool operator==(const replicated_memory_model&, const replicated_memory_model&) = default;
};

static_assert(memory_model<replicated_memory_model>);

/// How many samples of the global batch each rank can hold when its share is cut into `work.micro_batches`; a rank
/// without a limit can hold all of them, one that cannot even hold the model can hold none.
template <memory_model M>
[[nodiscard]] std::vector<std::size_t> sample_limits(const M& memory, const model_profile& model,
                                                     const cluster& machines, const workload& work) {
  std::vector<std::size_t> limits;
  for (const auto& rank : machines.ranks) {
    if (rank.memory_bytes == 0) {
      limits.push_back(work.global_batch);
      continue;
    }
    const auto fits = [&](std::size_t samples) {
      return memory.bytes(model, work, std::size_t{0}, model.layers.size(), samples) <= rank.memory_bytes;
    };
    const std::size_t most = (work.global_batch + work.micro_batches - 1) / work.micro_batches;
    const std::size_t per_micro_batch = fits(0) ? detail::largest_count(most, fits) : 0;
    limits.push_back(std::min(work.global_batch, per_micro_batch * work.micro_batches));
  }
  return limits;
}

}  // namespace hetero
