// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hetero/core/tensor_view.hpp>
#include <hetero/device/op/op.hpp>
#include <hetero/plan/policy.hpp>

namespace hetero {

/// One element range to update: views of equal counts, and what the step knows.
struct update_request {
  tensor_view param;
  tensor_view grad;                   ///< gradient of the sum of losses over all ranks
  std::span<const tensor_view> state{};  ///< in the order of `state_names()`
  double grad_scale = 1;              ///< 1 / global weight, times the clipping factor
  double learning_rate = 0;           ///< of this step, after the schedule
  bool decays = true;                 ///< weight decay applies to this range
  std::uint64_t step = 1;             ///< counts from 1
};

/// An optimizer: a plain value of options, the names of the state it needs per element, and the op that updates a range.
/// It keys nothing by buffer or bucket: any division into ranges gives the same bits.
template <class O>
concept optimizer = std::same_as<typename O::policy_kind, optimizer_policy> &&
                    requires(const O& o, const update_request& request) {
                      { o.learning_rate } -> std::convertible_to<double>;
                      { o.state_names() } -> std::same_as<std::vector<std::string>>;
                      { o.update(request) } -> std::same_as<device_op>;
                    };

}  // namespace hetero
