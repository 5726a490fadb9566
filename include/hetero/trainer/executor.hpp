// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <hetero/core/weighted_sum.hpp>
#include <hetero/data/batch.hpp>
#include <hetero/device/buffer.hpp>
#include <hetero/model/concepts.hpp>
#include <hetero/plan/action.hpp>
#include <hetero/plan/bucket.hpp>
#include <hetero/plan/plan.hpp>
#include <hetero/trainer/activations.hpp>
#include <hetero/trainer/parameter_store.hpp>

namespace hetero {

/// What a program does that is not computation: the trainer answers these from its policies.
template <class H>
concept executor_hooks = requires(H& hooks, const action& a) {
  { hooks.reduce(a) } -> std::same_as<void>;
  { hooks.step(a) } -> std::same_as<void>;
};

/// Runs a rank's program: the one place where actions become work. Computes on one device and stream, one replica.
template <model Model, class Groups = no_groups>
class executor {
 public:
  struct options {
    std::uint64_t seed = 0;
    bool input_gradient = false;  ///< also keep the gradient with respect to the batch
    bool leaves = false;          ///< reproducible mode: each micro-batch is one sample and keeps its own gradient
    bool frozen = false;          ///< no gradients of weights
  };

  /// Everything referenced must outlive the executor.
  executor(const Model& m, parameter_store& store, any_device device, stream_id stream, Groups* groups, options chosen)
      : model_{m},
        store_{store},
        device_{std::move(device)},
        stream_{stream},
        scratch_{device_, stream_},
        groups_{groups},
        options_{chosen} {}

  /// Runs one step of `actions` on `local`, which holds this rank's samples in order. Blocks only where hooks do.
  /// @throws error unsupported for an action that needs a pass or policy this program was built without
  template <executor_hooks Hooks>
  void run(const program& actions, const plan& p, const batch_view& local, std::uint64_t step, Hooks& hooks) {
    begin_step(actions, local, step);
    for (const auto& a : actions) {
      switch (a.kind) {
        case action_kind::forward:
          if (auto* set = activations(a, p, local)) forward(*set, a.first_layer, a.end_layer, phase::train);
          break;
        case action_kind::backward_input:
          if (auto* set = activations(a, p, local)) backward(*set, a);
          break;
        case action_kind::backward_weight:
          if (auto* set = activations(a, p, local)) backward_weight(*set, a);
          break;
        case action_kind::reduce: hooks.reduce(a); break;
        case action_kind::step: hooks.step(a); break;
        default:
          throw error{errc::unsupported,
                      "this program holds '" + to_string(a) + "', which needs a pass this trainer was built without; "
                      "a plan with one stage per replica and replicated parameters runs here"};
      }
    }
  }

  /// Forward and backward pass over `local` for their time alone: state stays as it is, gradients and losses are
  /// overwritten by the next step.
  void rehearse(const batch_view& local) {
    begin_step({}, local, 0);
    if (local.empty()) return;
    const action whole{.kind = action_kind::backward_input, .first_layer = 0, .end_layer = model_.size()};
    const std::size_t at_once = options_.leaves ? 1 : local.size();
    for (std::size_t i = 0; i < local.size(); i += at_once) {
      activation_set& set = bind(0, local.slice(i, i + at_once));
      forward(set, 0, model_.size(), phase::recompute);
      backward(set, whole);
    }
    device_.synchronize(stream_);
  }

  /// Forward pass over `local` in phase eval, without a loss. The prediction lives until the next call. `local` may
  /// have no targets.
  [[nodiscard]] tensor_view predict(const batch_view& local) {
    uploads_.clear();
    activation_set& set = bind(0, local);
    forward(set, 0, model_.size(), phase::eval);
    return set.layer(model_.size() - 1).output;
  }

  /// Forward pass in phase eval; `score(context, prediction, targets, weights, result)` adds to `losses()`. Blocks, so that
  /// `local` may be used again.
  template <class Score>
  void evaluate(const batch_view& local, Score&& score) {
    if (local.empty()) return;
    const tensor_view prediction = predict(local);
    activation_set& set = sets_[0];
    auto c = context(set, phase::eval);
    score(c, prediction, set.targets, set.weights, result_.view().slice(0, 0, 2));
    device_.synchronize(stream_);
  }

  /// {loss sum, weight} of this rank since the step began: one entry, or one per sample in reproducible mode. Blocks.
  [[nodiscard]] std::vector<weighted_sum> losses() {
    std::vector<double> values(result_.view().count());
    device_.copy(tensor_view{std::span{values}}, result_.view(), stream_);
    device_.synchronize(stream_);
    std::vector<weighted_sum> sums(values.size() / 2);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = {values[2 * i], values[2 * i + 1]};
    return sums;
  }

  /// Makes room for and clears the loss sums of `micro_batches` micro-batches.
  void clear_losses(std::size_t micro_batches) {
    const std::size_t pairs = options_.leaves ? std::max<std::size_t>(micro_batches, 1) : 1;
    if (!result_.view() || result_.view().count() != 2 * pairs) result_ = buffer{device_, stream_, dtype::f64, {2 * pairs}};
    device_.launch(op::fill{result_.view(), 0}, stream_);
  }

  /// Per-sample gradients of this step (reproducible mode).
  [[nodiscard]] std::vector<tensor_view> leaves() const {
    std::vector<tensor_view> views;
    for (std::size_t i = 0; i < used_leaves_; ++i) views.push_back(leaves_[i].view());
    return views;
  }

  /// Gradient with respect to the batch's input of micro-batch `m` (needs `options.input_gradient`).
  [[nodiscard]] tensor_view input_gradient(micro_batch_id m) const {
    const auto found = input_gradients_.find(index_of(m));
    return found == input_gradients_.end() ? tensor_view{} : found->second.view();
  }

  /// Zeroes gradients in elements [begin, end) that no layer wrote in this step, so that an idle rank adds nothing.
  void clear_untouched(std::size_t begin, std::size_t end) {
    for (std::size_t i = 0; i < store_.layout().entries.size(); ++i) {
      const auto& entry = store_.layout().entries[i];
      if (!entry.spec.trainable || touched_[i] || entry.offset < begin || entry.offset >= end) continue;
      device_.launch(op::fill{parameter_store::grad(store_.grads(), entry), 0}, stream_);
      touched_[i] = true;
    }
  }

 private:
  using context_type = layer_context<Groups>;

  void begin_step(const program& actions, const batch_view& local, std::uint64_t step) {
    step_ = step;
    touched_.assign(store_.layout().entries.size(), false);
    split_ = std::any_of(actions.begin(), actions.end(), [](const action& a) { return a.split; });
    clear_losses(local.size());
    in_flight_.clear();
    uploads_.clear();
    used_leaves_ = 0;
  }

  /// The activations of the action's micro-batch, made on its first forward; null for an empty micro-batch.
  activation_set* activations(const action& a, const plan& p, const batch_view& local) {
    const auto& replica = p.replicas[index_of(a.replica)];
    const sample_range range = micro_batch_range(local.size(), replica.micro_batches, a.micro_batch);
    if (range.count() == 0) return nullptr;
    const auto m = index_of(a.micro_batch);
    if (const auto found = in_flight_.find(m); found != in_flight_.end()) return &sets_[found->second];
    require(a.kind == action_kind::forward, errc::invalid_argument,
            [&] { return "'" + to_string(a) + "' comes before its forward"; });
    std::size_t slot = 0;
    while (std::any_of(in_flight_.begin(), in_flight_.end(), [&](const auto& held) { return held.second == slot; })) ++slot;
    in_flight_[m] = slot;
    return &bind(slot, local.slice(range.begin, range.end));
  }

  activation_set& bind(std::size_t slot, const batch_view& samples) {
    while (sets_.size() <= slot) sets_.emplace_back();
    activation_set& set = sets_[slot];
    set.prepare(model_, samples.inputs.extents(), store_.type(), split_, device_, stream_);
    set.grad = {};
    set.input = on_device(samples.inputs);
    set.targets = on_device(samples.targets);
    set.weights = on_device(tensor_view{samples.weights});
    set.sample_ids = {const_cast<std::uint64_t*>(samples.sample_ids.data()), dtype::i64, {samples.size()}};
    return set;
  }

  /// Batches live in host memory, which a CPU reads in place. Any other device gets a copy.
  tensor_view on_device(const tensor_view& host) {
    if (device_.id().kind == device_kind::cpu || host.count() == 0) return host;
    uploads_.emplace_back(device_, stream_, host.type(), host.extents());
    device_.copy(uploads_.back().view(), host, stream_);
    return uploads_.back().view();
  }

  context_type context(const activation_set& set, phase pass) {
    context_type c{{.device = device_, .stream = stream_, .scratch = scratch_}};
    c.pass = pass;
    c.split_backward = split_;
    c.seed = options_.seed;
    c.step = step_;
    c.sample_ids = set.sample_ids;
    c.groups = groups_;
    return c;
  }

  saved_state saved(const activation_set& set, std::size_t layer) const {
    return {.input = layer == 0 ? set.input : set.layer(layer - 1).output,
            .output = set.layer(layer).output,
            .kept = set.layer(layer).kept};
  }

  void forward(activation_set& set, std::size_t first, std::size_t end, phase pass) {
    auto c = context(set, pass);
    for (std::size_t l = first; l < end; ++l) {
      const saved_state state = saved(set, l);
      model_.visit(l, [&](const auto& unit) { unit.forward(c, store_.of_layer(l), state.input, state.output, state); });
    }
  }

  /// The loss turns the prediction into its own gradient, in place: predictions are the largest tensor of many models.
  void start_backward(activation_set& set, micro_batch_id m) {
    auto c = context(set, phase::train);
    const tensor_view prediction = set.layer(model_.size() - 1).output;
    const std::size_t pair = options_.leaves ? index_of(m) : 0;
    model_.loss().evaluate(c, prediction, set.targets, set.weights, result_.view().slice(0, 2 * pair, 2 * pair + 2),
                           prediction);
    set.grad = prediction;
  }

  void backward(activation_set& set, const action& a) {
    if (a.end_layer == model_.size() && !set.grad) start_backward(set, a.micro_batch);
    auto c = context(set, phase::train);
    for (std::size_t l = a.end_layer; l-- > a.first_layer;) {
      const saved_state state = saved(set, l);
      tensor_view grad_input;
      c.needs_input_gradient = l > 0 || (options_.input_gradient && is_floating(set.input.type()));
      if (l > 0) {
        grad_input = split_ ? set.grad_output(l - 1) : set.other_grad(state.input.extents());
      } else if (c.needs_input_gradient) {
        grad_input = keep_input_gradient(a.micro_batch, set.input.extents());
      }
      const auto slots = gradient_slots(l, a.micro_batch);
      model_.visit(l, [&](const auto& unit) {
        if (a.split) {
          unit.backward_input(c, store_.of_layer(l), set.grad, grad_input, state, slots);
        } else {
          hetero::backward(unit, c, store_.of_layer(l), set.grad, grad_input, state, slots);
        }
      });
      if (!a.split || !splits(l)) touch(l);
      set.grad = grad_input;
    }
    if (a.first_layer == 0 && !a.split) in_flight_.erase(index_of(a.micro_batch));
  }

  void backward_weight(activation_set& set, const action& a) {
    auto c = context(set, phase::train);
    for (std::size_t l = a.end_layer; l-- > a.first_layer;) {
      const auto slots = gradient_slots(l, a.micro_batch);
      model_.visit(l, [&](const auto& unit) {
        if constexpr (std::remove_cvref_t<decltype(unit)>::splits_backward) {
          unit.backward_weight(c, store_.of_layer(l), set.grad_output(l), saved(set, l), slots);
        }
      });
      touch(l);
    }
    if (a.first_layer == 0) in_flight_.erase(index_of(a.micro_batch));
  }

  tensor_view keep_input_gradient(micro_batch_id m, const shape& extents) {
    auto& kept = input_gradients_[index_of(m)];
    if (!kept.view() || kept.view().extents() != extents) kept = buffer{device_, stream_, store_.type(), extents};
    return kept.view();
  }

  /// Slots of one layer; the first layer to write a gradient in a step overwrites it, so nothing is cleared beforehand.
  std::vector<gradient_slot> gradient_slots(std::size_t layer, micro_batch_id m) {
    tensor_view flat = store_.grads();
    if (options_.leaves) flat = leaf(m);
    std::vector<gradient_slot> slots;
    for (const auto index : store_.layout().of_layer[layer]) {
      const auto& entry = store_.layout().entries[index];
      const bool wanted = entry.spec.trainable && !options_.frozen;
      slots.push_back(wanted ? gradient_slot{parameter_store::grad(flat, entry), options_.leaves || touched_[index]}
                                           : gradient_slot{});
    }
    return slots;
  }

  bool splits(std::size_t layer) const {
    bool result = true;
    model_.visit(layer, [&](const auto& unit) { result = unit.splits_backward; });
    return result;
  }

  void touch(std::size_t layer) {
    for (const auto index : store_.layout().of_layer[layer]) touched_[index] = true;
  }

  tensor_view leaf(micro_batch_id m) {
    while (leaves_.size() <= index_of(m)) leaves_.emplace_back(device_, stream_, store_.type(), store_.grads().extents());
    if (index_of(m) >= used_leaves_) {
      for (std::size_t i = used_leaves_; i <= index_of(m); ++i) device_.launch(op::fill{leaves_[i].view(), 0}, stream_);
      used_leaves_ = index_of(m) + 1;
    }
    return leaves_[index_of(m)].view();
  }

  const Model& model_;
  parameter_store& store_;
  any_device device_;
  stream_id stream_;
  scratch_pool scratch_;
  Groups* groups_;
  options options_;
  std::uint64_t step_ = 0;
  bool split_ = false;
  std::vector<bool> touched_;
  std::deque<activation_set> sets_;  // a deque, because a micro-batch in flight is referred to
  std::map<std::uint32_t, std::size_t> in_flight_;  // micro-batch -> index of its activation set
  std::vector<buffer> leaves_;
  std::size_t used_leaves_ = 0;
  std::map<std::uint32_t, buffer> input_gradients_;
  std::vector<buffer> uploads_;
  buffer result_;
};

}  // namespace hetero
