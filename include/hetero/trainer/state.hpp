// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hetero/checkpoint/safetensors.hpp>
#include <hetero/comm/world.hpp>
#include <hetero/trainer/options.hpp>
#include <hetero/trainer/parameter_store.hpp>

/// @file
/// Moving a trainer's state: to ranks that have none, and to a file.
namespace hetero {

/// How far a trainer is: optimizer updates made, which is also its position in the data.
struct training_position {
  std::uint64_t step = 0;
  std::uint64_t updates = 0;  ///< differs from `step` under synchronizers that skip updates
};

/// Gives every rank the position and tensors of the rank that is furthest. Collective. Message volume: one broadcast per tensor.
template <class World>
void spread_state(World& world, training_position& position, std::span<const named_tensor> tensors) {
  const auto mine = static_cast<std::int64_t>(position.step);
  const std::int64_t furthest = world.all_reduce(mine, reduce_op::max);
  const std::uint32_t claim = mine == furthest ? index_of(world.rank()) : world.world_size();
  const rank_id root{world.all_reduce(claim, reduce_op::min)};
  std::array<std::int64_t, 2> counters{mine, static_cast<std::int64_t>(position.updates)};
  world.broadcast(tensor_view{std::span{counters}}, root, traffic_class::control);
  position = {static_cast<std::uint64_t>(counters[0]), static_cast<std::uint64_t>(counters[1])};
  for (const auto& tensor : tensors) {
    world.broadcast(tensor.view.reshape({tensor.view.count()}), root, traffic_class::parameter);
  }
}

/// Share history as text, "0:8,4;50:7,5": the form checkpoints keep.
[[nodiscard]] inline std::string to_text(std::span<const share_record> history) {
  std::string text;
  for (const auto& record : history) {
    if (!text.empty()) text += ';';
    text += std::to_string(record.step) + ':';
    for (std::size_t i = 0; i < record.shares.size(); ++i) {
      text += (i == 0 ? "" : ",") + std::to_string(record.shares[i]);
    }
  }
  return text;
}

/// The reverse of `to_text`.
/// @throws error bad_file when the text is not of that form
[[nodiscard]] inline std::vector<share_record> share_history_from(std::string_view text) {
  std::vector<share_record> history;
  std::size_t at = 0;
  const auto number = [&] {
    const std::size_t begin = at;
    std::uint64_t value = 0;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9' && at - begin < 18) {
      value = value * 10 + static_cast<std::uint64_t>(text[at++] - '0');
    }
    require(at > begin, errc::bad_file, [&] { return "share history '" + std::string{text} + "' has no number at byte " + std::to_string(at); });
    return value;
  };
  while (!text.empty()) {
    auto& record = history.emplace_back();
    record.step = number();
    require(at < text.size() && text[at++] == ':', errc::bad_file, "share history lacks ':' after a step");
    for (;;) {
      record.shares.push_back(static_cast<std::size_t>(number()));
      if (at == text.size()) return history;
      if (text[at++] == ';') break;
      require(text[at - 1] == ',', errc::bad_file, "share history lacks ',' between shares");
    }
  }
  return history;
}

}  // namespace hetero
