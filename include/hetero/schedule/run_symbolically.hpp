// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <hetero/plan/action.hpp>

/// @file
/// Runs the transfers of all ranks' programs without data: messages between two ranks arrive in the order they were
/// sent.
namespace hetero::detail {

/// One action of one rank.
struct place {
  std::size_t rank = 0;
  std::size_t index = 0;
};

/// Why programs cannot run together: `first` breaks `rule` with `second`.
struct run_failure {
  place first;
  const char* rule = "";
  std::optional<place> second{};
};

/// True when the message of `sent` is the one `received` waits for.
[[nodiscard]] inline bool same_message(const action& sent, const action& received) {
  const std::uint32_t from = index_of(sent.stage);
  const std::uint32_t to = index_of(received.stage);
  return sent.replica == received.replica && sent.micro_batch == received.micro_batch &&
         sent.gradient == received.gradient && (sent.gradient ? from == to + 1 : from + 1 == to);
}

/// Nothing when every rank reaches the end of its program and every message is received. Order is strict; only
/// receives wait.
[[nodiscard]] inline std::optional<run_failure> run_symbolically(std::span<const program> programs) {
  const std::size_t ranks = programs.size();
  std::vector<std::size_t> next(ranks, 0);
  std::map<std::pair<std::size_t, std::size_t>, std::deque<std::size_t>> in_flight;  // (from, to) -> indices of sends
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (; next[rank] < programs[rank].size(); ++next[rank], moved = true) {
        const action& a = programs[rank][next[rank]];
        const std::size_t peer = index_of(a.peer);
        const bool transfer = a.kind == action_kind::send || a.kind == action_kind::recv;
        if (transfer && (peer >= ranks || peer == rank)) {
          return run_failure{{rank, next[rank]}, "names a peer that is not another rank; it talks to", {}};
        }
        if (a.kind == action_kind::send) in_flight[{rank, peer}].push_back(next[rank]);
        if (a.kind != action_kind::recv) continue;
        auto& arriving = in_flight[{peer, rank}];
        if (arriving.empty()) break;
        if (!same_message(programs[peer][arriving.front()], a)) {
          return run_failure{{rank, next[rank]}, "would receive the message of", place{peer, arriving.front()}};
        }
        arriving.pop_front();
      }
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (next[rank] == programs[rank].size()) continue;
    const std::size_t peer = index_of(programs[rank][next[rank]].peer);
    if (next[peer] < programs[peer].size()) {
      return run_failure{{rank, next[rank]}, "waits for its peer, which itself waits at", place{peer, next[peer]}};
    }
    return run_failure{{rank, next[rank]}, "waits for a message that its peer never sends; matched with it is", {}};
  }
  for (const auto& [pair, messages] : in_flight) {
    if (!messages.empty()) {
      return run_failure{{pair.first, messages.front()}, "is never received; matched with it is", {}};
    }
  }
  return std::nullopt;
}

}  // namespace hetero::detail
