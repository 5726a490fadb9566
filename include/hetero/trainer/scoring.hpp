// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <hetero/core/weighted_sum.hpp>
#include <hetero/data/concepts.hpp>
#include <hetero/device/buffer.hpp>
#include <hetero/device/stream.hpp>
#include <hetero/plan/plan.hpp>

namespace hetero {

/// Runs samples `mine` of a data set through a model in phase eval, `at_once` samples per call, and returns what
/// `add(context, prediction, targets, weights, result)` summed up. Local.
template <class Executor, dataset Dataset, class Add>
[[nodiscard]] weighted_sum score_samples(Executor& work, const Dataset& data, sample_range mine, std::size_t at_once,
                                         Add&& add) {
  work.clear_losses(1);
  batch chunk;
  std::vector<std::uint64_t> ids;
  for (std::size_t begin = mine.begin; begin < mine.end; begin += at_once) {
    ids.resize(std::min(at_once, mine.end - begin));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = begin + i;
    data.load(ids, chunk);
    work.evaluate(chunk.view(), add);
  }
  return work.losses().front();
}

/// A tensor's elements as floats in host memory. Local; blocks.
[[nodiscard]] inline std::vector<float> download(stream& from, tensor_view values) {
  buffer narrow;
  if (values.type() != dtype::f32) {
    narrow = buffer{from.device(), from.id(), dtype::f32, values.extents()};
    from.launch(op::convert{narrow.view(), values});
    values = narrow.view();
  }
  std::vector<float> host(values.count());
  from.copy(tensor_view{std::span{host}}, values.reshape({values.count()}));
  from.synchronize();
  return host;
}

}  // namespace hetero
