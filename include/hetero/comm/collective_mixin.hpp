// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <hetero/comm/async_lane.hpp>
#include <hetero/comm/collectives.hpp>
#include <hetero/comm/concepts.hpp>
#include <hetero/comm/task_options.hpp>
#include <hetero/core/weighted_sum.hpp>

namespace hetero::detail {

/// What follows from `all_reduce`, `broadcast` and `all_gather` of views, `channel` and `rank`: numbers, weighted sums,
/// texts, agreement and asynchronous operations, with the contracts of `world`. `Derived` names each overload set with
/// a using-declaration.
template <class Derived> class collective_mixin {
 public:
  template <class T>
  requires(std::integral<T> || std::floating_point<T>) && (!std::same_as<T, bool>) [[nodiscard]] T
      all_reduce(T value, reduce_op op, traffic_class traffic = traffic_class::control) {
    using wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
    if constexpr (std::is_unsigned_v<T>) {
      require(std::in_range<std::int64_t>(value), errc::invalid_argument, "a number beyond 63 bits cannot be reduced");
    }
    auto cell = static_cast<wide>(value);
    self().all_reduce(tensor_view{std::span{&cell, 1}}, op, traffic);
    if constexpr (std::is_integral_v<T>) {
      require(std::in_range<T>(cell), errc::invalid_argument,
              "the reduced number does not fit its type; pass an std::int64_t");
    }
    return static_cast<T>(cell);
  }

  [[nodiscard]] global_sum all_reduce(const weighted_sum& part, traffic_class traffic = traffic_class::control) {
    double cells[] = {part.sum, part.weight};
    self().all_reduce(tensor_view{std::span<double>{cells}}, reduce_op::sum, traffic);
    return global_sum{{cells[0], cells[1]}};
  }

  void broadcast(std::string& bytes, rank_id root, traffic_class traffic = traffic_class::control) {
    auto length = static_cast<std::int64_t>(bytes.size());
    self().broadcast(tensor_view{std::span{&length, 1}}, root, traffic);
    bytes.resize(static_cast<std::size_t>(length));
    self().broadcast(bytes_of(bytes), root, traffic);
  }

  /// Moves the longest string's length from every rank.
  [[nodiscard]] std::vector<std::string> all_gather(std::string_view bytes,
                                                    traffic_class traffic = traffic_class::control) {
    const std::size_t n = self().world_size();
    auto length = static_cast<std::int64_t>(bytes.size());
    std::vector<std::int64_t> lengths(n);
    self().all_gather(tensor_view{std::span{&length, 1}}, tensor_view{std::span{lengths}}, traffic);
    const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
    std::string own{bytes};
    own.resize(longest);
    std::string all(n * longest, '\0');
    self().all_gather(bytes_of(own), bytes_of(all), traffic);
    std::vector<std::string> parts;
    for (std::size_t r = 0; r < n; ++r) parts.push_back(all.substr(r * longest, static_cast<std::size_t>(lengths[r])));
    return parts;
  }

  void agree(std::string_view what, std::string_view value) {
    const std::vector<std::string> values = self().all_gather(value);
    for (std::size_t r = 1; r < values.size(); ++r) {
      if (values[r] == values[0]) continue;
      throw error{errc::mismatch,
                  "ranks disagree on " + std::string{what} + ": rank 0 has '" + values[0] + "' and rank " +
                      std::to_string(r) + " has '" + values[r] + "'; start every rank with the same",
                  {self().rank(), {}}};
    }
  }

  [[nodiscard]] pending all_reduce_async(const tensor_view& view, reduce_op op, const task_options& options) {
    check_view(view);
    return queue_.submit(self(), view, op, options);
  }
  [[nodiscard]] pending all_reduce_async(const tensor_view& view, reduce_op op,
                                         traffic_class traffic = traffic_class::other) {
    return all_reduce_async(view, op, task_options{.traffic = traffic});
  }

  void set_queue_order(queue_order order, std::size_t chunk_bytes = default_chunk_bytes) {
    agree("the queue order", std::string{to_string(order)} + " in chunks of " + std::to_string(chunk_bytes) + " bytes");
    queue_.reset({order, chunk_bytes});
  }

  /// Takes over how asynchronous operations take turns; they run on a new lane from here on.
  void inherit(const collective_mixin& from) { queue_.reset(from.queue_.settings()); }

 protected:
  /// What the asynchronous operations have moved.
  [[nodiscard]] traffic_counters async_counters() const noexcept { return queue_.counters(); }

 private:
  [[nodiscard]] Derived& self() noexcept { return static_cast<Derived&>(*this); }

  async_queue<Derived> queue_;
};

}  // namespace hetero::detail
