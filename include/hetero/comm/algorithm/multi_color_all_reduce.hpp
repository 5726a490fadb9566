// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hetero/comm/algorithm/reduce.hpp>
#include <hetero/comm/algorithm/ring.hpp>
#include <hetero/comm/operation.hpp>

namespace hetero::detail {

/// How many k-ary trees over n ranks can have disjoint interior ranks: the most up to `wanted`, as many as each tree's
/// fan-out.
[[nodiscard]] constexpr std::uint32_t colors_for(std::uint32_t n, std::uint32_t wanted) noexcept {
  for (std::uint32_t k = std::min(wanted, n - 1); k > 1; --k) {
    if (k * ((n - 1 + k - 1) / k) <= n) return k;
  }
  return 1;
}

/// One color's tree: ranks in breadth-first order from a start of its own, each with `fan_out` children.
class color_tree {
 public:
  color_tree(std::uint32_t n, std::uint32_t colors, std::uint32_t color) noexcept
      : n_{n}, fan_out_{std::max(2U, colors)}, first_{color * ((n - 1 + colors - 1) / colors)} {}

  [[nodiscard]] std::uint32_t place_of(std::uint32_t rank) const noexcept { return (rank + n_ - first_ % n_) % n_; }
  [[nodiscard]] std::uint32_t rank_at(std::uint32_t place) const noexcept { return (place + first_) % n_; }
  [[nodiscard]] bool is_root(std::uint32_t rank) const noexcept { return place_of(rank) == 0; }
  [[nodiscard]] std::uint32_t parent(std::uint32_t rank) const noexcept {
    return rank_at((place_of(rank) - 1) / fan_out_);
  }
  [[nodiscard]] std::vector<std::uint32_t> children(std::uint32_t rank) const {
    std::vector<std::uint32_t> out;
    const std::uint64_t begin = std::uint64_t{place_of(rank)} * fan_out_ + 1;
    for (std::uint64_t p = begin; p < begin + fan_out_ && p < n_; ++p)
      out.push_back(rank_at(static_cast<std::uint32_t>(p)));
    return out;
  }
  [[nodiscard]] std::uint32_t depth() const noexcept {
    std::uint32_t levels = 0;
    for (std::uint64_t reached = 1, width = 1; reached < n_; reached += width *= fan_out_) ++levels;
    return levels;
  }

 private:
  std::uint32_t n_, fan_out_, first_;
};

/// In-place all_reduce over several trees at once: each color reduces its part of the vector up a tree of its own and
/// broadcasts it down, in pieces; no rank is interior to two trees, so that every rank's ports work. All ranks send
/// 2(n-1) times the bytes together, none more than 2 of its tree's fan-out times its color's part; 2 depth rounds.
/// Every element is added by its color's tree in one order, so all ranks hold equal bits. For types of at least four
/// bytes. Sreedhar, Saxena, Sabharwal, Verma, Kumar: Efficient training of convolutional neural nets on large
/// distributed systems, 2017.
/// @throws error invalid_argument when an integer sum overflows; see operation::finish
template <exchange Exchange, class T>
void multi_color_all_reduce(Exchange& ex, std::span<T> values, reduce_op op, std::uint32_t wanted_colors = 2,
                            std::size_t most_bytes = piece_bytes) {
  const std::uint32_t n = ex.world_size();
  if (n == 1) return;
  const std::uint32_t self = ex.rank();
  const std::uint32_t colors = colors_for(n, wanted_colors);
  struct color {
    color_tree tree;
    std::vector<std::uint32_t> children;
    segment part;
  };
  std::vector<color> all;
  for (std::uint32_t c = 0; c < colors; ++c) {
    const color_tree tree{n, colors, c};
    all.push_back({tree, tree.children(self), segment_of(values.size(), colors, c)});
  }
  const std::uint32_t depth = all.front().tree.depth();
  for (std::uint32_t round = 0; round < 2 * depth; ++round) ex.count_round();

  const std::size_t pieces = pieces_for(segment_of(values.size(), colors, 0).count() * sizeof(T), most_bytes);
  const std::size_t items = pieces * colors;
  // A piece reaches the root after `depth` hops: the way down starts so much later, and nobody waits for it.
  const std::size_t lag = (std::size_t{depth} + 1) * colors;
  const auto bytes_of_item = [&](std::size_t item) {
    const segment s = piece_of(all[item % colors].part, pieces, item / colors);
    return std::as_writable_bytes(values.subspan(s.begin, s.count()));
  };
  std::vector<transfer> up(lag + 1);
  std::vector<std::vector<transfer>> down(lag + 1);
  for (auto& sends : down) sends = std::vector<transfer>(std::max(2U, colors));

  for (std::size_t turn = 0; turn < items + lag; ++turn) {
    if (turn < items) {
      const color& c = all[turn % colors];
      const auto bytes = bytes_of_item(turn);
      for (const std::uint32_t child : c.children) {  // one after the other, so that the order of additions is fixed
        transfer receive;
        ex.start_recv(receive, bytes.data(), bytes.size(), child, combiner_of<T>(op));
        ex.finish(receive);
      }
      if (!c.tree.is_root(self)) {
        transfer& send = up[turn % up.size()];
        ex.finish(send);
        ex.start_send(send, bytes.data(), bytes.size(), c.tree.parent(self));
      }
    }
    if (turn < lag) continue;
    const std::size_t item = turn - lag;
    const color& c = all[item % colors];
    const auto bytes = bytes_of_item(item);
    if (!c.tree.is_root(self)) {
      ex.finish(up[item % up.size()]);
      transfer receive;
      ex.start_recv(receive, bytes.data(), bytes.size(), c.tree.parent(self));
      ex.finish(receive);
    }
    for (std::size_t k = 0; k < c.children.size(); ++k) {
      transfer& send = down[item % down.size()][k];
      ex.finish(send);
      ex.start_send(send, bytes.data(), bytes.size(), c.children[k]);
    }
  }
  for (transfer& t : up) ex.finish(t);
  for (auto& sends : down) {
    for (transfer& t : sends) ex.finish(t);
  }
}

}  // namespace hetero::detail
