// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include <hetero/core/error.hpp>
#include <hetero/plan/cluster.hpp>
#include <hetero/plan/plan.hpp>

/// @file
/// When a rank is done with a step, as a function of its samples (Cannikin, arXiv 2402.05302).
namespace hetero {

/// Seconds a rank computes for `samples` samples; 0 for none, since an idle rank computes nothing.
///
/// Fused multiply-adds are written out here and below: a compiler that fuses on its own does so on some machines only,
/// and every rank must compute the same split.
[[nodiscard]] inline double compute_s(const compute_model& rank, std::size_t samples) noexcept {
  return samples == 0 ? 0 : std::fma(rank.per_sample_s, static_cast<double>(samples), rank.fixed_s);
}

/// Seconds until a rank with `samples` samples has finished computing and exchanging gradients.
///
/// Either its own work hides the network (only the exposed part is added), or the exchange starts when the first bucket
/// is ready and takes its whole time; the later of the two counts. Never falls when `samples` grows.
[[nodiscard]] inline double finish_s(const compute_model& rank, const communication_model& exchange,
                                     std::size_t samples) noexcept {
  const double network = exchange.overlapped_s + exchange.exposed_s;
  if (samples == 0) return network;
  const double before_first_bucket = std::fma(-rank.backward_share, 1 - exchange.first_bucket_at, 1.0);
  const double until_first_bucket =
      std::fma(rank.per_sample_s * before_first_bucket, static_cast<double>(samples), rank.fixed_s);
  return std::max(compute_s(rank, samples) + exchange.exposed_s, until_first_bucket + network);
}

/// Predicted seconds of one step of a plan with one stage per replica: the finish of its last rank.
/// @throws error plan_does_not_fit when the plan and the cluster have different numbers of ranks
[[nodiscard]] inline double predicted_step_s(const plan& p, const cluster& machines) {
  require(p.roles.size() == machines.ranks.size(), errc::plan_does_not_fit, [&] {
    return "the plan is for " + std::to_string(p.roles.size()) + " ranks, the cluster has " +
           std::to_string(machines.ranks.size());
  });
  double latest = 0;
  for (std::size_t i = 0; i < machines.ranks.size(); ++i) {
    const std::size_t share = p.share_of(rank_id{static_cast<std::uint32_t>(i)});
    latest = std::max(latest, finish_s(machines.ranks[i].compute, machines.exchange, share));
  }
  return latest;
}

/// Checks that every rank of the cluster carries a measurement a splitter can use. An infinite time per sample is
/// legal and means a rank that cannot take part.
/// @throws error invalid_argument naming the rank and the value
inline void require_measured(const cluster& machines) {
  const auto refuse = [](const std::string& text) { throw error{errc::invalid_argument, text}; };
  for (std::size_t i = 0; i < machines.ranks.size(); ++i) {
    const auto& rank = machines.ranks[i];
    const std::string who = "rank " + std::to_string(i) + " (" + rank.device + ") ";
    if (!(rank.compute.per_sample_s > 0)) {  // also true for NaN
      refuse(who + "needs " + std::to_string(rank.compute.per_sample_s) +
             " s per sample, which is no measurement; profile the device first, or split evenly");
    }
    if (!(rank.compute.fixed_s >= 0) || std::isinf(rank.compute.fixed_s)) {
      refuse(who + "has a fixed time of " + std::to_string(rank.compute.fixed_s) + " s per step; 0 or more is needed");
    }
    if (!(rank.compute.backward_share >= 0 && rank.compute.backward_share <= 1)) {
      refuse(who + "has a backward share of " + std::to_string(rank.compute.backward_share) +
             "; a number from 0 to 1 is needed");
    }
  }
  const auto& exchange = machines.exchange;
  if (!(exchange.overlapped_s >= 0) || !(exchange.exposed_s >= 0) || std::isinf(exchange.overlapped_s) ||
      std::isinf(exchange.exposed_s) || !(exchange.first_bucket_at >= 0 && exchange.first_bucket_at <= 1)) {
    refuse("the gradient exchange is modelled as " + std::to_string(exchange.overlapped_s) + " s overlapped, " +
           std::to_string(exchange.exposed_s) + " s exposed, first bucket at " +
           std::to_string(exchange.first_bucket_at) + "; times from 0 up and a fraction from 0 to 1 are needed");
  }
}

}  // namespace hetero
