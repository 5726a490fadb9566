// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include <hetero/comm/world.hpp>
#include <hetero/sync/concepts.hpp>
#include <hetero/sync/insert_reduce.hpp>
#include <hetero/sync/leaves.hpp>

namespace hetero {

/// Synchronous data parallelism: gradients and their weight are summed over all ranks before each update, bucket by
/// bucket while the backward pass goes on. Exact for any split of the batch, because sums travel and the division by the
/// global weight happens once, in the update.
struct all_reduce_synchronizer {
  using policy_kind = synchronizer_policy;
  static constexpr bool exact = true;

  std::size_t bucket_bytes = std::size_t{4} << 20U;  ///< of gradients merged in one operation
  bool overlap = true;                               ///< merge while the backward pass goes on
  /// `priority` lets the gradients of earlier layers overtake, chunk by chunk; needs `overlap` and costs a small message
  /// for each chunk. Chunks add the ranks' parts in another order than whole buckets, so the last bits may differ.
  queue_order order = queue_order::fifo;

  [[nodiscard]] std::size_t extra_bytes(const parameter_layout&, dtype) const noexcept { return 0; }

  [[nodiscard]] std::vector<bucket> buckets(const parameter_layout& layout, dtype type) const {
    return make_buckets(layout, type, overlap ? bucket_bytes : layout.trainable_elements * size_of(type));
  }

  /// Adds one reduce action per bucket, each as soon as its last gradient is there.
  [[nodiscard]] program insert(const program& actions, const parameter_layout& layout, dtype type, const plan&,
                               rank_id) const {
    return insert_reduce(actions, buckets(layout, type));
  }

  template <class World>
  class session {
   public:
    /// @throws error unsupported when the communicator knows no priorities; as it does
    session(World& world, replica_tensors tensors, bool overlap, queue_order order)
        : world_{world}, tensors_{std::move(tensors)}, overlap_{overlap} {
      if (order == queue_order::fifo || !overlap || world.world_size() == 1) return;
      if constexpr (priority_all_reducer<World>) {
        world_.set_queue_order(order);
      } else {
        throw error{errc::unsupported,
                    "this communicator runs asynchronous operations in the order of their start; use queue_order::fifo"};
      }
    }

    void before_forward(sync_step&) {}

    /// Starts the sum of one bucket. Message volume per rank: 2 (n - 1) / n of the bucket.
    void bucket_ready(const bucket& b, sync_step& step) {
      if (world_.world_size() == 1) return;
      tensors_.device.synchronize(tensors_.stream);  // the bytes leave through host memory
      const tensor_view part = tensors_.grads.slice(0, b.begin, b.end);
      if (overlap_) {
        pending_.push_back(start_sum(part, b, step));
      } else {
        world_.all_reduce(part, reduce_op::sum, traffic_class::gradient);
      }
    }

    /// Waits for all buckets. The weight was summed over all ranks with the step's metrics.
    void before_update(sync_step&) { drain(); }
    void after_update(sync_step&) {}

    void drain() {
      for (auto& operation : pending_) operation.wait();
      pending_.clear();
    }

    [[nodiscard]] std::vector<named_tensor> save() { return {}; }
    void restore() {}

    /// Sums per-sample gradients exactly, in any order, into the flat gradient of every rank.
    void reduce_leaves(const gradient_leaves& leaves) { hetero::reduce_leaves(world_, tensors_, leaves); }

   private:
    [[nodiscard]] auto start_sum(const tensor_view& part, const bucket& b, const sync_step& step) {
      if constexpr (priority_all_reducer<World>) {
        return world_.all_reduce_async(part, reduce_op::sum,
                                       task_options{.traffic = traffic_class::gradient,
                                                    .priority = -static_cast<int>(b.ready_layer),
                                                    .needed_by = step.step});
      } else {
        return world_.all_reduce_async(part, reduce_op::sum, traffic_class::gradient);
      }
    }

    World& world_;
    replica_tensors tensors_;
    bool overlap_;
    std::vector<decltype(std::declval<World&>().all_reduce_async(tensor_view{}, reduce_op::sum, traffic_class::gradient))>
        pending_;
  };

  /// Binds to a world; both must outlive the session.
  template <class World>
  [[nodiscard]] session<World> start(World& world, replica_tensors tensors) const {
    return {world, std::move(tensors), overlap, order};
  }

  friend constexpr bool operator==(const all_reduce_synchronizer&, const all_reduce_synchronizer&) = default;
};

static_assert(synchronizer<all_reduce_synchronizer, world>, "all_reduce_synchronizer models synchronizer");

}  // namespace hetero
