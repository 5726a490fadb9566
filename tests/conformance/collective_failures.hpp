// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <hetero/comm/concepts.hpp>

#include "conformance/collectives.hpp"

/// @file
/// What must fail in the collectives over one part per rank, and what must not bring anybody down.
namespace hetero::conformance {

/// Arguments that are wrong by themselves: this rank alone hears of it, nothing was sent, and the right call works.
template <class C> void wrong_arguments_harm_nobody_else(C& c) {
  const std::uint32_t n = c.world_size();
  const auto refused = [&](errc code, const std::string& word, const std::function<void()>& body) {
    const traffic_counters before = c.counters();
    try {
      body();
      expect(false, "must be refused: " + word);
    } catch (const error& e) {
      expect(e.code() == code, std::string{"the code of "} + e.what());
      expect(std::string{e.what()}.find(word) != std::string::npos, "'" + word + "' is not in: " + e.what());
    }
    expect(c.counters() == before, "nothing was sent");
  };
  std::vector<float> whole(3 * n, 1);
  std::vector<float> part(3, 1);
  std::vector<float> longer(4, 1);
  std::vector<double> other(3, 1);
  const std::vector<std::size_t> three(n, 3);
  const std::vector<std::size_t> too_few(n - 1, 3);
  const std::vector<std::size_t> negative(n, static_cast<std::size_t>(-1));
  if (number_of(c) == n - 1) {
    refused(errc::invalid_shape, "reduce_scatter",
            [&] { c.reduce_scatter(view_of(whole), view_of(longer), reduce_op::sum); });
    refused(errc::invalid_shape, "f64", [&] { c.reduce_scatter(view_of(whole), view_of(other), reduce_op::sum); });
    refused(errc::invalid_shape, "whose view has 4",
            [&] { c.reduce_scatter_v(view_of(whole), view_of(longer), three, reduce_op::sum); });
    refused(errc::invalid_argument, "pass one for each",
            [&] { c.all_gather_v(view_of(part), view_of(whole), too_few); });
    refused(errc::invalid_argument, "a negative number",
            [&] { c.all_gather_v(view_of(part), view_of(whole), negative); });
    refused(errc::invalid_shape, "add up to", [&] { c.all_gather_v(view_of(part), view_of(longer), three); });
    refused(errc::invalid_argument, "overlap",
            [&] { c.reduce_scatter(view_of(whole), tensor_view{std::span{whole}.subspan(1, 3)}, reduce_op::sum); });
    refused(errc::invalid_argument, "root " + std::to_string(n),
            [&] { c.gather(view_of(part), view_of(whole), rank_id{n}); });
    refused(errc::invalid_shape, "gather", [&] { c.gather(view_of(part), view_of(longer), rank_id{n - 1}); });
    refused(errc::invalid_shape, "scatter", [&] { c.scatter(view_of(whole), view_of(longer), rank_id{n - 1}); });
    refused(errc::invalid_argument, "overlap", [&] { c.all_to_all(view_of(whole), view_of(whole)); });
    refused(errc::invalid_shape, "use all_to_all_v", [&] { c.all_to_all(view_of(part), view_of(whole)); });
    std::vector<std::size_t> keeps_more = three;
    ++keeps_more[n - 1];
    std::vector<float> received(3 * n + 1);
    refused(errc::invalid_argument, "to itself",
            [&] { c.all_to_all_v(view_of(whole), three, view_of(received), keeps_more); });
    const auto with = [&](std::uint32_t peer) { return neighbour{rank_id{peer}, view_of(part), view_of(longer)}; };
    refused(errc::invalid_argument, "is not another rank", [&] {
      const std::vector<neighbour> own{with(n - 1)};
      c.neighbour_exchange(std::span<const neighbour>{own});
    });
    refused(errc::invalid_argument, "list a rank once", [&] {
      const std::vector<neighbour> twice{with(0), with(0)};
      c.neighbour_exchange(std::span<const neighbour>{twice});
    });
  }
  c.reduce_scatter(view_of(whole), view_of(part), reduce_op::sum);
  expect(part[2] == static_cast<float>(n), "the world goes on");
}

/// The failures that all ranks must see, in this call or their next. Needs two ranks or more.
template <class C> void check_part_failures(const rank_runner<C>& run, std::uint32_t ranks) {
  const std::uint32_t odd = ranks - 1;  // the rank that does something else
  const auto everywhere = [&](errc code, const std::vector<std::string>& words, const std::function<void(C&)>& body) {
    expect_errors(errors_of<C>(run, ranks,
                               [&](C& c) {
                                 body(c);
                                 c.barrier();
                                 c.barrier();
                               }),
                  code, words);
  };
  const auto counts_of = [&](C& c, bool same_total) {
    std::vector<std::size_t> counts(ranks, 10);
    if (number_of(c) == odd) {
      ++counts[0];
      if (same_total) --counts[odd];
    }
    return counts;
  };
  const auto totals = [&](const char* name) {
    return std::vector<std::string>{std::string{name} + " of " + std::to_string(10 * ranks) + " f32",
                                    std::string{name} + " of " + std::to_string(10 * ranks + 1) + " f32"};
  };
  const std::string agree = "the totals agree and the counts per rank do not";

  run(ranks, [](C& c) { wrong_arguments_harm_nobody_else(c); });
  for (const bool same : {false, true}) {
    everywhere(errc::mismatch, same ? std::vector{agree} : totals("all_gather_v"), [&](C& c) {
      const auto counts = counts_of(c, same);
      std::vector<float> in(counts[number_of(c)]), out(sum_of(counts));
      c.all_gather_v(view_of(in), view_of(out), counts);
    });
    everywhere(errc::mismatch, same ? std::vector{agree} : totals("reduce_scatter_v(sum)"), [&](C& c) {
      const auto counts = counts_of(c, same);
      std::vector<float> in(sum_of(counts)), out(counts[number_of(c)]);
      c.reduce_scatter_v(view_of(in), view_of(out), counts, reduce_op::sum);
    });
    everywhere(errc::mismatch, same ? std::vector{agree} : totals("gather_v(root 0)"), [&](C& c) {
      const auto counts = counts_of(c, same);
      std::vector<float> in(counts[number_of(c)]), out(sum_of(counts));
      c.gather_v(view_of(in), view_of(out), counts, rank_id{0});
    });
    everywhere(errc::mismatch, same ? std::vector{agree} : totals("scatter_v(root 0)"), [&](C& c) {
      const auto counts = counts_of(c, same);
      std::vector<float> in(sum_of(counts)), out(counts[number_of(c)]);
      c.scatter_v(view_of(in), view_of(out), counts, rank_id{0});
    });
  }
  // Who finds it knows its own counts, and every rank adds those it passed.
  everywhere(errc::mismatch, {"the counts of rank "}, [&](C& c) {
    const auto counts = counts_of(c, true);
    std::vector<float> in(counts[number_of(c)]), out(sum_of(counts));
    c.all_gather_v(view_of(in), view_of(out), counts);
    c.all_gather_v(view_of(in), view_of(out), counts);
  });
  everywhere(errc::mismatch, {"all_to_all_v of 10 f32", "all_to_all_v of 11 f32"}, [&](C& c) {
    std::vector<std::size_t> send(ranks, 10), recv(ranks, 10);
    if (number_of(c) == odd) ++send[0];
    std::vector<float> in(sum_of(send)), out(sum_of(recv));
    c.all_to_all_v(view_of(in), send, view_of(out), recv);
  });
  everywhere(errc::mismatch, {"reduce_scatter(max)", "reduce_scatter(sum)"}, [&](C& c) {
    std::vector<float> in(ranks), out(1);
    c.reduce_scatter(view_of(in), view_of(out), number_of(c) == odd ? reduce_op::max : reduce_op::sum);
  });
  everywhere(errc::mismatch, {"all_to_all of ", "reduce_scatter(sum) of "}, [&](C& c) {
    std::vector<float> in(ranks), out(ranks);
    if (number_of(c) == odd) return c.all_to_all(view_of(in), view_of(out));
    c.reduce_scatter(view_of(in), tensor_view{std::span{out}.first(1)}, reduce_op::sum);
  });
  // Different roots: without the empty message around the ring, all would wait for each other.
  // Among more than three, one that is done may bring its next call before a root that waits for everybody.
  const auto roots = [&](const std::string& name) {
    if (ranks > 3) return std::vector{name + "(root "};
    return std::vector{name + "(root 0)", name + "(root " + std::to_string(odd) + ')'};
  };
  everywhere(errc::mismatch, roots("gather"), [&](C& c) {
    std::vector<float> in(3), out(3 * ranks);
    c.gather(view_of(in), view_of(out), rank_id{number_of(c) == odd ? odd : 0});
  });
  everywhere(errc::mismatch, roots("scatter"), [&](C& c) {
    std::vector<float> in(3 * ranks), out(3);
    c.scatter(view_of(in), view_of(out), rank_id{number_of(c) == odd ? odd : 0});
  });
  everywhere(errc::mismatch, roots("reduce(sum)"), [&](C& c) {
    std::vector<float> values(300);
    c.reduce(view_of(values), reduce_op::sum, rank_id{number_of(c) == odd ? odd : 0});
  });
  everywhere(errc::mismatch, {"neighbour_exchange of 3 f32", "neighbour_exchange of 4 f32"}, [&](C& c) {
    if (number_of(c) > 1) return c.neighbour_exchange(std::span<const neighbour>{});
    std::vector<float> out(number_of(c) == 0 ? 3 : 4), in(4);
    const std::vector<neighbour> one{{rank_id{1 - number_of(c)}, view_of(out), view_of(in)}};
    c.neighbour_exchange(std::span<const neighbour>{one});
  });
  everywhere(errc::timeout, {"waited 50 ms in neighbour_exchange of 4 f32"}, [&](C& c) {
    // Rank 1 does not list rank 0, and all others wait where rank 0 does not come.
    C elsewhere = c.channel("elsewhere");
    c.set_timeout(std::chrono::milliseconds{50});
    if (number_of(c) != 0) return elsewhere.barrier();
    std::vector<float> out(4), in(4);
    const std::vector<neighbour> one{{rank_id{1}, view_of(out), view_of(in)}};
    c.neighbour_exchange(std::span<const neighbour>{one});
  });
  everywhere(errc::invalid_argument, {"does not fit i8"}, [&](C& c) {
    std::vector<std::int8_t> in(5 * ranks, 100), out(5);
    c.reduce_scatter(view_of(in), view_of(out), reduce_op::sum);
  });
  everywhere(errc::invalid_argument, {"does not fit i64"}, [&](C& c) {
    std::vector<std::int64_t> in(5 * ranks, std::numeric_limits<std::int64_t>::max()), out(5);
    c.reduce_scatter(view_of(in), view_of(out), reduce_op::sum);
  });
  everywhere(errc::invalid_argument, {"does not fit i32"}, [&](C& c) {
    std::vector<std::int32_t> values(64, number_of(c) == odd ? 1 : std::numeric_limits<std::int32_t>::max());
    c.reduce(view_of(values), reduce_op::sum, rank_id{0});
  });
}

}  // namespace hetero::conformance
