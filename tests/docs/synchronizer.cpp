// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <hetero/trainer.hpp>

namespace {

// [policy]
/// Replicas train alone on their shares and average their parameters every few steps (local SGD).
struct periodic_synchronizer {
  using policy_kind = hetero::synchronizer_policy;
  static constexpr bool exact = false;
  std::uint64_t every_steps = 4;

  // No gradient travels: no buckets, no reduce actions, no memory.
  std::size_t extra_bytes(const hetero::parameter_layout&, hetero::dtype) const { return 0; }
  std::vector<hetero::bucket> buckets(const hetero::parameter_layout&, hetero::dtype) const { return {}; }
  hetero::program insert(const hetero::program& actions, const hetero::parameter_layout&, hetero::dtype,
                         const hetero::plan&, hetero::rank_id) const {
    return actions;
  }

  template <class World>
  class session {
   public:
    session(World& world, hetero::replica_tensors tensors, std::uint64_t every_steps)
        : world_{world}, tensors_{std::move(tensors)}, every_steps_{every_steps} {}

    void before_forward(hetero::sync_step&) {}
    void bucket_ready(const hetero::bucket&, hetero::sync_step&) {}
    void before_update(hetero::sync_step& step) { weight_ += step.local.weight; }
    void after_update(hetero::sync_step& step) {
      if ((step.step + 1) % every_steps_ == 0) merge();
    }
    void drain() { merge(); }  // replicas are equal in a checkpoint, so there is no state to save
    std::vector<hetero::named_tensor> save() { return {}; }
    void restore() { weight_ = 0; }

   private:
    /// Weighted by what each replica has learned from: a sum, a weight, one division.
    void merge() {
      const double everyone = world_.all_reduce(weight_, hetero::reduce_op::sum);
      if (everyone == 0) return;
      tensors_.device.launch(hetero::op::scale{tensors_.params, weight_}, tensors_.stream);
      tensors_.device.synchronize(tensors_.stream);
      world_.all_reduce(tensors_.params, hetero::reduce_op::sum, hetero::traffic_class::parameter);
      tensors_.device.launch(hetero::op::scale{tensors_.params, 1 / everyone}, tensors_.stream);
      weight_ = 0;
    }

    World& world_;
    hetero::replica_tensors tensors_;
    std::uint64_t every_steps_;
    double weight_ = 0;
  };

  template <class World>
  session<World> start(World& world, hetero::replica_tensors tensors) const {
    return {world, std::move(tensors), every_steps};
  }
  friend constexpr bool operator==(const periodic_synchronizer&, const periodic_synchronizer&) = default;
};

static_assert(hetero::synchronizer<periodic_synchronizer, hetero::world>);
// [policy]

std::string some_text() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The quick brown fox jumps over the lazy dog, " + std::to_string(i) + " times.\n";
  return text;
}

/// Whether all ranks hold the same parameters.
template <class Trainer>
bool replicas_agree(Trainer& trainer, hetero::world& world) {
  double sum = 0;
  for (const float value : trainer.parameters().params().template elements<float>()) sum += static_cast<double>(value);
  return world.all_reduce(sum, hetero::reduce_op::max) == world.all_reduce(sum, hetero::reduce_op::min);
}

}  // namespace

int main() {
  const auto corpus = hetero::text_corpus::from_string(some_text());
  const auto batches = corpus.batches({.global_batch = 12});
  const hetero::gpt model{{.layers = 1, .heads = 2, .width = 32, .context = 16, .vocabulary = corpus.vocabulary()}};
  // [use]
  hetero::run_pool(hetero::parse_pool("cpu:1,cpu:1"), [&](hetero::pool_member& here) {
    hetero::trainer trainer{model, here.world, here.device,
                            periodic_synchronizer{.every_steps = 4},
                            hetero::ratio_partitioner{.ratio = {3, 1}},
                            hetero::trainer_options{.measure = false, .rebalance = false}};
    for (const auto& step : trainer.steps(batches, 8)) hetero::report(step);
    // [use]
    hetero::require(replicas_agree(trainer, here.world), hetero::errc::mismatch, "replicas differ after a merge");
    trainer.step(batches);
    hetero::require(!replicas_agree(trainer, here.world), hetero::errc::mismatch, "replicas are equal between merges");
    // [end]
  });
  // [end]
}
