// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"
#include "tcp_ranks.hpp"

#include <hetero/comm/algorithm/multi_color_all_reduce.hpp>
#include <hetero/comm/algorithm/weighted_all_reduce.hpp>
#include <hetero/comm/link_model.hpp>
#include <hetero/comm/run_ranks.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

using namespace hetero;
using way = all_reduce_algorithm;

namespace {

constexpr way ways[] = {way::doubling,   way::two_rank,    way::ring,    way::halving_doubling,
                        way::all_to_all, way::multi_color, way::weighted};

/// Every size goes this way, in small pieces so that short vectors have several.
tuning only(way a, std::size_t piece_bytes = 1024) {
  tuning t;
  t.all_reduce.push_back({.algorithm = a, .piece_bytes = piece_bytes});
  return t;
}

/// Ports of falling speed; the last is slow enough to own nothing.
tuning uneven(way a, std::uint32_t ranks) {
  tuning t = only(a);
  for (std::uint32_t r = 0; r < ranks; ++r) t.bytes_per_second.push_back(r + 1 == ranks ? 1e7 : 1e8 / (1 + r));
  return t;
}

std::uint64_t pieces_of(std::size_t bytes, std::size_t piece_bytes) { return detail::pieces_for(bytes, piece_bytes); }

/// What one rank has sent in one all_reduce of `count` f32.
traffic_totals cost(std::uint32_t ranks, std::uint32_t rank, const tuning& rules, std::size_t count) {
  traffic_totals out;
  run_ranks(ranks, [&](world& w) {
    w.tune(rules);
    std::vector<float> values(count, 1);
    const traffic_counters before = w.counters();
    w.all_reduce(tensor_view{std::span{values}}, reduce_op::sum, traffic_class::gradient);
    if (w.rank() == rank_id{rank}) out = (w.counters() - before)[traffic_class::gradient];
  });
  return out;
}

}  // namespace

TEST_CASE("every way reduces every type, count and operation as a loop does", "[comm]") {
  const std::uint32_t ranks = GENERATE(1U, 2U, 3U, 5U, 7U, 8U);
  for (const way a : ways) {
    if (a == way::two_rank && ranks > 2) continue;
    CAPTURE(ranks, to_string(a));
    REQUIRE_NOTHROW(run_ranks(ranks, [&](world& w) {
      w.tune(uneven(a, ranks));
      conformance::all_reduce_matches_reference(w);
    }));
  }
}

TEST_CASE("every way carries over streams and shared memory", "[comm]") {
  const std::uint32_t ranks = GENERATE(2U, 3U, 4U);
  for (const way a : ways) {
    if (a == way::two_rank && ranks > 2) continue;
    CAPTURE(ranks, to_string(a));
    const auto body = [&](world& w) {
      w.tune(uneven(a, ranks));
      conformance::all_reduce_matches_reference(w);
    };
    REQUIRE_NOTHROW(test::run_tcp_ranks(ranks, body));
    REQUIRE_NOTHROW(test::run_shared_memory_ranks(ranks, body));
  }
}

TEST_CASE("all ranks end with equal bits, whatever rounds, and every run with the same", "[comm]") {
  const std::uint32_t ranks = GENERATE(2U, 3U, 5U, 7U, 8U);
  for (const way a : ways) {
    if (a == way::two_rank && ranks > 2) continue;
    for (const std::size_t count : {3UL, 1000UL, 20'011UL}) {
      CAPTURE(ranks, to_string(a), count);
      std::vector<float> first;
      for (int run = 0; run < 2; ++run) {
        std::vector<std::vector<float>> got(ranks, std::vector<float>(count));
        run_ranks(ranks, [&](world& w) {
          w.tune(uneven(a, ranks));
          std::vector<float>& values = got[index_of(w.rank())];
          for (std::size_t i = 0; i < count; ++i) {
            values[i] = 1.0F / static_cast<float>(1 + (i * 31 + index_of(w.rank()) * 17) % 1009);
          }
          w.all_reduce(tensor_view{std::span{values}}, reduce_op::sum);
        });
        for (const auto& values : got) REQUIRE(std::memcmp(values.data(), got[0].data(), count * sizeof(float)) == 0);
        if (run == 0) first = got[0];
        REQUIRE(std::memcmp(first.data(), got[0].data(), count * sizeof(float)) == 0);
      }
    }
  }
}

TEST_CASE("the sign of a zero is the same on all ranks", "[comm]") {
  // max(+0, -0) depends on who is asked first; rank 0 is, everywhere.
  for (const way a : {way::doubling, way::two_rank, way::ring, way::halving_doubling}) {
    std::vector<float> got(2);
    run_ranks(2, [&](world& w) {
      w.tune(only(a));
      float value = w.rank() == rank_id{0} ? 0.0F : -0.0F;
      w.all_reduce(tensor_view{std::span{&value, 1}}, reduce_op::max);
      got[index_of(w.rank())] = value;
    });
    CAPTURE(to_string(a));
    REQUIRE(std::bit_cast<std::uint32_t>(got[0]) == std::bit_cast<std::uint32_t>(got[1]));
  }
}

TEST_CASE("NaNs of different signs become the same one on all ranks", "[comm]") {
  const std::uint32_t ranks = GENERATE(2U, 3U, 4U);
  for (const way a : ways) {
    if (a == way::two_rank && ranks > 2) continue;
    for (const reduce_op op : {reduce_op::sum, reduce_op::max, reduce_op::min}) {
      std::vector<std::vector<float>> got(ranks, std::vector<float>(40));
      run_ranks(ranks, [&](world& w) {
        w.tune(only(a));
        std::vector<float>& values = got[index_of(w.rank())];
        const float nan = std::numeric_limits<float>::quiet_NaN();
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = (i + index_of(w.rank())) % 3 == 0 ? nan : (i + index_of(w.rank())) % 3 == 1 ? -nan : 1.0F;
        }
        w.all_reduce(tensor_view{std::span{values}}, op);
      });
      CAPTURE(ranks, to_string(a), to_string(op));
      for (const auto& values : got) {
        REQUIRE(std::memcmp(values.data(), got[0].data(), values.size() * sizeof(float)) == 0);
        REQUIRE(std::isnan(values[0]));
      }
    }
  }
}

TEST_CASE("an integer sum that overflows is an error on every rank, whatever the way", "[comm]") {
  for (const way a : ways) {
    const std::uint32_t ranks = a == way::two_rank ? 2 : 4;
    for (const dtype type : {dtype::i32, dtype::i8, dtype::u8}) {
      std::atomic<std::uint32_t> refused{0};
      CAPTURE(to_string(a), to_string(type));
      run_ranks(ranks, [&](world& w) {
        std::vector<std::int32_t> memory(500,
                                         type == dtype::i32 ? std::numeric_limits<std::int32_t>::max() : 0x7f7f7f7f);
        const std::size_t count = memory.size() * sizeof(std::int32_t) / size_of(type);
        try {
          w.tune(only(a));  // a fast rank's error may find others still in here
          w.all_reduce(tensor_view{memory.data(), type, shape{count}}, reduce_op::sum);
          w.barrier();
        } catch (const error& e) {
          if (e.code() == errc::invalid_argument) ++refused;
        }
      });
      // 2 x 127 fits an u8: the control.
      REQUIRE(refused == (type == dtype::u8 && ranks == 2 ? 0 : ranks));
    }
  }
}

TEST_CASE("bytes, messages and rounds are those of the closed form", "[comm]") {
  constexpr std::size_t count = 6000;  // divisible by 2, 3, 4, 5, 8
  constexpr std::size_t bytes = count * sizeof(float);
  constexpr std::size_t piece = 1024;
  for (const std::uint32_t n : {2U, 3U, 4U, 5U, 8U}) {
    CAPTURE(n);
    const traffic_totals ring = cost(n, n - 1, only(way::ring), count);
    REQUIRE(ring.bytes_sent == 2 * (n - 1) * bytes / n);
    REQUIRE(ring.bytes_received == ring.bytes_sent);
    REQUIRE(ring.rounds == 2 * (n - 1));
    REQUIRE(ring.messages == ring.rounds * pieces_of(bytes / n, piece));

    const traffic_totals all_to_all = cost(n, n - 1, only(way::all_to_all), count);
    REQUIRE(all_to_all.bytes_sent == 2 * (n - 1) * bytes / n);
    REQUIRE(all_to_all.rounds == 2 * (n - 1));
    REQUIRE(all_to_all.messages == (n - 1) + (n - 1) * pieces_of(bytes / n, piece));

    const traffic_totals doubling = cost(n, 0, only(way::doubling), count);
    const auto steps = static_cast<std::uint64_t>(std::bit_width(n) - 1);
    const std::uint64_t folds = std::has_single_bit(n) ? 0 : 1;
    REQUIRE(doubling.rounds == steps + 2 * folds);
    REQUIRE(doubling.bytes_sent == (steps + folds) * bytes);

    if (std::has_single_bit(n)) {
      const traffic_totals halving = cost(n, n - 1, only(way::halving_doubling), count);
      REQUIRE(halving.bytes_sent == 2 * (n - 1) * bytes / n);
      REQUIRE(halving.rounds == 2 * steps);
      REQUIRE(halving.messages == 2 * steps);
    }

    // Rank i sends (1 + (n-2) x_i) S.
    const tuning ports = uneven(way::weighted, n);
    const std::vector<std::size_t> offsets = detail::owned_offsets(count, all_reduce_shares(ports.bytes_per_second));
    for (std::uint32_t r = 0; r < n; ++r) {
      const std::size_t own = (offsets[r + 1] - offsets[r]) * sizeof(float);
      const traffic_totals weighted = cost(n, r, ports, count);
      REQUIRE(weighted.bytes_sent == bytes - own + (n - 1) * own);
      REQUIRE(weighted.bytes_received == weighted.bytes_sent);
      REQUIRE(weighted.rounds == 2);
      std::uint64_t owners = 0;  // the other ranks that own something
      for (std::uint32_t o = 0; o < n; ++o) owners += o != r && offsets[o + 1] != offsets[o] ? 1U : 0U;
      REQUIRE(weighted.messages == bytes / piece * (owners + (own == 0 ? 0 : n - 1)));
    }

    std::uint64_t together = 0;
    for (std::uint32_t r = 0; r < n; ++r) together += cost(n, r, only(way::multi_color), count).bytes_sent;
    REQUIRE(together == 2 * (n - 1) * bytes);
  }
  // Two ranks: a small vector crosses whole in one round.
  const traffic_totals small = cost(2, 0, only(way::two_rank), 256);
  REQUIRE((small.rounds == 1 && small.messages == 1 && small.bytes_sent == 1024));
}

TEST_CASE("colors have disjoint interiors and reach every rank", "[comm]") {
  for (std::uint32_t n = 2; n <= 40; ++n) {
    for (std::uint32_t wanted = 1; wanted <= 5; ++wanted) {
      const std::uint32_t k = detail::colors_for(n, wanted);
      REQUIRE((k >= 1 && k <= wanted));
      std::vector<int> interior(n, 0);
      for (std::uint32_t c = 0; c < k; ++c) {
        const detail::color_tree tree{n, k, c};
        std::uint32_t edges = 0;
        for (std::uint32_t r = 0; r < n; ++r) {
          const auto children = tree.children(r);
          edges += static_cast<std::uint32_t>(children.size());
          if (!children.empty()) ++interior[r];
          for (const std::uint32_t child : children) REQUIRE(tree.parent(child) == r);
        }
        REQUIRE(edges == n - 1);
      }
      if (k > 1) REQUIRE(*std::max_element(interior.begin(), interior.end()) == 1);
    }
  }
}

TEST_CASE("shares follow the ports: the bound, and what each rank sends within it", "[comm]") {
  const std::vector<double> ports{400, 300, 200, 100};
  const double bound = all_reduce_bound(ports, 1000);
  REQUIRE(bound == Approx(10));  // the slowest port: max(1000 / 100, 6 * 1000 / 1000)
  const std::vector<double> shares = all_reduce_shares(ports);
  REQUIRE(std::accumulate(shares.begin(), shares.end(), 0.0) == Approx(1));
  for (std::size_t r = 0; r < ports.size(); ++r) REQUIRE((1 + 2 * shares[r]) * 1000 / ports[r] <= bound * (1 + 1e-9));
  REQUIRE(shares.back() < 1e-12);
  REQUIRE(ring_seconds(ports, 1000) == Approx(15));  // control: what even shares cost

  const std::vector<double> equal(5, 50.0);
  for (const double x : all_reduce_shares(equal)) REQUIRE(x == Approx(0.2));
  REQUIRE(all_reduce_bound(equal, 100) == Approx(ring_seconds(equal, 100)));
  REQUIRE_THROWS_AS(all_reduce_bound(std::vector{1.0, 0.0}, 1), error);
  REQUIRE_THROWS_AS(all_reduce_shares(std::vector{1.0, std::numeric_limits<double>::infinity(), 1.0}), error);
  REQUIRE_THROWS_AS(all_reduce_shares(std::vector{1.0, std::nan("")}), error);

  // Borders: nothing lost, whatever the rounding; shares that leave or repeat a part are refused.
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1'000'003}}) {
    const std::vector<std::size_t> offsets = detail::owned_offsets(count, shares);
    REQUIRE((offsets.front() == 0 && offsets.back() == count));
    REQUIRE(std::is_sorted(offsets.begin(), offsets.end()));
  }
  REQUIRE_THROWS_AS(detail::owned_offsets(10, std::vector{0.5, 0.4}), error);
  REQUIRE_THROWS_AS(detail::owned_offsets(10, std::vector{0.5, 0.6}), error);
  REQUIRE_THROWS_AS(detail::owned_offsets(10, std::vector{1.5, -0.5}), error);
}

TEST_CASE("uneven ports choose uneven shares by themselves, equal ones the ring", "[comm]") {
  tuning rules;
  rules.bytes_per_second = {4e7, 3e7, 2e7, 1e7};
  REQUIRE(detail::choose_all_reduce(rules, 4, dtype::f32, 1U << 24U).algorithm == way::weighted);
  REQUIRE(detail::choose_all_reduce(rules, 4, dtype::f32, 1U << 24U).piece_bytes == detail::weighted_piece_bytes);
  REQUIRE(detail::choose_all_reduce(rules, 4, dtype::f32, 1024).algorithm == way::doubling);
  rules.bytes_per_second = {4e7, 4e7, 4e7, 4e7};
  REQUIRE(detail::choose_all_reduce(rules, 4, dtype::f32, 1U << 24U).algorithm == way::ring);
  REQUIRE(detail::choose_all_reduce({}, 2, dtype::f32, 1024).algorithm == way::two_rank);
  REQUIRE(detail::choose_all_reduce({}, 3, dtype::bf16, 1U << 24U).algorithm == way::all_to_all);
  REQUIRE(detail::choose_all_reduce({}, 3, dtype::bf16, 64).widened);
}

TEST_CASE("rules come from rank 0, and reach channels, splits and groups", "[comm]") {
  run_ranks(4, [](world& w) {
    tuning rules = only(way::ring);
    rules.bytes_per_second = {1, 2, 3, 4};
    w.tune(w.rank() == rank_id{0} ? rules : tuning{});  // what other ranks pass is not asked
    conformance::expect(w.rules() == rules, "rank 0's rules everywhere");
    conformance::expect(w.channel("c").rules() == rules, "a channel's rules");
    const world half = w.split(static_cast<int>(index_of(w.rank()) % 2), 0);
    const double first = index_of(w.rank()) % 2 == 0 ? 1 : 2;
    conformance::expect(half.rules().bytes_per_second == std::vector{first, first + 2}, "the bandwidths of a split");
  });
}

TEST_CASE("ranks that reduce by different ways end with a mismatch that names both", "[comm]") {
  // No call can bring ranks there; a state of another making can.
  std::atomic<int> named{0};
  auto carriers = in_process_transports(3);
  detail::run_threads(
      3,
      [&](std::uint32_t rank) {
        auto state = detail::channel_state::root(carriers[rank]);
        state->rules = std::make_shared<const tuning>(only(rank == 2 ? way::halving_doubling : way::ring));
        std::vector<float> values(100, 1);
        try {
          detail::all_reduce(*state, tensor_view{std::span{values}}, reduce_op::sum, traffic_class::other);
          detail::barrier(*state, traffic_class::other);
        } catch (const error& e) {
          const std::string text = e.what();
          if (e.code() == errc::mismatch && text.find("halving_doubling") != std::string::npos &&
              text.find("ring") != std::string::npos) {
            ++named;
          }
        }
      },
      [](std::uint32_t, const std::exception_ptr&) {});
  REQUIRE(named == 3);
}

TEST_CASE("rules that cannot be kept are refused before anything is sent", "[comm]") {
  world alone{std::shared_ptr<transport>{}};
  tuning wrong;
  wrong.bytes_per_second = {1, 2};
  REQUIRE_THROWS_AS(alone.tune(wrong), error);
  REQUIRE_THROWS_AS(alone.tune(only(way::ring, 1)), error);
  tuning unordered = only(way::ring);
  unordered.all_reduce.push_back({.up_to_bytes = 10});
  REQUIRE_THROWS_AS(alone.tune(unordered), error);
  run_ranks(3, [&](world& w) {
    if (w.rank() != rank_id{0}) return;
    bool refused = false;
    try {
      w.tune(only(way::two_rank));
    } catch (const error& e) {
      refused = e.code() == errc::invalid_argument;
    }
    conformance::expect(refused, "two_rank for three ranks");
  });
  REQUIRE(to_string(only(way::ring)) == "all_reduce: beyond ring in pieces of 1024 bytes");
}
