// SPDX-License-Identifier: Apache-2.0
// A whole model on one device, with storage of its own: the obvious loop over units that a trainer must agree with.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <hetero/core/weighted_sum.hpp>
#include <hetero/model/initialise.hpp>

#include "support/layer_runner.hpp"

namespace hetero::test {

/// Samples in host memory.
struct model_batch {
  std::vector<double> inputs;
  std::vector<std::int32_t> targets;
  std::vector<float> weights;
  std::vector<std::int64_t> sample_ids;
};

template <model M> class model_runner {
 public:
  model_runner(const M& m, any_device on, dtype type, std::size_t samples, std::uint64_t seed = 1, bool split = false)
      : model_{m}, device{std::move(on)}, stream_{device}, scratch_{device, stream_.id()}, split_{split}, type_{type} {
    shape current = m.input_shape(samples);
    bool ids = false;
    m.visit(0, [&](const auto& unit) { ids = unit.parameters()[0].name.find("embedding") != std::string::npos; });
    input_ = {device, stream_.id(), ids ? dtype::i32 : type, current};
    for (std::size_t i = 0; i < m.size(); ++i) {
      m.visit(i, [&](const auto& unit) {
        unit_state& u = units_.emplace_back();
        for (const auto& spec : unit.parameters()) {
          if (!params.contains(spec.name)) {
            specs.push_back(spec);
            params.emplace(spec.name, buffer{device, stream_.id(), type, spec.extents});
            grads.emplace(spec.name, buffer{device, stream_.id(), type, spec.extents});
            std::vector<double> values(spec.extents.count());
            initialise(spec, seed, tensor_view{std::span{values}});
            upload(device, stream_.id(), params.at(spec.name).view(), values);
          }
          u.params.push_back(params.at(spec.name).view());
          u.slots.push_back({grads.at(spec.name).view(), true});  // tied parameters add up, so all of them do
        }
        for (const auto& spec : unit.saved({current, type, split})) {
          u.buffers.emplace_back(device, stream_.id(), spec.type, spec.extents);
          u.kept.push_back(u.buffers.back().view());
        }
        current = unit.output_shape(current);
        u.output = {device, stream_.id(), type, current};
        u.grad_output = {device, stream_.id(), type, current};
      });
    }
    targets_ = {device, stream_.id(), dtype::i32, {current.count() / current.last()}};
    weights_ = {device, stream_.id(), dtype::f32, {samples}};
    result_ = {device, stream_.id(), dtype::f64, {2}};
  }

  /// Loss as a sum with its weight; with `gradients`, also the gradient of the sum in `grads`.
  weighted_sum run(const model_batch& batch, bool gradients, phase pass = phase::train) {
    upload(device, stream_.id(), input_.view(), batch.inputs);
    device.copy(targets_.view(), tensor_view{std::span{batch.targets}}, stream_.id());
    device.copy(weights_.view(), tensor_view{std::span{batch.weights}}, stream_.id());
    layer_context<> context{{.device = device,
                             .stream = stream_.id(),
                             .scratch = scratch_,
                             .pass = pass,
                             .split_backward = split_,
                             .seed = 5,
                             .step = 2,
                             .sample_ids = tensor_view{std::span{batch.sample_ids}}}};
    for (std::size_t i = 0; i < model_.size(); ++i) {
      context.needs_input_gradient = i > 0;
      model_.visit(i, [&](const auto& unit) {
        unit.forward(context, units_[i].params, input_of(i), units_[i].output.view(), state_of(i));
      });
    }
    context.launch(op::fill{.out = result_.view()});
    unit_state& last = units_.back();
    model_.loss().evaluate(context, last.output.view(), targets_.view(), weights_.view(), result_.view(),
                           gradients ? last.grad_output.view() : tensor_view{});
    if (gradients) backward(context);
    const auto sums = download(device, stream_.id(), result_.view());
    return {sums[0], sums[1]};
  }

  [[nodiscard]] std::vector<double> logits() { return download(device, stream_.id(), units_.back().output.view()); }
  [[nodiscard]] std::vector<double> read(const std::string& name) {
    return download(device, stream_.id(), params.at(name).view());
  }
  [[nodiscard]] std::vector<double> gradient(const std::string& name) {
    return download(device, stream_.id(), grads.at(name).view());
  }
  void write(const std::string& name, std::span<const double> values) {
    upload(device, stream_.id(), params.at(name).view(), values);
  }

  std::vector<parameter_spec> specs;  ///< each parameter once, in the order of the units
  std::map<std::string, buffer> params;
  std::map<std::string, buffer> grads;

 private:
  struct unit_state {
    std::vector<tensor_view> params;
    std::vector<gradient_slot> slots;
    std::vector<buffer> buffers;
    std::vector<tensor_view> kept;
    buffer output;
    buffer grad_output;
  };

  void backward(layer_context<>& context) {
    for (auto& [name, grad] : grads) context.launch(op::fill{.out = grad.view()});
    for (std::size_t i = model_.size(); i-- > 0;) {
      context.needs_input_gradient = i > 0;
      const tensor_view to = i > 0 ? units_[i - 1].grad_output.view() : tensor_view{};
      model_.visit(i, [&](const auto& unit) {
        unit_state& u = units_[i];
        if (split_) {
          unit.backward_input(context, u.params, u.grad_output.view(), to, state_of(i), u.slots);
        } else {
          hetero::backward(unit, context, u.params, u.grad_output.view(), to, state_of(i), u.slots);
        }
      });
    }
    if (!split_) return;
    for (std::size_t i = model_.size(); i-- > 0;) {
      model_.visit(i, [&](const auto& unit) {
        unit_state& u = units_[i];
        if (unit.splits_backward) unit.backward_weight(context, u.params, u.grad_output.view(), state_of(i), u.slots);
      });
    }
  }

  [[nodiscard]] tensor_view input_of(std::size_t i) const {
    return i > 0 ? units_[i - 1].output.view() : input_.view();
  }
  [[nodiscard]] saved_state state_of(std::size_t i) const {
    return {input_of(i), units_[i].output.view(), units_[i].kept};
  }

  const M& model_;

 public:
  any_device device;

 private:
  stream stream_;
  scratch_pool scratch_;
  bool split_;
  dtype type_;
  std::vector<unit_state> units_;
  buffer input_;
  buffer targets_;
  buffer weights_;
  buffer result_;
};

}  // namespace hetero::test
