// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <hetero/model/layer/activation.hpp>
#include <hetero/model/layer/chain.hpp>
#include <hetero/model/layer/linear.hpp>
#include <hetero/model/loss/softmax_cross_entropy.hpp>

namespace hetero {

/// Sizes of a multi-layer perceptron.
struct mlp_options {
  std::vector<std::size_t> widths{};  ///< values of a sample, hidden widths ..., classes
  bool bias = true;
  friend bool operator==(const mlp_options&, const mlp_options&) = default;
};

/// A classifier of linear layers with relu between them: [samples, widths.front()] -> logits [samples, widths.back()].
/// Each layer is a unit. Weights start normal with variance 2 / inputs before a relu (arXiv 1502.01852), else 1 /
/// inputs.
class mlp {
 public:
  using hidden_type = chain<linear, relu>;

  /// @throws error invalid_argument for fewer than two widths or one of them 0
  explicit mlp(mlp_options options) : options_{std::move(options)} {
    require(options_.widths.size() >= 2, errc::invalid_argument, [&] {
      return "an mlp needs at least two widths, the values of a sample and the classes, such as {784, 128, 10}; got " +
             std::to_string(options_.widths.size());
    });
    for (const std::size_t width : options_.widths) {
      require(width > 0, errc::invalid_argument, [&] { return "a width of 0 cuts " + name() + " in two"; });
    }
    for (std::size_t i = 0; i + 2 < options_.widths.size(); ++i) hidden_.emplace_back(linear_at(i, 2), relu{});
    last_ = linear_at(options_.widths.size() - 2, 1);
  }

  /// The model and everything that shapes it.
  [[nodiscard]] std::string name() const {
    std::string text = "mlp(";
    for (std::size_t i = 0; i < options_.widths.size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(options_.widths[i]);
    }
    return text + (options_.bias ? ")" : ", bias=false)");
  }
  [[nodiscard]] const mlp_options& options() const noexcept { return options_; }

  /// Number of units.
  [[nodiscard]] std::size_t size() const noexcept { return hidden_.size() + 1; }
  [[nodiscard]] shape input_shape(std::size_t samples) const { return {samples, options_.widths.front()}; }
  [[nodiscard]] std::string unit_name(std::size_t i) const { return "layer." + std::to_string(i); }
  [[nodiscard]] softmax_cross_entropy loss() const noexcept { return {}; }

  /// Calls `f` with unit i as its own type.
  template <class F> void visit(std::size_t i, F&& f) const {
    if (i < hidden_.size()) {
      f(hidden_[i]);
    } else {
      f(last_);
    }
  }

  /// Trained numbers.
  [[nodiscard]] std::size_t num_parameters() const noexcept {
    std::size_t sum = 0;
    for (std::size_t i = 0; i + 1 < options_.widths.size(); ++i) {
      sum += options_.widths[i + 1] * (options_.widths[i] + (options_.bias ? 1 : 0));
    }
    return sum;
  }

 private:
  [[nodiscard]] linear linear_at(std::size_t i, double gain) const {
    const std::size_t inputs = options_.widths[i];
    return {.name = unit_name(i),
            .inputs = inputs,
            .outputs = options_.widths[i + 1],
            .bias = options_.bias,
            .init = initializer::normal(std::sqrt(gain / static_cast<double>(inputs)))};
  }

  mlp_options options_;
  std::vector<hidden_type> hidden_;
  linear last_;
};

static_assert(model<mlp>, "mlp models the model concept");

}  // namespace hetero
