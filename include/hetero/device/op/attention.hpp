// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <hetero/core/tensor_view.hpp>

/// @file
/// Causal self-attention computed in tiles, so that no context x context matrix ever exists (arXiv 2205.14135).
namespace hetero::op {

/// out = softmax(causal(Q K^T / sqrt(head width))) V for each sample and head.
///
/// qkv [samples, context, 3 * width] holds Q, K and V of all heads side by side; out [samples, context, width];
/// log_sum_exp [samples, heads, context] is written for the backward pass.
struct attention_forward {
  tensor_view out;
  tensor_view log_sum_exp;
  tensor_view qkv;
  std::uint32_t heads = 1;
};

/// Gradient with respect to qkv, from what the forward pass left.
struct attention_backward {
  tensor_view grad_qkv;
  tensor_view grad_out;
  tensor_view qkv;
  tensor_view out;
  tensor_view log_sum_exp;
  std::uint32_t heads = 1;
};

}  // namespace hetero::op
