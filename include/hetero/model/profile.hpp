// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <hetero/core/hash.hpp>
#include <hetero/model/concepts.hpp>

namespace hetero {

/// Cost of one unit of a model. Bytes of activations, FLOPs and seconds are for one sample; measured seconds are 0 until measured.
struct layer_profile {
  std::string name;
  std::size_t parameters = 0;        ///< elements held by this unit, tied ones counted where they appear first
  std::size_t activation_bytes = 0;  ///< output and kept tensors
  std::size_t output_bytes = 0;      ///< what crosses a cut after this unit
  double forward_flops = 0;
  double forward_s = 0;
  double backward_s = 0;
  bool splits_backward = true;
  std::vector<layer_communication> communication{};
};

/// Costs of all units in order.
struct model_profile {
  std::string model;
  std::vector<layer_profile> layers{};

  [[nodiscard]] std::size_t parameters() const noexcept {
    std::size_t sum = 0;
    for (const auto& l : layers) sum += l.parameters;
    return sum;
  }
  [[nodiscard]] double forward_flops() const noexcept {
    double sum = 0;
    for (const auto& l : layers) sum += l.forward_flops;
    return sum;
  }
};

/// The static part of a profile: everything but seconds.
template <model M>
[[nodiscard]] model_profile profile_of(const M& m, dtype activations = dtype::f32) {
  model_profile profile{.model = m.name()};
  std::vector<std::string> seen;
  shape current = m.input_shape(1);
  for (std::size_t i = 0; i < m.size(); ++i) {
    m.visit(i, [&](const auto& unit) {
      layer_profile cost{.name = m.unit_name(i)};
      for (const auto& spec : unit.parameters()) {
        bool first = true;
        for (const auto& name : seen) first = first && name != spec.name;
        if (first) {
          cost.parameters += spec.extents.count();
          seen.push_back(spec.name);
        }
      }
      for (const auto& kept : unit.saved({.input = current, .type = activations})) {
        cost.activation_bytes += kept.extents.count() * size_of(kept.type);
      }
      cost.forward_flops = unit.forward_flops(current);
      cost.splits_backward = unit.splits_backward;
      cost.communication = communication_of(unit, current);
      current = unit.output_shape(current);
      cost.output_bytes = current.count() * size_of(activations);
      cost.activation_bytes += cost.output_bytes;
      profile.layers.push_back(std::move(cost));
    });
  }
  return profile;
}

/// A hash of names, shapes and order of everything the model stores; ranks compare it when a trainer is built.
template <model M>
[[nodiscard]] std::uint64_t model_hash(const M& m) {
  stable_hash hash;
  hash.add(m.name()).add(m.size());
  for (std::size_t i = 0; i < m.size(); ++i) {
    m.visit(i, [&](const auto& unit) {
      for (const auto& spec : unit.parameters()) {
        hash.add(spec.name);
        for (const std::size_t extent : spec.extents) hash.add(extent);
      }
    });
  }
  return hash.value();
}

}  // namespace hetero
