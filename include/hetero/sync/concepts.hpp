// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hetero/core/named_tensor.hpp>
#include <hetero/core/weighted_sum.hpp>
#include <hetero/device/any_device.hpp>
#include <hetero/plan/action.hpp>
#include <hetero/plan/bucket.hpp>
#include <hetero/plan/parameter_layout.hpp>
#include <hetero/plan/plan.hpp>
#include <hetero/plan/policy.hpp>

namespace hetero {

/// What a synchronizer may read and write: the flat trainable parameters and gradients of this rank's replica.
struct replica_tensors {
  any_device device;
  stream_id stream;
  const parameter_layout* layout = nullptr;
  tensor_view params;  ///< [trainable_elements]
  tensor_view grads;   ///< [trainable_elements], gradients of the sum of losses
};

/// One optimizer step as its hooks see it. A hook may change `weight` (what the gradient will be divided by) and `apply`.
struct sync_step {
  std::uint64_t step = 0;
  weighted_sum local{};  ///< this rank's loss sum and weight
  double weight = 0;     ///< before_update sets it: the weight behind the gradient that is about to be applied
  bool apply = true;     ///< before_update clears it when there is nothing to apply yet
};

/// The per-sample gradients of reproducible mode: one flat gradient per sample of this rank.
struct gradient_leaves {
  std::span<const tensor_view> samples{};
};

/// The running half of a synchronizer: bound to one world and one replica, it owns buffers and outstanding operations.
/// Hooks are called by the executor on the trainer's thread, on every rank, in this order in each step:
/// before_forward, bucket_ready (once per reduce action), before_update, after_update. `drain` ends what is outstanding
/// (end of training, before a checkpoint or a rebind); `save` lists state, `restore` is told it was refilled.
template <class S>
concept synchronizer_session = requires(S& s, sync_step& step, const bucket& b) {
  { s.before_forward(step) } -> std::same_as<void>;
  { s.bucket_ready(b, step) } -> std::same_as<void>;
  { s.before_update(step) } -> std::same_as<void>;
  { s.after_update(step) } -> std::same_as<void>;
  { s.drain() } -> std::same_as<void>;
  { s.save() } -> std::same_as<std::vector<named_tensor>>;
  { s.restore() } -> std::same_as<void>;
};

/// When and how replicas merge: a plain value that inserts its actions into a program and starts a session on a world.
///
/// `exact` promises law 2: the update equals the one a single device would have made. `extra_bytes` is what a session
/// allocates beside parameters and gradients.
template <class S, class World>
concept synchronizer =
    std::same_as<typename S::policy_kind, synchronizer_policy> &&
    requires(const S& s, const program& actions, const parameter_layout& layout, const plan& p, rank_id rank, dtype type,
             World& world, replica_tensors tensors) {
      { S::exact } -> std::convertible_to<bool>;
      { s.extra_bytes(layout, type) } -> std::same_as<std::size_t>;
      { s.insert(actions, layout, type, p, rank) } -> std::same_as<program>;
      { s.buckets(layout, type) } -> std::same_as<std::vector<bucket>>;
      { s.start(world, tensors) } -> synchronizer_session;
    };

/// A session that can also merge per-sample leaves exactly, whatever their split and order (reproducible mode).
template <class S>
concept reproducible_session = synchronizer_session<S> && requires(S& s, const gradient_leaves& leaves) {
  { s.reduce_leaves(leaves) } -> std::same_as<void>;
};

}  // namespace hetero
