// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/partition/concepts.hpp>
#include <hetero/partition/finish_time.hpp>
#include <hetero/partition/largest_count.hpp>

namespace hetero {

namespace detail {

/// The smallest non-negative double for which `enough` holds, given that it holds for `high` and, once true, stays
/// true. Exact: halves the *bit pattern*, which is ordered as the values are, so no tolerance is involved.
template <class Predicate> [[nodiscard]] double smallest_double(double high, Predicate enough) {
  if (enough(0.0)) return 0.0;
  std::uint64_t low_bits = 0;
  std::uint64_t high_bits = std::bit_cast<std::uint64_t>(high);
  while (high_bits - low_bits > 1) {
    const std::uint64_t middle = low_bits + (high_bits - low_bits) / 2;
    (enough(std::bit_cast<double>(middle)) ? high_bits : low_bits) = middle;
  }
  return std::bit_cast<double>(high_bits);
}

}  // namespace detail

/// The split whose last rank finishes first (OptPerf of Cannikin, arXiv 2402.05302), exact in whole samples.
///
/// It sees what a ratio of speeds cannot: fixed costs per step, and ranks that wait for the network anyway and may
/// therefore take more. A rank that one sample would make the last one of all gets none.
///
/// Among the splits with the least step time it takes the one in which ranks that must wait for the network compute
/// evenly; what is then still equal goes to the lower rank. Cost: about 64 log2(samples) evaluations per rank.
struct optperf_splitter {
  /// The split without limits. @throws error as the other overload
  [[nodiscard]] std::vector<std::size_t> split(std::size_t samples, const cluster& machines) const {
    return split(samples, machines, {});
  }

  /// The split in which rank i takes at most `limits[i]` samples; no limits when the span is empty.
  /// @throws error invalid_argument when a rank has no usable measurement or the limits are not one per rank
  /// @throws error plan_does_not_fit when the ranks together cannot take the samples, saying how many they can
  [[nodiscard]] std::vector<std::size_t> split(std::size_t samples, const cluster& machines,
                                               std::span<const std::size_t> limits) const {
    require_measured(machines);
    const std::size_t ranks = machines.ranks.size();
    require(limits.empty() || limits.size() == ranks, errc::invalid_argument, [&] {
      return std::to_string(limits.size()) + " limits were given for " + std::to_string(ranks) + " ranks";
    });
    const auto finish = [&](std::size_t rank, std::size_t count) {
      return finish_s(machines.ranks[rank].compute, machines.exchange, count);
    };
    std::vector<std::size_t> most(ranks);  // what each rank could take at all
    std::size_t room = 0;
    double slowest = 0;
    for (std::size_t i = 0; i < ranks; ++i) {
      const std::size_t limit = limits.empty() ? samples : std::min(limits[i], samples);
      most[i] = detail::largest_count(limit,
                                      [&](std::size_t count) { return count == 0 || std::isfinite(finish(i, count)); });
      slowest = std::max(slowest, finish(i, most[i]));
      room += most[i];
    }
    require(room >= samples, errc::plan_does_not_fit, [&] {
      return "the " + std::to_string(ranks) + " ranks can take " + std::to_string(room) + " of " +
             std::to_string(samples) +
             " samples together; more micro-batches, a smaller global batch or more memory would help";
    });
    if (samples == 0) return std::vector<std::size_t>(ranks, 0);

    // Sample k of rank i has the level (finish with k samples, compute with k samples). Both never fall with k, so the
    // `samples` lowest levels of all ranks are a split, and no other split has a lower maximum.
    const auto taken_by = [&](std::size_t rank, auto&& fits) { return detail::largest_count(most[rank], fits); };
    const auto total = [&](auto&& level_fits) {
      std::size_t sum = 0;
      for (std::size_t i = 0; i < ranks; ++i) {
        sum += taken_by(i, [&](std::size_t count) { return count == 0 || level_fits(i, count); });
      }
      return sum;
    };
    const double step_s = detail::smallest_double(slowest, [&](double deadline) {
      return total([&](std::size_t i, std::size_t count) { return finish(i, count) <= deadline; }) >= samples;
    });
    const auto compute = [&](std::size_t rank, std::size_t count) {
      return compute_s(machines.ranks[rank].compute, count);
    };
    const auto below = [&](std::size_t i, std::size_t count, double compute_limit, bool including) {
      const double f = finish(i, count);
      const double c = compute(i, count);
      return f < step_s || (f == step_s && (including ? c <= compute_limit : c < compute_limit));
    };
    const double work_s = detail::smallest_double(step_s, [&](double limit) {
      return total([&](std::size_t i, std::size_t count) { return below(i, count, limit, true); }) >= samples;
    });

    std::vector<std::size_t> shares(ranks);
    std::size_t left = samples;
    for (std::size_t i = 0; i < ranks; ++i) {
      shares[i] = taken_by(i, [&](std::size_t count) { return count == 0 || below(i, count, work_s, false); });
      left -= shares[i];
    }
    for (std::size_t i = 0; i < ranks && left > 0; ++i) {
      const std::size_t at_most =
          taken_by(i, [&](std::size_t count) { return count == 0 || below(i, count, work_s, true); });
      const std::size_t more = std::min(left, at_most - shares[i]);
      shares[i] += more;
      left -= more;
    }
    return shares;
  }

  friend constexpr bool operator==(const optperf_splitter&, const optperf_splitter&) = default;
};

static_assert(batch_splitter<optperf_splitter>);

}  // namespace hetero
