// SPDX-License-Identifier: Apache-2.0
// What a synchronizer must not do, as a control: every rank divides by its own weight, then the means are averaged.
#pragma once

#include <utility>
#include <vector>

#include <hetero/comm/world.hpp>
#include <hetero/device/op/op.hpp>
#include <hetero/sync/concepts.hpp>

namespace hetero::test {

struct mean_of_means_synchronizer {
  using policy_kind = synchronizer_policy;
  static constexpr bool exact = true;  // it claims so; the test shows that it lies

  [[nodiscard]] std::size_t extra_bytes(const parameter_layout&, dtype) const { return 0; }
  [[nodiscard]] std::vector<bucket> buckets(const parameter_layout&, dtype) const { return {}; }
  [[nodiscard]] program insert(const program& actions, const parameter_layout&, dtype, const plan&, rank_id) const {
    return actions;
  }

  struct session {
    world& ranks;
    replica_tensors tensors;
    void before_forward(sync_step&) {}
    void bucket_ready(const bucket&, sync_step&) {}
    void before_update(sync_step& step) {
      if (step.local.weight > 0) {
        tensors.device.launch(op::scale{.values = tensors.grads, .factor = 1 / step.local.weight}, tensors.stream);
      }
      tensors.device.synchronize(tensors.stream);
      ranks.all_reduce(tensors.grads, reduce_op::sum, traffic_class::gradient);
      step.weight = ranks.world_size();
    }
    void after_update(sync_step&) {}
    void drain() {}
    [[nodiscard]] std::vector<named_tensor> save() { return {}; }
    void restore() {}
  };
  [[nodiscard]] session start(world& w, replica_tensors tensors) const { return {w, std::move(tensors)}; }
};
static_assert(synchronizer<mean_of_means_synchronizer, world>);

}  // namespace hetero::test
