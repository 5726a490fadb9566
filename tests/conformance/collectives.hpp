// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <hetero/comm/algorithm/reduce.hpp>
#include <hetero/comm/algorithm/ring.hpp>
#include <hetero/comm/concepts.hpp>

#include "conformance/communicator.hpp"

/// @file
/// The collectives in which each rank has a part of its own: each against an obvious loop, for every type and awkward
/// counts, and their closed forms of bytes and rounds.
namespace hetero::conformance {

inline constexpr std::array all_types{dtype::f64, dtype::f32, dtype::bf16, dtype::f16,
                                      dtype::i64, dtype::i32, dtype::i8,   dtype::u8};
inline constexpr std::array all_ops{reduce_op::sum, reduce_op::max, reduce_op::min};

/// What rank r holds at place i; fits every type, and so does the sum over seven ranks.
template <class T> int whole_number(std::uint32_t r, std::size_t i) {
  return sample(r, i) + (std::is_same_v<T, std::uint8_t> ? 8 : 0);
}

template <class T> std::vector<T> elements_of(std::uint32_t rank, std::size_t count, std::size_t first = 0) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = to_element<T>(whole_number<T>(rank, first + i));
  return values;
}

template <class T> T reduced(std::uint32_t ranks, std::size_t i, reduce_op op) {
  int result = whole_number<T>(0, i);
  for (std::uint32_t r = 1; r < ranks; ++r) {
    const int v = whole_number<T>(r, i);
    result = op == reduce_op::sum ? result + v : op == reduce_op::max ? std::max(result, v) : std::min(result, v);
  }
  return to_element<T>(result);
}

template <class T> tensor_view view_of(std::vector<T>& values) { return tensor_view{std::span{values}}; }

inline std::size_t sum_of(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

/// Counts per rank: equal, none at all, one rank alone, every other rank none, all different, one that takes pieces.
inline std::vector<std::vector<std::size_t>> uneven_counts(std::uint32_t ranks, bool large) {
  std::vector<std::vector<std::size_t>> all(large ? 6 : 5, std::vector<std::size_t>(ranks, 0));
  for (std::size_t r = 0; r < ranks; ++r) {
    all[0][r] = 3;
    all[3][r] = r % 2 == 0 ? 0 : 5 + r;
    all[4][r] = (r * 37 + 11) % 50 + r * 301;
    if (large) all[5][r] = r == ranks / 2 ? 100'003 : 1;
  }
  all[2][ranks - 1] = 7;
  return all;
}

template <class T, class C> void reduce_matches_reference(C& c) {
  const std::uint32_t n = c.world_size();
  for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 2, 7, 1000, 5003}) {
    for (const reduce_op op : all_ops) {
      for (const std::uint32_t root : {0U, n / 2, n - 1}) {
        std::vector<T> values = elements_of<T>(number_of(c), count);
        c.reduce(view_of(values), op, rank_id{root});
        if (number_of(c) != root) continue;
        for (std::size_t i = 0; i < count; ++i) {
          expect(values[i] == reduced<T>(n, i, op), std::string{"reduce "} + to_string(dtype_of<T>) + ' ' +
                                                        to_string(op) + " of " + std::to_string(count));
        }
      }
    }
  }
}

template <class T, class C> void reduce_scatter_matches_reference(C& c) {
  const std::uint32_t n = c.world_size();
  const auto check = [&](const std::vector<T>& out, std::size_t first, reduce_op op, const char* name) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      expect(out[i] == reduced<T>(n, first + i, op),
             std::string{name} + ' ' + to_string(dtype_of<T>) + ' ' + to_string(op));
    }
  };
  for (const reduce_op op : all_ops) {
    for (const std::size_t part : std::initializer_list<std::size_t>{0, 1, 2, 7, 1000}) {
      std::vector<T> in = elements_of<T>(number_of(c), part * n);
      const std::vector<T> before = in;
      std::vector<T> out(part);
      c.reduce_scatter(view_of(in), view_of(out), op);
      check(out, part * number_of(c), op, "reduce_scatter");
      expect(in == before, "reduce_scatter leaves its input alone");
      const auto own = std::span{in}.subspan(part * number_of(c), part);
      c.reduce_scatter(view_of(in), tensor_view{own}, op);
      check({own.begin(), own.end()}, part * number_of(c), op, "reduce_scatter in place");
    }
    for (const std::vector<std::size_t>& counts : uneven_counts(n, op == reduce_op::sum)) {
      const std::size_t first = std::accumulate(counts.begin(), counts.begin() + number_of(c), std::size_t{0});
      std::vector<T> in = elements_of<T>(number_of(c), sum_of(counts));
      const std::vector<T> before = in;
      std::vector<T> out(counts[number_of(c)]);
      c.reduce_scatter_v(view_of(in), view_of(out), counts, op);
      check(out, first, op, "reduce_scatter_v");
      expect(in == before, "reduce_scatter_v leaves its input alone");
    }
  }
}

template <class T, class C> void gathers_match_reference(C& c) {
  const std::uint32_t n = c.world_size();
  const auto whole = [&](const std::vector<std::size_t>& counts) {
    std::vector<T> all;
    for (std::uint32_t r = 0; r < n; ++r) {
      const std::vector<T> part = elements_of<T>(r, counts[r], r);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  for (const std::vector<std::size_t>& counts : uneven_counts(n, true)) {
    const std::vector<T> expected = whole(counts);
    std::vector<T> in = elements_of<T>(number_of(c), counts[number_of(c)], number_of(c));
    std::vector<T> out(expected.size());
    c.all_gather_v(view_of(in), view_of(out), counts);
    expect(out == expected, "all_gather_v");
    const std::size_t first = std::accumulate(counts.begin(), counts.begin() + number_of(c), std::size_t{0});
    std::vector<T> placed(expected.size());
    std::copy(in.begin(), in.end(), placed.begin() + static_cast<std::ptrdiff_t>(first));
    c.all_gather_v(tensor_view{std::span{placed}.subspan(first, in.size())}, view_of(placed), counts);
    expect(placed == expected, "all_gather_v in place");

    for (const std::uint32_t root : {0U, n / 2, n - 1}) {
      const bool is_root = number_of(c) == root;
      std::vector<T> all(is_root ? expected.size() : 0);
      c.gather_v(view_of(in), is_root ? view_of(all) : tensor_view{}, counts, rank_id{root});
      expect(!is_root || all == expected, "gather_v");
      std::vector<T> back(in.size());
      c.scatter_v(is_root ? view_of(all) : tensor_view{}, view_of(back), counts, rank_id{root});
      expect(back == in, "scatter_v");
    }
  }
  for (const std::size_t part : std::initializer_list<std::size_t>{0, 1, 2, 7, 1000}) {
    const std::vector<T> expected = whole(std::vector<std::size_t>(n, part));
    std::vector<T> in = elements_of<T>(number_of(c), part, number_of(c));
    for (const std::uint32_t root : {0U, n - 1}) {
      const bool is_root = number_of(c) == root;
      std::vector<T> all(is_root ? expected.size() : 0);
      c.gather(view_of(in), is_root ? view_of(all) : tensor_view{}, rank_id{root});
      expect(!is_root || all == expected, "gather");
      std::vector<T> back(part);
      c.scatter(is_root ? view_of(all) : tensor_view{}, view_of(back), rank_id{root});
      expect(back == in, "scatter");
      if (is_root) {  // the own part may lie where it belongs
        const auto own = tensor_view{std::span{all}.subspan(part * root, part)};
        c.gather(own, view_of(all), rank_id{root});
        c.scatter(view_of(all), own, rank_id{root});
      } else {
        c.gather(view_of(in), tensor_view{}, rank_id{root});
        c.scatter(tensor_view{}, view_of(back), rank_id{root});
      }
      expect(back == in && (!is_root || all == expected), "gather and scatter in place");
    }
  }
}

/// How many elements `from` sends to `to`: none to some, and pieces of pieces to one.
inline std::size_t exchanged(std::uint32_t from, std::uint32_t to) {
  return (from + 2 * to) % 3 == 0 ? 0 : (from * 13 + to * 7) % 40 + (from == 1 && to == 0 ? 70'001 : 0);
}

template <class T, class C> void all_to_all_matches_reference(C& c) {
  const std::uint32_t n = c.world_size();
  const std::uint32_t rank = number_of(c);
  for (const std::size_t part : std::initializer_list<std::size_t>{0, 1, 2, 7, 1000}) {
    std::vector<T> in = elements_of<T>(rank, part * n);
    std::vector<T> out(in.size());
    c.all_to_all(view_of(in), view_of(out));
    for (std::uint32_t r = 0; r < n; ++r) {
      const std::vector<T> from = elements_of<T>(r, part, part * rank);
      expect(std::equal(from.begin(), from.end(), out.begin() + static_cast<std::ptrdiff_t>(part * r)), "all_to_all");
    }
  }
  std::vector<std::size_t> send(n), recv(n);
  std::vector<T> in, expected;
  for (std::uint32_t r = 0; r < n; ++r) {
    send[r] = exchanged(rank, r);
    recv[r] = exchanged(r, rank);
    const std::vector<T> to = elements_of<T>(rank, send[r], r);
    const std::vector<T> from = elements_of<T>(r, recv[r], rank);
    in.insert(in.end(), to.begin(), to.end());
    expected.insert(expected.end(), from.begin(), from.end());
  }
  std::vector<T> out(expected.size());
  c.all_to_all_v(view_of(in), send, view_of(out), recv);
  expect(out == expected, "all_to_all_v");
}

/// A line of ranks: each swaps with the ones beside it, the ends have one neighbour, and only even ranks send
/// downwards.
template <class T, class C> void neighbours_exchange(C& c) {
  const std::uint32_t n = c.world_size();
  const std::uint32_t rank = number_of(c);
  for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 1000, 100'003}) {
    std::vector<T> up = elements_of<T>(rank, count);
    std::vector<T> down = elements_of<T>(rank, rank % 2 == 0 ? 5 : 0, 9);
    std::vector<T> from_below(rank > 0 ? count : 0);
    std::vector<T> from_above(rank + 1 < n && rank % 2 == 1 ? 5 : 0);
    std::vector<neighbour> line;
    if (rank > 0) line.push_back({rank_id{rank - 1}, view_of(down), view_of(from_below)});
    if (rank + 1 < n) {
      line.push_back({rank_id{rank + 1}, view_of(up), from_above.empty() ? tensor_view{} : view_of(from_above)});
    }
    c.neighbour_exchange(std::span<const neighbour>{line});
    if (rank > 0) expect(from_below == elements_of<T>(rank - 1, count), "from the rank below");
    if (!from_above.empty()) expect(from_above == elements_of<T>(rank + 1, 5, 9), "from the rank above");
  }
  c.neighbour_exchange(std::span<const neighbour>{});
}

/// 16-bit floats are added in 32 bits on the way to their owner. A sum that rounds at every hop would stay at 256.
template <class C> void parts_of_narrow_types_round_once(C& c) {
  const std::uint32_t n = c.world_size();
  const auto fresh = [&] { return std::vector<bfloat16>(3 * n, bfloat16{number_of(c) == 0 ? 256.0F : 1.0F}); };
  const bfloat16 expected{256.0F + static_cast<float>(n - 1)};
  std::vector<bfloat16> in = fresh();
  std::vector<bfloat16> out(3);
  c.reduce_scatter(view_of(in), view_of(out), reduce_op::sum);
  for (const bfloat16 x : out) expect(x == expected, "reduce_scatter adds bf16 in fp32");
  c.reduce(view_of(in), reduce_op::sum, rank_id{n - 1});
  if (number_of(c) == n - 1) {
    for (const bfloat16 x : in) expect(x == expected, "reduce adds bf16 in fp32");
  }
}

/// A reduction in many pieces, and equal bits for equal calls.
template <class C> void large_reduce_is_repeatable(C& c) {
  const std::size_t count = 3 * detail::piece_bytes / sizeof(float) + 5;
  const auto fresh = [&] {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = 1.0F / static_cast<float>(1 + (i * 31 + number_of(c) * 17) % 1009);
    return values;
  };
  std::vector<float> first = fresh();
  std::vector<float> second = fresh();
  c.reduce(view_of(first), reduce_op::sum, rank_id{0});
  c.reduce(view_of(second), reduce_op::sum, rank_id{0});
  if (number_of(c) != 0) return;
  expect(first == second, "equal bits for equal calls");
  for (const std::size_t i : {std::size_t{0}, count / 2, count - 1}) {
    double expected = 0;
    for (std::uint32_t r = 0; r < c.world_size(); ++r)
      expected += 1.0 / static_cast<double>(1 + (i * 31 + r * 17) % 1009);
    expect(std::abs(first[i] - expected) <= 1e-6 * expected, "a long sum");
  }
}

/// Bytes, messages and rounds of each, to the byte; over all ranks where ranks differ.
template <class C> void parts_equal_closed_forms(C& c) {
  const std::uint64_t n = c.world_size();
  const auto spent = [&](auto&& body) {
    const traffic_counters before = c.counters();
    body();
    return (c.counters() - before).total();
  };
  const auto everywhere = [&](std::uint64_t own) {
    std::vector<std::int64_t> total{static_cast<std::int64_t>(own)};
    c.all_reduce(view_of(total), reduce_op::sum);
    return static_cast<std::uint64_t>(total[0]);
  };
  const auto depth = static_cast<std::uint64_t>(std::bit_width(n - 1));
  for (const std::size_t part : {std::size_t{1}, std::size_t{1000}, std::size_t{200'000}}) {
    std::vector<float> whole(part * n, 1);
    std::vector<float> other(part * n, 1);
    std::vector<float> own(part, 1);
    std::vector<bfloat16> narrow(part * n);
    const std::uint64_t bytes = part * sizeof(float);

    const auto gathered = spent([&] { c.all_gather(view_of(own), view_of(whole)); });
    expect(gathered.bytes_sent == (n - 1) * bytes && gathered.bytes_received == gathered.bytes_sent,
           "all_gather: (n-1) parts");
    const bool small = n * bytes <= detail::doubling_all_gather_bytes;
    expect(gathered.rounds == (small ? depth : n - 1), "all_gather: ceil(log2 n) rounds when small, else n-1");

    const auto scattered = spent([&] { c.reduce_scatter(view_of(whole), view_of(own), reduce_op::max); });
    expect(scattered == traffic_totals{(n - 1) * bytes, (n - 1) * bytes, n - 1, n - 1},
           "reduce_scatter: (n-1) parts, messages and rounds");

    const auto swapped = spent([&] { c.all_to_all(view_of(whole), view_of(other)); });
    expect(swapped == traffic_totals{(n - 1) * bytes, (n - 1) * bytes, n - 1, n - 1},
           "all_to_all: (n-1) parts, messages and rounds");

    const std::uint64_t agreement = n > 1 ? 1 : 0;  // the empty message of a rank that agrees on the root
    const bool root = number_of(c) == n - 1;
    const auto in = spent([&] { c.gather(view_of(own), root ? view_of(whole) : tensor_view{}, rank_id(n - 1)); });
    expect(in == (root ? traffic_totals{0, (n - 1) * bytes, agreement, agreement}
                       : traffic_totals{bytes, 0, 1 + agreement, 1}),
           "gather: one message of one part, one round");
    const auto out = spent([&] { c.scatter(root ? view_of(whole) : tensor_view{}, view_of(own), rank_id(n - 1)); });
    expect(out == (root ? traffic_totals{(n - 1) * bytes, 0, n - 1 + agreement, agreement}
                        : traffic_totals{0, bytes, agreement, 1}),
           "scatter: one message of one part, one round");

    const auto tree = spent([&] { c.reduce(view_of(whole), reduce_op::max, rank_id(n - 1)); });
    const std::uint64_t pieces = detail::pieces_for(n * bytes);
    expect(tree.rounds == depth && tree.bytes_sent == (root ? 0 : n * bytes),
           "reduce: every rank but the root sends S");
    expect(everywhere(tree.bytes_received) == (n - 1) * n * bytes, "reduce: (n-1) S over all ranks");
    expect(everywhere(tree.messages) == (n - 1) * pieces + n * agreement, "reduce: messages");

    const auto rounded = spent([&] { c.reduce(view_of(narrow), reduce_op::sum, rank_id(n - 1)); });
    expect(rounded.rounds == (n > 1 ? n : 0) && everywhere(rounded.bytes_sent) == (n + 1) * (n - 1) * bytes / 2,
           "bf16 reduce: n rounds of parts");

    const std::uint64_t degree = (number_of(c) > 0 ? 1 : 0) + (number_of(c) + 1 < n ? 1 : 0);
    std::vector<float> below(part), above(part);
    std::vector<neighbour> line;
    if (number_of(c) > 0) line.push_back({rank_id{number_of(c) - 1}, view_of(own), view_of(below)});
    if (number_of(c) + 1 < n) line.push_back({rank_id{number_of(c) + 1}, view_of(own), view_of(above)});
    const auto near = spent([&] { c.neighbour_exchange(std::span<const neighbour>{line}); });
    expect(near == traffic_totals{degree * bytes, degree * bytes, degree, degree > 0 ? 1ULL : 0ULL},
           "neighbour_exchange: one message per neighbour, one round");
  }
  const std::vector<std::size_t> counts = uneven_counts(c.world_size(), true).back();
  std::vector<double> own(counts[number_of(c)], 1);
  std::vector<double> all(sum_of(counts), 1);
  const auto gathered = spent([&] { c.all_gather_v(view_of(own), view_of(all), counts); });
  const auto scattered = spent([&] { c.reduce_scatter_v(view_of(all), view_of(own), counts, reduce_op::max); });
  const std::uint64_t mine = own.size() * sizeof(double);
  const std::uint64_t others = all.size() * sizeof(double) - mine;
  expect(gathered.bytes_received == others && gathered.rounds == n - 1, "all_gather_v receives all but its own");
  expect(scattered.bytes_sent == others && scattered.bytes_received == (n - 1) * mine,
         "reduce_scatter_v sends all but its own, which it gets from everybody");
}

/// Everything that succeeds. `closed_forms` is false for a communicator that takes other ways.
template <class C>
requires all_gatherer_v<C> && reducer<C> && reduce_scatterer<C> && reduce_scatterer_v<C> && gatherer<C> &&
    gatherer_v<C> && scatterer<C> && scatterer_v<C> && all_to_all_capable<C> && all_to_all_v_capable<C> &&
    neighbour_exchanger<C>
void check_parts(const rank_runner<C>& run, std::uint32_t ranks, bool closed_forms = true) {
  run(ranks, [closed_forms](C& c) {
    for (const dtype type : all_types) {
      detail::visit_dtype(type, [&]<class T>(T) {
        reduce_matches_reference<T>(c);
        reduce_scatter_matches_reference<T>(c);
        gathers_match_reference<T>(c);
        all_to_all_matches_reference<T>(c);
        neighbours_exchange<T>(c);
      });
    }
    parts_of_narrow_types_round_once(c);
    large_reduce_is_repeatable(c);
    if (closed_forms) parts_equal_closed_forms(c);
  });
}

}  // namespace hetero::conformance
