// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <hetero/device/pool.hpp>
#include <hetero/optim/adamw.hpp>
#include <hetero/optim/clip.hpp>
#include <hetero/optim/learning_rate.hpp>
#include <hetero/partition/partitioners.hpp>
#include <hetero/partition/rebalance.hpp>
#include <hetero/plan/policy.hpp>
#include <hetero/schedule/one_f_one_b.hpp>
#include <hetero/shard/replicated.hpp>
#include <hetero/sync/all_reduce.hpp>
#include <hetero/trainer/describe_policy.hpp>
#include <hetero/trainer/options.hpp>

/// @file
/// Which policy a trainer uses for each kind: the one it was given, or the default. Order is free.
namespace hetero::detail {

template <class T, class Kind>
inline constexpr bool is_policy = policy_of_kind<std::remove_cvref_t<T>, Kind>;

template <class Kind, class... Args>
inline constexpr std::size_t policies_given = (std::size_t{0} + ... + (is_policy<Args, Kind> ? 1 : 0));

template <class T, class... Args>
inline constexpr std::size_t values_given = (std::size_t{0} + ... + (std::same_as<std::remove_cvref_t<Args>, T> ? 1 : 0));

/// The type among `Args` of that kind, or `Default`.
template <class Kind, class Default, class... Args>
struct select_policy {
  using type = Default;
};
template <class Kind, class Default, class First, class... Rest>
struct select_policy<Kind, Default, First, Rest...> {
  using type = std::conditional_t<is_policy<First, Kind>, std::remove_cvref_t<First>,
                                  typename select_policy<Kind, Default, Rest...>::type>;
};

/// The value among `args` of type T, or `T{}`.
template <class T, class... Args>
[[nodiscard]] constexpr T pick(const Args&... args) {
  T result{};
  const auto take = [&](const auto& candidate) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(candidate)>, T>) result = candidate;
  };
  (take(args), ...);
  return result;
}

/// The device among `args`, or the first one that is found.
template <class... Args>
[[nodiscard]] any_device pick_device(const Args&... args) {
  std::optional<any_device> chosen;
  const auto take = [&](const auto& candidate) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(candidate)>, any_device>) chosen = candidate;
  };
  (take(args), ...);
  return chosen ? *std::move(chosen) : make_device(default_pool().front());
}

/// The policies of a trainer: their types, their values, and the sentences with which the compiler refuses what has no
/// meaning.
template <class... Args>
struct policy_set {
  using partitioner_type = typename select_policy<partitioner_policy, balanced_partitioner, Args...>::type;
  using scheduler_type = typename select_policy<scheduler_policy, one_f_one_b_scheduler, Args...>::type;
  using sharding_type = typename select_policy<sharding_policy, replicated_sharding, Args...>::type;
  using synchronizer_type = typename select_policy<synchronizer_policy, all_reduce_synchronizer, Args...>::type;
  using optimizer_type = typename select_policy<optimizer_policy, adamw, Args...>::type;
  using learning_rate_type = typename select_policy<learning_rate_policy, constant_rate, Args...>::type;
  using clipping_type = typename select_policy<clipping_policy, clip_norm, Args...>::type;
  using rebalancing_type = typename select_policy<rebalancing_policy, rebalancer, Args...>::type;

  static_assert(policies_given<partitioner_policy, Args...> <= 1, "hetero::trainer was given two partitioners; pass one");
  static_assert(policies_given<scheduler_policy, Args...> <= 1, "hetero::trainer was given two schedulers; pass one");
  static_assert(policies_given<sharding_policy, Args...> <= 1, "hetero::trainer was given two sharding policies; pass one");
  static_assert(policies_given<synchronizer_policy, Args...> <= 1, "hetero::trainer was given two synchronizers; pass one");
  static_assert(policies_given<optimizer_policy, Args...> <= 1, "hetero::trainer was given two optimizers; pass one");
  static_assert(policies_given<learning_rate_policy, Args...> <= 1, "hetero::trainer was given two learning-rate schedules; pass one");
  static_assert(policies_given<clipping_policy, Args...> <= 1, "hetero::trainer was given two clipping policies; pass one");
  static_assert(policies_given<rebalancing_policy, Args...> <= 1, "hetero::trainer was given two rebalancers; pass one");
  static_assert(values_given<trainer_options, Args...> <= 1, "hetero::trainer was given two trainer_options; pass one");
  static_assert(values_given<any_device, Args...> <= 1, "hetero::trainer was given two devices; one rank drives one");

  static_assert(synchronizer_type::exact || sharding_type::replicates_parameters,
                "this synchronizer merges whole parameters, but the sharding policy does not keep them whole on a rank; "
                "use replicated_sharding or an exact synchronizer");

  partitioner_type partition;
  scheduler_type schedule;
  sharding_type shard;
  synchronizer_type synchronize;
  optimizer_type optimize;
  learning_rate_type learning_rate;
  clipping_type clip;
  rebalancing_type rebalance;

  explicit policy_set(const Args&... args)
      : partition{pick<partitioner_type>(args...)},
        schedule{pick<scheduler_type>(args...)},
        shard{pick<sharding_type>(args...)},
        synchronize{pick<synchronizer_type>(args...)},
        optimize{pick<optimizer_type>(args...)},
        learning_rate{pick<learning_rate_type>(args...)},
        clip{pick<clipping_type>(args...)},
        rebalance{pick<rebalancing_type>(args...)} {}

  /// The base learning rate times the schedule's factor; steps count from 1.
  [[nodiscard]] double rate_at(std::uint64_t step) const {
    return static_cast<double>(optimize.learning_rate) * learning_rate.at(step);
  }

  /// What ranks compare of the policies that shape the mathematics.
  [[nodiscard]] std::string describe() const {
    return "optimizer " + describe_policy(optimize) + " with state " + std::to_string(optimize.state_names().size()) +
           ", learning-rate schedule " + describe_policy(learning_rate) + ", clipping " + describe_policy(clip) +
           ", scheduler " + describe_policy(schedule) + ", sharding " + describe_policy(shard) + ", synchronizer " +
           describe_policy(synchronize);
  }

  template <class A>
  static constexpr bool is_known =
      is_policy<A, partitioner_policy> || is_policy<A, scheduler_policy> || is_policy<A, sharding_policy> ||
      is_policy<A, synchronizer_policy> || is_policy<A, optimizer_policy> ||
      is_policy<A, learning_rate_policy> || is_policy<A, clipping_policy> || is_policy<A, rebalancing_policy> ||
      std::same_as<std::remove_cvref_t<A>, trainer_options> || std::same_as<std::remove_cvref_t<A>, any_device>;
  static_assert((is_known<Args> && ...),
                "hetero::trainer takes policies, trainer_options and an any_device; one argument is none of these "
                "(a policy declares `using policy_kind = ...;`)");
};

}  // namespace hetero::detail
