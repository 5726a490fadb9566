// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include <hetero/comm/algorithm/all_to_all_all_reduce.hpp>
#include <hetero/comm/algorithm/doubling_all_reduce.hpp>
#include <hetero/comm/algorithm/halving_doubling_all_reduce.hpp>
#include <hetero/comm/algorithm/multi_color_all_reduce.hpp>
#include <hetero/comm/algorithm/ring_all_reduce.hpp>
#include <hetero/comm/algorithm/two_rank_all_reduce.hpp>
#include <hetero/comm/algorithm/weighted_all_reduce.hpp>
#include <hetero/comm/channel_state.hpp>
#include <hetero/comm/collectives.hpp>
#include <hetero/comm/tuning.hpp>
#include <hetero/core/tensor_view.hpp>

/// @file
/// `all_reduce` over a channel: the way its rules choose.
namespace hetero::detail {

template <exchange Exchange, class T>
void all_reduce_by(Exchange& run, std::span<T> values, reduce_op op, const all_reduce_choice& how,
                   const tuning& rules) {
  switch (how.algorithm) {
    case all_reduce_algorithm::doubling:
      return doubling_all_reduce(run, values, op);
    case all_reduce_algorithm::two_rank:
      return two_rank_all_reduce(run, values, op, how.piece_bytes);
    case all_reduce_algorithm::halving_doubling:
      return halving_doubling_all_reduce(run, values, op);
    case all_reduce_algorithm::all_to_all:
      return all_to_all_all_reduce(run, values, op, how.piece_bytes);
    case all_reduce_algorithm::multi_color:
      return multi_color_all_reduce(run, values, op, 2, how.piece_bytes);
    case all_reduce_algorithm::weighted: {
      const std::vector<double> equal(run.world_size(), 1.0);
      const std::span<const double> ports =
          rules.bytes_per_second.empty() ? std::span<const double>{equal} : std::span{rules.bytes_per_second};
      return weighted_all_reduce(run, values, op, all_reduce_shares(ports), how.piece_bytes);
    }
    case all_reduce_algorithm::automatic:
    case all_reduce_algorithm::ring:
      break;
  }
  ring_all_reduce(run, values, op, how.piece_bytes);
}

inline void all_reduce(channel_state& c, const tensor_view& view, reduce_op op, traffic_class traffic) {
  check_view(view);
  run_collective(c, [&] {
    const all_reduce_choice how = choose_all_reduce(*c.rules, c.size(), view.type(), view.size_bytes());
    const std::uint32_t detail = static_cast<std::uint32_t>(op) | static_cast<std::uint32_t>(how.algorithm) << 8U;
    operation run = c.begin(operation_kind::all_reduce, view.type(), view.count(), detail, traffic, c.collectives++);
    visit_dtype(view.type(), [&]<class T>(T) {
      const std::span<T> values{reinterpret_cast<T*>(view.data()), view.count()};
      if constexpr (is_narrow(dtype_of<T>)) {
        if (!how.widened) return all_reduce_by(run, values, op, how, *c.rules);
        using wide = accumulator_of<T>;
        const auto sums = std::make_unique_for_overwrite<wide[]>(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) sums[i] = static_cast<wide>(values[i]);
        all_reduce_by(run, std::span{sums.get(), values.size()}, op, how, *c.rules);
        bool fits = true;
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<T>(sums[i]);
          if constexpr (std::is_integral_v<T>) fits = fits && static_cast<wide>(values[i]) == sums[i];
        }
        if (!fits) throw_overflow(dtype_of<T>);
      } else {
        all_reduce_by(run, values, op, how, *c.rules);
      }
    });
  });
}

/// Rank 0's rules become those of all ranks, here and on channels and groups made from here later.
inline void tune(channel_state& c, const tuning& wanted) {
  const auto check = [&](const tuning& t) {
    require(t.bytes_per_second.empty() || t.bytes_per_second.size() == c.size(), errc::invalid_argument, [&] {
      return "a tuning with " + std::to_string(t.bytes_per_second.size()) + " bandwidths for " +
             std::to_string(c.size()) + " ranks; give one for each, or none";
    });
    (void)all_reduce_shares(t.bytes_per_second);
    require(std::is_sorted(t.all_reduce.begin(), t.all_reduce.end(),
                           [](const tuning_row& a, const tuning_row& b) { return a.up_to_bytes < b.up_to_bytes; }),
            errc::invalid_argument,
            "the rows of a tuning are ordered by size; a row after a larger one is never asked");
    for (const tuning_row& row : t.all_reduce) {
      require(row.piece_bytes >= 64 && row.algorithm <= all_reduce_algorithm::weighted, errc::invalid_argument,
              "a tuning row needs a known algorithm and pieces of at least 64 bytes");
      require(row.algorithm != all_reduce_algorithm::two_rank || c.size() <= 2, errc::invalid_argument, [&] {
        return "two_rank is for two ranks and these are " + std::to_string(c.size()) + "; ring is its like for more";
      });
    }
  };
  if (c.rank == 0) check(wanted);
  std::string bytes = encode(wanted);
  auto length = static_cast<std::int64_t>(bytes.size());
  broadcast(c, tensor_view{std::span{&length, 1}}, 0, traffic_class::control);
  bytes.resize(static_cast<std::size_t>(length));
  broadcast(c, bytes_of(bytes), 0, traffic_class::control);
  c.rules = std::make_shared<const tuning>(decode_tuning(bytes));
}

}  // namespace hetero::detail
