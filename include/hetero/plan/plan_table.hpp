// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <hetero/plan/cluster.hpp>
#include <hetero/plan/plan.hpp>

namespace hetero {

namespace detail {

/// "37.5": one decimal, rounded half up, by integers so that every machine prints the same.
[[nodiscard]] inline std::string percent_text(std::size_t part, std::size_t whole) {
  if (whole == 0) return "-";
  const std::size_t tenths = (part * 2000 + whole) / (2 * whole);
  return std::to_string(tenths / 10) + '.' + std::to_string(tenths % 10);
}

}  // namespace detail

/// The plan as a table to print: one line per stage that a rank holds, one per rank that holds none. Device names come
/// from `machines`, where an emulated speed is part of the name; ranks it does not list print as "?".
[[nodiscard]] inline std::string plan_table(const plan& p, const cluster& machines) {
  constexpr std::size_t columns = 7;
  using row = std::array<std::string, columns>;
  std::vector<row> rows{{"rank", "device", "role", "share", "%", "micro-batches", "layers"}};
  for (std::size_t rank = 0; rank < p.roles.size(); ++rank) {
    const std::string device = rank < machines.ranks.size() ? machines.ranks[rank].device : "?";
    const std::string role = to_string(p.roles[rank]);
    bool placed = false;
    for (const auto& r : p.replicas) {
      for (const auto& s : r.stages) {
        if (index_of(s.rank) != rank || p.roles[rank] == rank_role::idle) continue;
        rows.push_back({std::to_string(rank), device, role, std::to_string(r.share),
                        detail::percent_text(r.share, p.global_batch), std::to_string(r.micro_batches),
                        s.end_layer - s.first_layer == 1
                            ? std::to_string(s.first_layer)
                            : std::to_string(s.first_layer) + '-' + std::to_string(s.end_layer - 1)});
        placed = true;
      }
    }
    if (!placed)
      rows.push_back({std::to_string(rank), device, role, "0", detail::percent_text(0, p.global_batch), "-", "-"});
  }

  std::array<std::size_t, columns> widths{};
  for (const auto& cells : rows) {
    for (std::size_t c = 0; c < columns; ++c) widths[c] = std::max(widths[c], cells[c].size());
  }
  std::string text;
  for (const auto& cells : rows) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string fill(widths[c] - cells[c].size(), ' ');
      const bool words = c == 1 || c == 2 || c == 6;  // names read better on the left, numbers on the right
      line += (c == 0 ? "" : "  ") + (words ? cells[c] + fill : fill + cells[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text + "global batch " + std::to_string(p.global_batch) + ", " + std::to_string(p.num_layers) +
         " layers, plan " + to_hex(plan_hash(p)) + " (epoch " + std::to_string(p.epoch) + ")\n";
}

}  // namespace hetero
