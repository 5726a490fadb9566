// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"

#include <hetero/comm/counted.hpp>
#include <hetero/comm/hierarchical.hpp>
#include <hetero/comm/island_model.hpp>
#include <hetero/comm/run_ranks.hpp>
#include <hetero/comm/shaped.hpp>

#include <chrono>
#include <cstring>
#include <vector>

using namespace hetero;
using conformance::expect;

namespace {

using namespace std::chrono_literals;
using two_levels = hierarchical_communicator<world>;
using three_levels = hierarchical_communicator<two_levels, world>;

static_assert(async_all_reducer<two_levels> && broadcaster<two_levels> && all_gatherer<two_levels> &&
              barrier_capable<two_levels> && reducer<two_levels> && gatherer<two_levels>);
static_assert(async_all_reducer<three_levels> && async_all_reducer<counted<two_levels>>);

/// What every communicator does, but the closed forms of a flat one.
template <class C> void check_results(C& c) {
  conformance::all_reduce_matches_reference(c);
  conformance::large_all_reduce_is_equal_everywhere(c);
  conformance::narrow_sums_round_once(c);
  conformance::nan_survives_max_and_min(c);
  conformance::broadcast_reaches_everybody(c);
  conformance::all_gather_keeps_rank_order(c);
  conformance::messages_keep_their_order(c);
  conformance::channels_are_independent(c);
  conformance::split_forms_groups(c);
  conformance::async_runs_in_order_beside_blocking_calls(c);
  c.set_queue_order(queue_order::priority, 1024);
  conformance::async_runs_in_order_beside_blocking_calls(c);
}

/// Runs on the ranks of `island_of`, one for each entry.
template <class Body> void on_islands(std::vector<int> island_of, Body body) {
  run_ranks(static_cast<std::uint32_t>(island_of.size()), [&](world& w, rank_id rank) {
    two_levels h = make_hierarchical(w, island_of[index_of(rank)]);
    body(h, w);
  });
}

}  // namespace

TEST_CASE("islands of any size and order are one communicator", "[comm]") {
  const auto islands =
      GENERATE(std::vector<int>{0}, std::vector<int>{0, 1}, std::vector<int>{3, 3}, std::vector<int>{0, 1, 1},
               std::vector<int>{1, 0, 1, 0}, std::vector<int>{0, 0, 0, 7, 7}, std::vector<int>{2, 1, 0, 2, 1, 2, 2});
  REQUIRE_NOTHROW(on_islands(islands, [](two_levels& h, world&) { check_results(h); }));
}

TEST_CASE("no rank passes a barrier over islands early", "[comm]") {
  REQUIRE_NOTHROW(conformance::barrier_holds<two_levels>(
      [](std::uint32_t n, const std::function<void(two_levels&)>& body) {
        run_ranks(n, [&](world& w, rank_id rank) {
          two_levels h = make_hierarchical(w, static_cast<int>(index_of(rank) % 2));
          body(h);
        });
      },
      5));
}

TEST_CASE("islands nest", "[comm]") {
  REQUIRE_NOTHROW(run_ranks(7, [](world& w, rank_id rank) {
    const int site[] = {0, 0, 0, 1, 1, 1, 1};
    const int host[] = {0, 1, 1, 0, 1, 0, 1};
    three_levels h = make_hierarchical(w, site[index_of(rank)], host[index_of(rank)]);
    expect(h.islands() == 2 && h.leads() == (rank == rank_id{0} || rank == rank_id{3}), "two sites");
    check_results(h);
  }));
}

TEST_CASE("between islands go the bytes that leaders must exchange, and no more", "[comm]") {
  for (const std::size_t count : {std::size_t{600}, std::size_t{1'200'000}}) {  // in one piece, and in five
    REQUIRE_NOTHROW(on_islands({0, 1, 0, 1, 0, 1}, [&](two_levels& h, world& w) {
      std::vector<float> values(count, 1);
      const double bytes = static_cast<double>(values.size() * sizeof(float));
      const auto before = h.between_islands();
      h.all_reduce(tensor_view{std::span{values}}, reduce_op::sum, traffic_class::gradient);
      const auto crossed = (h.between_islands() - before).total();
      expect(values.back() == 6, "the sum");
      const double predicted = h.leads() ? hierarchical_bytes(bytes, 2) : 0;
      expect(static_cast<double>(crossed.bytes_sent) == predicted &&
                 static_cast<double>(crossed.bytes_received) == predicted,
             "2(k-1)/k S for each leader");

      if (count < 1000) return;  // short ones trade bytes for rounds
      // Control: a flat ring in this order crosses three times each way, and in the best order once.
      const auto flat_before = w.counters();
      w.all_reduce(tensor_view{std::span{values}}, reduce_op::sum, traffic_class::gradient);
      const auto flat = (w.counters() - flat_before).total();
      const std::uint32_t alternating[] = {0, 1, 0, 1, 0, 1}, grouped[] = {0, 0, 0, 1, 1, 1};
      expect(3 * static_cast<double>(flat.bytes_sent) == flat_ring_bytes(bytes, alternating), "three edges out");
      expect(static_cast<double>(flat.bytes_sent) == flat_ring_bytes(bytes, grouped), "one edge out");
      expect(predicted * 5 / 3 <= flat_ring_bytes(bytes, grouped), "5/3 as much at best");
    }));
  }
}

TEST_CASE("equal bits on all ranks and in every run, for sums that round", "[comm]") {
  std::vector<std::vector<float>> results(5);
  for (auto& first : results) {
    on_islands({0, 1, 1, 2, 2}, [&](two_levels& h, world& w) {
      std::vector<float> values(700'001);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = 1.0F / static_cast<float>(1 + (i * 31 + index_of(h.rank()) * 17) % 1009);
      h.all_reduce(tensor_view{std::span{values}}, reduce_op::sum);
      std::vector<float> of_root = values;
      w.broadcast(tensor_view{std::span{of_root}}, rank_id{4});
      expect(std::memcmp(of_root.data(), values.data(), values.size() * sizeof(float)) == 0, "equal bits");
      if (h.rank() == rank_id{0}) first = values;
    });
  }
  for (const auto& r : results) REQUIRE(std::memcmp(r.data(), results[0].data(), r.size() * sizeof(float)) == 0);
}

TEST_CASE("the islands work while pieces are between leaders", "[comm]") {
  // Emulated: 1 MB in eight pieces, 80 ms between the leaders and 80 ms for each child of a leader, up and down.
  double seconds = 0;
  run_ranks(4, [&](world& w, rank_id rank) {
    shaped far{w.channel("far"), link_shape{.bytes_per_second = 12.5e6}};
    shaped near{w.split(static_cast<int>(index_of(rank) / 2), 0), link_shape{.bytes_per_second = 25e6}};
    hierarchical_communicator<shaped<world>> h{std::move(far), std::move(near), {.piece_bytes = 125'000}};
    std::vector<float> values(250'000, 1);
    w.barrier();
    const auto start = std::chrono::steady_clock::now();
    h.all_reduce(tensor_view{std::span{values}}, reduce_op::sum);
    if (rank == rank_id{0}) seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    expect(values[0] == 4 && values.back() == 4, "the sum");
  });
  const island_links links{.between_bytes_per_second = 12.5e6, .inside_bytes_per_second = 25e6};
  const double predicted = hierarchical_seconds(1e6, 2, 2, links, 125e3);
  INFO("emulated " << seconds << " s, predicted " << predicted << " s");
  REQUIRE(predicted < 0.1);
  REQUIRE(seconds > 0.95 * predicted);
  REQUIRE(seconds < 0.16 * conformance::patience / 3);  // control: one after the other takes 160 ms
}

TEST_CASE("errors reach every rank of every island", "[comm]") {
  const conformance::rank_runner<two_levels> run = [](std::uint32_t n, const std::function<void(two_levels&)>& body) {
    run_ranks(n, [&](world& w, rank_id rank) {
      two_levels h = make_hierarchical(w, static_cast<int>(index_of(rank) / 2));
      body(h);
    });
  };
  const auto everywhere = [&](errc code, const std::vector<std::string>& words,
                              const std::function<void(two_levels&)>& body) {
    const auto result = conformance::errors_of<two_levels>(run, 5, [&](two_levels& h) {
      h.barrier();  // until all are there
      body(h);
    });
    REQUIRE_NOTHROW(conformance::expect_errors(result, code, words));
  };
  everywhere(errc::mismatch, {"of 100 f32", "of 101 f32"}, [](two_levels& h) {
    std::vector<float> values(h.rank() == rank_id{3} ? 101 : 100, 1);
    h.all_reduce(tensor_view{std::span{values}}, reduce_op::sum);
    h.barrier();
  });
  everywhere(errc::invalid_argument, {"does not fit i8"}, [](two_levels& h) {
    std::vector<std::int8_t> values(64, 100);
    h.all_reduce(tensor_view{std::span{values}}, reduce_op::sum);
    h.barrier();
  });
  everywhere(errc::aborted, {"the disk is full"}, [](two_levels& h) {
    if (h.rank() == rank_id{4}) h.abort("the disk is full");
    h.barrier();
  });
  everywhere(errc::mismatch, {"plan hash", "rank 0 has '1'", "rank 3 has '2'"}, [](two_levels& h) {
    h.agree("plan hash", "same");
    h.agree("plan hash", h.rank() == rank_id{3} ? "2" : "1");
  });
  REQUIRE_THROWS_WITH(run_ranks(2,
                                [](world& w) {
                                  two_levels{w.channel("all"), w.channel("inner"), {.piece_bytes = 4}};
                                }),
                      ContainsSubstring("8 bytes or more"));
}

TEST_CASE("the island model gives the bounds of two islands of three", "[comm]") {
  const island_links slow{.between_bytes_per_second = 12.5e6};
  const std::uint32_t best[] = {0, 0, 0, 1, 1, 1}, bad[] = {0, 1, 0, 1, 0, 1};
  const double h = hierarchical_seconds(100e6, 2, 3, slow);
  REQUIRE(h == Approx(8.0));
  REQUIRE(flat_ring_seconds(100e6, best, slow) / h == Approx(5.0 / 3));
  REQUIRE(flat_ring_seconds(100e6, bad, slow) / h == Approx(5.0));
  REQUIRE(ring_crossings(std::vector<std::uint32_t>{0, 0}) == 0);
  REQUIRE(hierarchical_seconds(100e6, 1, 1, slow) == 0);
}
