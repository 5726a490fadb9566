// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/model/concepts.hpp>

namespace hetero {

/// One parameter of a model and its place in the flat order that buckets, shards and checkpoints are cut from.
struct parameter_entry {
  parameter_spec spec;
  std::size_t offset = 0;       ///< first element in the flat order
  std::size_t first_layer = 0;  ///< first layer that lists it; its gradient is complete once that layer's backward is done

  [[nodiscard]] std::size_t count() const noexcept { return spec.extents.count(); }
  [[nodiscard]] std::size_t end() const noexcept { return offset + count(); }
};

/// All parameters of a model: trainable ones first in layer order, then state. Offsets are multiples of 16 elements, so
/// that every tensor starts on a cache line; the gaps hold zeros.
struct parameter_layout {
  std::vector<parameter_entry> entries{};
  std::vector<std::vector<std::uint32_t>> of_layer{};  ///< entry indices of each layer, in the order of its `parameters()`
  std::size_t trainable_elements = 0;                  ///< flat length of the trainable part, gaps included
  std::size_t elements = 0;                            ///< flat length of everything

  /// The entry of that name. @throws error invalid_argument when the model has none
  [[nodiscard]] const parameter_entry& at(const std::string& name) const {
    for (const auto& entry : entries) {
      if (entry.spec.name == name) return entry;
    }
    throw error{errc::invalid_argument, "the model has no parameter '" + name + "'"};
  }
};

/// Lays out the parameters of a model. Layers that list the same name share one entry.
/// @throws error invalid_shape when two layers give one name different shapes
template <model M>
[[nodiscard]] parameter_layout layout_of(const M& m) {
  parameter_layout layout;
  for (std::size_t i = 0; i < m.size(); ++i) {
    auto& indices = layout.of_layer.emplace_back();
    m.visit(i, [&](const auto& unit) {
      for (auto& spec : unit.parameters()) {
        std::uint32_t index = 0;
        while (index < layout.entries.size() && layout.entries[index].spec.name != spec.name) ++index;
        if (index == layout.entries.size()) {
          layout.entries.push_back({.spec = std::move(spec), .first_layer = i});
        } else {
          const auto& known = layout.entries[index].spec;
          require(known.extents == spec.extents, errc::invalid_shape, [&] {
            return "parameter '" + spec.name + "' is tied but has shape " + to_string(known.extents) + " in one layer and " +
                   to_string(spec.extents) + " in another";
          });
        }
        indices.push_back(index);
      }
    });
  }
  constexpr std::size_t alignment = 16;
  for (const bool trainable : {true, false}) {
    for (auto& entry : layout.entries) {
      if (entry.spec.trainable != trainable) continue;
      entry.offset = layout.elements;
      layout.elements += (entry.count() + alignment - 1) / alignment * alignment;
    }
    if (trainable) layout.trainable_elements = layout.elements;
  }
  return layout;
}

}  // namespace hetero
