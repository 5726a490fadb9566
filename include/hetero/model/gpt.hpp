// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <hetero/model/layer/embedding.hpp>
#include <hetero/model/layer/tied_head.hpp>
#include <hetero/model/layer/transformer_block.hpp>
#include <hetero/model/loss/softmax_cross_entropy.hpp>

namespace hetero {

/// Sizes of a GPT. The defaults are GPT-2's smallest.
struct gpt_options {
  std::size_t layers = 12;
  std::size_t heads = 12;
  std::size_t width = 768;
  std::size_t context = 1024;
  std::size_t vocabulary = 50257;
  double dropout = 0;                ///< after the embedding and on each residual branch
  bool bias = true;                  ///< in linear layers and norms
  std::int32_t ignored_target = -1;  ///< targets that count in neither loss nor weight
  friend bool operator==(const gpt_options&, const gpt_options&) = default;
};

/// A decoder-only transformer with GPT-2's structure and initialisation (pre-norm blocks, learned positions, head tied
/// to the token table). Tokens i32 [samples, context] -> logits [samples, context, vocabulary]; shorter contexts are
/// legal.
///
/// Its units are the embedding, one transformer block per layer, and the head (final norm and tied projection).
class gpt {
 public:
  using head_type = chain<layer_norm, tied_head>;

  /// @throws error invalid_argument for sizes that make no model; the text says which
  explicit gpt(gpt_options options)
      : options_{checked(options)},
        embedding_{.name = "embedding",
                   .vocabulary = options.vocabulary,
                   .width = options.width,
                   .positions = options.context,
                   .drop = {"embedding.dropout", options.dropout}},
        head_{layer_norm{.name = "head.norm", .width = options.width, .bias = options.bias},
              tied_head{.table = "embedding.token", .vocabulary = options.vocabulary, .width = options.width}} {
    // Two branches per layer add to the residual stream; scaling their last layers keeps its variance at the start.
    const double projection = 0.02 / std::sqrt(2.0 * static_cast<double>(options.layers));
    for (std::size_t i = 0; i < options.layers; ++i) {
      blocks_.push_back(make_transformer_block({.name = "block." + std::to_string(i),
                                                .heads = options.heads,
                                                .width = options.width,
                                                .hidden = 4 * options.width,
                                                .dropout = options.dropout,
                                                .bias = options.bias,
                                                .projection_init = initializer::normal(projection)}));
    }
  }

  /// The model and everything that shapes it; equal names mean equal mathematics.
  [[nodiscard]] std::string name() const {
    return "gpt(layers=" + std::to_string(options_.layers) + ", heads=" + std::to_string(options_.heads) +
           ", width=" + std::to_string(options_.width) + ", context=" + std::to_string(options_.context) +
           ", vocabulary=" + std::to_string(options_.vocabulary) + ", dropout=" + std::to_string(options_.dropout) +
           ", bias=" + (options_.bias ? "true" : "false") +
           ", ignored_target=" + std::to_string(options_.ignored_target) + ')';
  }
  [[nodiscard]] const gpt_options& options() const noexcept { return options_; }

  /// Tokens of one sample; a trainer cuts text into windows of it.
  [[nodiscard]] std::size_t context() const noexcept { return options_.context; }

  /// Number of units.
  [[nodiscard]] std::size_t size() const noexcept { return blocks_.size() + 2; }
  [[nodiscard]] shape input_shape(std::size_t samples) const { return {samples, options_.context}; }
  [[nodiscard]] std::string unit_name(std::size_t i) const {
    if (i == 0) return "embedding";
    return i <= blocks_.size() ? "block." + std::to_string(i - 1) : "head";
  }
  [[nodiscard]] softmax_cross_entropy loss() const noexcept { return {.ignored_target = options_.ignored_target}; }

  /// Calls `f` with unit i as its own type.
  template <class F> void visit(std::size_t i, F&& f) const {
    if (i == 0) {
      f(embedding_);
    } else if (i <= blocks_.size()) {
      f(blocks_[i - 1]);
    } else {
      f(head_);
    }
  }

  /// Trained numbers; the tied table counts once.
  [[nodiscard]] std::size_t num_parameters() const noexcept {
    const std::size_t w = options_.width;
    const std::size_t b = options_.bias ? 1 : 0;
    const std::size_t block = 12 * w * w + 2 * w + b * 11 * w;  // two gains; biases: 2 norms, 3w qkv, w, 4w, w
    return (options_.vocabulary + options_.context) * w + options_.layers * block + (1 + b) * w;
  }

 private:
  static const gpt_options& checked(const gpt_options& o) {
    require(o.layers > 0 && o.heads > 0 && o.width > 0 && o.context > 0 && o.vocabulary > 0, errc::invalid_argument,
            [&] {
              return "a gpt needs at least one layer, head, unit of width, position of context and token, got layers " +
                     std::to_string(o.layers) + ", heads " + std::to_string(o.heads) + ", width " +
                     std::to_string(o.width) + ", context " + std::to_string(o.context) + ", vocabulary " +
                     std::to_string(o.vocabulary);
            });
    require(o.width % o.heads == 0, errc::invalid_argument, [&] {
      return "gpt width " + std::to_string(o.width) + " is not a multiple of its " + std::to_string(o.heads) +
             " heads; the next width that is: " + std::to_string((o.width / o.heads + 1) * o.heads);
    });
    require(o.vocabulary <= static_cast<std::size_t>(INT32_MAX), errc::invalid_argument, [&] {
      return "tokens are 32-bit numbers, a vocabulary of " + std::to_string(o.vocabulary) + " does not fit";
    });
    require(o.dropout >= 0 && o.dropout < 1, errc::invalid_argument,
            [&] { return "gpt dropout " + std::to_string(o.dropout) + " must lie in [0, 1)"; });
    return o;
  }

  gpt_options options_;
  embedding embedding_;
  std::vector<transformer_block> blocks_;
  head_type head_;
};

static_assert(model<gpt>, "gpt models the model concept");

}  // namespace hetero
