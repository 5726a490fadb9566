// SPDX-License-Identifier: Apache-2.0
// Four published ways to merge replicas, each as small as it can be, and near misses that are broken in exactly one
// way: what the synchronizer concept must be able to carry.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/world.hpp>
#include <hetero/device/buffer.hpp>
#include <hetero/device/op/op.hpp>
#include <hetero/sync/all_reduce.hpp>
#include <hetero/sync/concepts.hpp>

namespace hetero::test {

/// What synchronizers that add no action to the program have in common.
struct hooks_only {
  using policy_kind = synchronizer_policy;
  static constexpr bool exact = false;
  [[nodiscard]] std::vector<bucket> buckets(const parameter_layout&, dtype) const { return {}; }
  [[nodiscard]] program insert(const program& actions, const parameter_layout&, dtype, const plan&, rank_id) const {
    return actions;
  }
};

/// Hooks that do nothing, and what sessions need to talk.
struct session_base {
  std::reference_wrapper<world> ranks;
  replica_tensors tensors;

  void before_forward(sync_step&) {}
  void bucket_ready(const bucket&, sync_step&) {}
  void before_update(sync_step&) {}
  void after_update(sync_step&) {}
  void drain() {}
  [[nodiscard]] std::vector<named_tensor> save() { return {}; }
  void restore() {}

 protected:
  [[nodiscard]] buffer copy_of(const tensor_view& view) {
    buffer b{tensors.device, tensors.stream, view.type(), view.extents()};
    tensors.device.copy(b.view(), view, tensors.stream);
    return b;
  }
  void run(const device_op& op) { tensors.device.launch(op, tensors.stream); }
  void synchronize() { tensors.device.synchronize(tensors.stream); }
  void sum(const tensor_view& view, traffic_class traffic) {
    synchronize();
    ranks.get().all_reduce(view, reduce_op::sum, traffic);
  }
};

/// Pipe-SGD: the gradient of step t is summed in the background and applied with step t + delay.
struct delayed_all_reduce : hooks_only {
  std::uint32_t delay = 1;

  [[nodiscard]] std::size_t extra_bytes(const parameter_layout& layout, dtype type) const {
    return (delay + 1) * layout.trainable_elements * size_of(type);
  }

  struct session : session_base {
    std::uint32_t delay;
    struct flight {
      buffer gradient;
      double weight = 0;
      pending sum;
    };
    std::deque<flight> flights;

    session(world& w, replica_tensors t, std::uint32_t d) : session_base{w, std::move(t)}, delay{d} {}

    void before_update(sync_step& step) {
      flights.push_back({copy_of(tensors.grads), ranks.get().all_reduce(step.local.weight, reduce_op::sum), {}});
      synchronize();
      flights.back().sum =
          ranks.get().all_reduce_async(flights.back().gradient.view(), reduce_op::sum, traffic_class::gradient);
      step.apply = flights.size() > delay;
      if (!step.apply) return;
      flights.front().sum.wait();
      tensors.device.copy(tensors.grads, flights.front().gradient.view(), tensors.stream);
      step.weight = flights.front().weight;
      flights.pop_front();
    }
    void drain() {
      for (auto& f : flights) f.sum.wait();
    }
    [[nodiscard]] std::vector<named_tensor> save() {
      std::vector<named_tensor> state;
      for (std::size_t i = 0; i < flights.size(); ++i) {
        state.push_back({"delayed." + std::to_string(i), flights[i].gradient.view()});
      }
      return state;
    }
  };
  [[nodiscard]] session start(world& w, replica_tensors t) const { return {w, std::move(t), delay}; }
};

/// Local SGD: replicas go their own way and average their parameters every `period` steps, each with the weight of what
/// it learned from since.
struct local_sgd : hooks_only {
  std::uint32_t period = 2;

  [[nodiscard]] std::size_t extra_bytes(const parameter_layout&, dtype) const { return 0; }

  struct session : session_base {
    std::uint32_t period;
    double weight = 0;

    void before_update(sync_step& step) { weight += step.local.weight; }
    void after_update(sync_step& step) {
      if ((step.step + 1) % period != 0) return;
      run(op::scale{tensors.params, weight});
      sum(tensors.params, traffic_class::parameter);
      run(op::scale{tensors.params, 1 / ranks.get().all_reduce(weight, reduce_op::sum)});
      weight = 0;
    }
  };
  [[nodiscard]] session start(world& w, replica_tensors t) const { return {{w, std::move(t)}, period}; }
};

/// Elastic averaging: each replica and a centre pull at each other; what one gives the other takes.
struct elastic_averaging : hooks_only {
  double elasticity = 0.25;

  [[nodiscard]] std::size_t extra_bytes(const parameter_layout& layout, dtype type) const {
    return 2 * layout.trainable_elements * size_of(type);
  }

  struct session : session_base {
    double elasticity;
    buffer centre;  ///< the same on every rank

    session(world& w, replica_tensors t, double e) : session_base{w, std::move(t)}, elasticity{e} {
      centre = copy_of(tensors.params);
    }
    void after_update(sync_step&) {
      const buffer pull = copy_of(tensors.params);
      run(op::accumulate{pull.view(), centre.view(), -1});
      run(op::scale{pull.view(), elasticity});
      run(op::accumulate{tensors.params, pull.view(), -1});
      sum(pull.view(), traffic_class::parameter);
      run(op::accumulate{centre.view(), pull.view(), 1});
    }
    [[nodiscard]] std::vector<named_tensor> save() { return {{"elastic.centre", centre.view()}}; }
  };
  [[nodiscard]] session start(world& w, replica_tensors t) const { return {w, std::move(t), elasticity}; }
};

/// HetPipe's waves in little: a server rank holds the parameters; workers push what they changed and pull what all did.
struct wave_server : hooks_only {
  rank_id server{0};

  [[nodiscard]] std::size_t extra_bytes(const parameter_layout& layout, dtype type) const {
    return layout.trainable_elements * size_of(type);
  }

  struct session : session_base {
    rank_id server;
    buffer known;  ///< workers: the parameters at the last pull; server: room for a push

    session(world& w, replica_tensors t, rank_id s) : session_base{w, std::move(t)}, server{s} {
      known = copy_of(tensors.params);
    }
    [[nodiscard]] bool serves() const { return ranks.get().rank() == server; }

    void before_update(sync_step& step) {
      if (serves()) step.apply = false;  // a server learns nothing itself
    }
    void after_update(sync_step&) {
      if (serves()) {
        serve();
        return;
      }
      run(op::scale{known.view(), -1});
      run(op::accumulate{known.view(), tensors.params, 1});
      synchronize();
      ranks.get().send(known.view(), server, traffic_class::gradient);
      ranks.get().recv(tensors.params, server, traffic_class::parameter);
      tensors.device.copy(known.view(), tensors.params, tensors.stream);
    }

   private:
    void serve() {
      world& w = ranks.get();
      for (const bool pushing : {true, false}) {
        for (std::uint32_t r = 0; r < w.world_size(); ++r) {
          if (rank_id{r} == server) continue;
          if (pushing) {
            w.recv(known.view(), rank_id{r}, traffic_class::gradient);
            run(op::accumulate{tensors.params, known.view(), 1});
            synchronize();
          } else {
            w.send(tensors.params, rank_id{r}, traffic_class::parameter);
          }
        }
      }
    }
  };
  [[nodiscard]] session start(world& w, replica_tensors t) const { return {w, std::move(t), server}; }
};

static_assert(synchronizer<delayed_all_reduce, world> && !delayed_all_reduce::exact);
static_assert(synchronizer<local_sgd, world> && !local_sgd::exact);
static_assert(synchronizer<elastic_averaging, world> && !elastic_averaging::exact);
static_assert(synchronizer<wave_server, world> && !wave_server::exact);
static_assert(!reproducible_session<local_sgd::session>, "only exact merges have a reproducible mode");
static_assert(reproducible_session<all_reduce_synchronizer::session<world>>);

// Near misses: whole, but for one thing.
struct quiet_session {
  void before_forward(sync_step&) {}
  void bucket_ready(const bucket&, sync_step&) {}
  void before_update(sync_step&) {}
  void after_update(sync_step&) {}
  void drain() {}
  [[nodiscard]] std::vector<named_tensor> save() { return {}; }
  void restore() {}
};
static_assert(synchronizer_session<quiet_session>, "the base of the near misses is whole");

template <class Session> struct quiet : hooks_only {
  [[nodiscard]] std::size_t extra_bytes(const parameter_layout&, dtype) const { return 0; }
  [[nodiscard]] Session start(world&, replica_tensors) const { return {}; }
};
static_assert(synchronizer<quiet<quiet_session>, world>, "the base of the near misses is whole");

struct session_that_cannot_drain : quiet_session {
  void drain() = delete;
};
struct session_that_answers_a_bucket : quiet_session {
  bool bucket_ready(const bucket&, sync_step&) { return true; }
};
struct session_that_only_looks : quiet_session {
  void before_update(const sync_step&) = delete;
  void before_update(sync_step&&) {}
};
struct session_without_names : quiet_session {
  [[nodiscard]] std::vector<tensor_view> save() { return {}; }
};
struct session_that_forgets : quiet_session {
  void restore() = delete;
};
static_assert(!synchronizer<quiet<session_that_cannot_drain>, world>, "what is outstanding must come to an end");
static_assert(!synchronizer<quiet<session_that_answers_a_bucket>, world>, "a hook answers through the step");
static_assert(!synchronizer<quiet<session_that_only_looks>, world>, "hooks may change weight and apply");
static_assert(!synchronizer<quiet<session_without_names>, world>, "state is keyed by name");
static_assert(!synchronizer<quiet<session_that_forgets>, world>, "state that was saved comes back");

struct synchronizer_of_another_kind : quiet<quiet_session> {
  using policy_kind = scheduler_policy;
};
struct synchronizer_that_hides_exactness : quiet<quiet_session> {
  void exact() const = delete;
};
struct synchronizer_that_changes_when_started : quiet<quiet_session> {
  quiet_session start(world&, replica_tensors) { return {}; }
};
struct synchronizer_that_inserts_in_place : quiet<quiet_session> {
  void insert(program&, const parameter_layout&, dtype, const plan&, rank_id) const {}
};
struct synchronizer_without_a_price : quiet<quiet_session> {
  void extra_bytes() const = delete;
};
static_assert(!synchronizer<synchronizer_of_another_kind, world>, "a policy says what kind it is");
static_assert(!synchronizer<synchronizer_that_hides_exactness, world>, "law 2 asks who is exact");
static_assert(!synchronizer<synchronizer_that_changes_when_started, world>, "policies are values; sessions hold state");
static_assert(!synchronizer<synchronizer_that_inserts_in_place, world>, "passes are pure");
static_assert(!synchronizer<synchronizer_without_a_price, world>, "plans count the memory of a synchronizer");

}  // namespace hetero::test
