// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <hetero/comm/reduce_op.hpp>
#include <hetero/comm/traffic.hpp>
#include <hetero/core/fixed_point.hpp>
#include <hetero/device/buffer.hpp>
#include <hetero/sync/concepts.hpp>

/// @file
/// Reproducible sums (law 2): leaves become integers on a scale that all ranks share, and integers add exactly.
namespace hetero {

namespace detail {
/// A NaN would get lost in a maximum; infinity survives it, so that every rank refuses the same sum.
inline double finite_or_infinity(double magnitude) noexcept {
  return std::isfinite(magnitude) ? magnitude : std::numeric_limits<double>::infinity();
}
}  // namespace detail

/// Sums per-sample gradients over all ranks into `tensors.grads` of every rank, bitwise the same for any split, order and
/// number of ranks. Collective. Message volume per rank: three all_reduces, of 8 bytes per parameter tensor, 8 bytes, and
/// 8 bytes per element.
/// @throws error invalid_argument when a gradient is not finite
template <class World>
void reduce_leaves(World& world, replica_tensors& tensors, const gradient_leaves& leaves) {
  const auto& layout = *tensors.layout;
  auto& device = tensors.device;
  const stream_id stream = tensors.stream;
  std::vector<const parameter_entry*> entries;
  for (const auto& entry : layout.entries) {
    if (entry.spec.trainable) entries.push_back(&entry);
  }

  buffer largest{device, stream, dtype::f64, {entries.size()}};
  device.launch(op::fill{largest.view(), 0}, stream);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    for (const auto& leaf : leaves.samples) {
      device.launch(op::max_abs{largest.view().slice(0, i, i + 1), leaf.slice(0, entries[i]->offset, entries[i]->end())},
                    stream);
    }
  }
  std::vector<double> magnitudes(entries.size());
  device.copy(tensor_view{std::span{magnitudes}}, largest.view(), stream);
  device.synchronize(stream);
  for (double& m : magnitudes) m = detail::finite_or_infinity(m);
  std::array<std::int64_t, 1> terms{static_cast<std::int64_t>(leaves.samples.size())};
  world.all_reduce(tensor_view{std::span{magnitudes}}, reduce_op::max, traffic_class::control);
  world.all_reduce(tensor_view{std::span{terms}}, reduce_op::sum, traffic_class::control);

  buffer integers{device, stream, dtype::i64, {layout.trainable_elements}};
  device.launch(op::fill{integers.view(), 0}, stream);
  std::vector<fixed_point> scales;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    scales.emplace_back(magnitudes[i], static_cast<std::uint64_t>(terms[0]));
    for (const auto& leaf : leaves.samples) {
      device.launch(op::fixed_point_accumulate{integers.view().slice(0, entries[i]->offset, entries[i]->end()),
                                               leaf.slice(0, entries[i]->offset, entries[i]->end()),
                                               scales.back().exponent()},
                    stream);
    }
  }
  device.synchronize(stream);
  world.all_reduce(integers.view(), reduce_op::sum, traffic_class::gradient);
  device.launch(op::fill{tensors.grads, 0}, stream);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    device.launch(op::fixed_point_decode{tensors.grads.slice(0, entries[i]->offset, entries[i]->end()),
                                         integers.view().slice(0, entries[i]->offset, entries[i]->end()),
                                         scales[i].exponent()},
                  stream);
  }
}

/// Sums {sum, weight} pairs over all ranks exactly, one pair per sample of this rank. Collective.
/// @throws error invalid_argument when a loss is not finite
template <class World>
[[nodiscard]] weighted_sum reduce_leaves(World& world, std::span<const weighted_sum> samples) {
  std::array<double, 2> magnitudes{0, 0};
  for (const auto& s : samples) {
    magnitudes[0] = std::max(magnitudes[0], detail::finite_or_infinity(std::abs(s.sum)));
    magnitudes[1] = std::max(magnitudes[1], detail::finite_or_infinity(std::abs(s.weight)));
  }
  std::array<std::int64_t, 1> terms{static_cast<std::int64_t>(samples.size())};
  world.all_reduce(tensor_view{std::span{magnitudes}}, reduce_op::max, traffic_class::control);
  world.all_reduce(tensor_view{std::span{terms}}, reduce_op::sum, traffic_class::control);
  const fixed_point sum_scale{magnitudes[0], static_cast<std::uint64_t>(terms[0])};
  const fixed_point weight_scale{magnitudes[1], static_cast<std::uint64_t>(terms[0])};
  std::array<std::int64_t, 2> sums{0, 0};
  for (const auto& s : samples) {
    sums[0] += sum_scale.encode(s.sum);
    sums[1] += weight_scale.encode(s.weight);
  }
  world.all_reduce(tensor_view{std::span{sums}}, reduce_op::sum, traffic_class::control);
  return {sum_scale.decode(sums[0]), weight_scale.decode(sums[1])};
}

}  // namespace hetero
