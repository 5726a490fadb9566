// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <hetero/model/layer/activation.hpp>
#include <hetero/model/layer/attention.hpp>
#include <hetero/model/layer/chain.hpp>
#include <hetero/model/layer/layer_norm.hpp>
#include <hetero/model/layer/linear.hpp>
#include <hetero/model/layer/residual.hpp>

namespace hetero {

/// A pre-norm transformer block: x + attention(norm(x)), then that + feed_forward(norm(that)).
/// [samples, context, width] -> the same.
using transformer_block = chain<residual<chain<layer_norm, linear, causal_attention, linear>>,
                                residual<chain<layer_norm, linear, gelu, linear>>>;

/// What a transformer block is made of.
struct transformer_block_options {
  std::string name;
  std::size_t heads = 1;
  std::size_t width = 0;
  std::size_t hidden = 0;  ///< width inside the feed-forward half
  double dropout = 0;      ///< on the two residual branches
  bool bias = true;
  initializer init = initializer::normal(0.02);
  initializer projection_init = initializer::normal(0.02);  ///< of the two layers that write to the residual stream
};

[[nodiscard]] inline transformer_block make_transformer_block(const transformer_block_options& o) {
  const std::string attention = o.name + ".attention";
  const std::string feed_forward = o.name + ".feed_forward";
  return transformer_block{
      residual{chain{layer_norm{.name = attention + ".norm", .width = o.width, .bias = o.bias},
                     linear{attention + ".qkv", o.width, 3 * o.width, o.bias, o.init},
                     causal_attention{.heads = o.heads, .width = o.width},
                     linear{attention + ".projection", o.width, o.width, o.bias, o.projection_init}},
               dropout{attention + ".dropout", o.dropout}},
      residual{chain{layer_norm{.name = feed_forward + ".norm", .width = o.width, .bias = o.bias},
                     linear{feed_forward + ".expand", o.width, o.hidden, o.bias, o.init}, gelu{},
                     linear{feed_forward + ".projection", o.hidden, o.width, o.bias, o.projection_init}},
               dropout{feed_forward + ".dropout", o.dropout}}};
}

static_assert(layer<transformer_block>, "a transformer block models the layer concept");

}  // namespace hetero
