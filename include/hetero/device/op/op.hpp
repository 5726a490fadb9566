// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <variant>

#include <hetero/device/op/attention.hpp>
#include <hetero/device/op/cross_entropy.hpp>
#include <hetero/device/op/custom.hpp>
#include <hetero/device/op/elementwise.hpp>
#include <hetero/device/op/embedding.hpp>
#include <hetero/device/op/matmul.hpp>
#include <hetero/device/op/norm.hpp>
#include <hetero/device/op/reduction.hpp>
#include <hetero/device/op/update.hpp>

namespace hetero {

/// Everything a device can be asked to compute. The set is closed: a new op is a new alternative, and the compiler then
/// names every backend that lacks it. `op::custom_op` is the door for user code.
using device_op =
    std::variant<op::fill, op::convert, op::accumulate, op::scale, op::add, op::gelu_forward, op::gelu_backward,
                 op::relu_forward, op::relu_backward, op::dropout, op::matmul, op::column_sum, op::layer_norm_forward,
                 op::layer_norm_backward_input, op::layer_norm_backward_weight, op::rms_norm_forward,
                 op::rms_norm_backward_input, op::rms_norm_backward_weight, op::embedding_forward,
                 op::embedding_backward, op::attention_forward, op::attention_backward, op::cross_entropy,
                 op::count_correct, op::sgd_update, op::adamw_update, op::sum_squares, op::max_abs,
                 op::fixed_point_accumulate, op::fixed_point_decode, op::custom_op>;

}  // namespace hetero
