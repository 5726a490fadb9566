// SPDX-License-Identifier: Apache-2.0
// Small training runs whose results can be compared: data with ragged targets, every way to split it, and what came
// out.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/run_ranks.hpp>
#include <hetero/comm/self.hpp>
#include <hetero/core/hash.hpp>
#include <hetero/data/batches.hpp>
#include <hetero/device/cpu_device.hpp>
#include <hetero/model/gpt.hpp>
#include <hetero/model/mlp.hpp>
#include <hetero/optim/sgd.hpp>
#include <hetero/trainer/trainer.hpp>

namespace hetero::test {

/// Made-up samples that count unequally: some targets are ignored, some samples weigh more, less or nothing. Tokens for
/// a gpt, numbers with one class for an mlp. A sample is a pure function of its id.
struct ragged_data {
  std::uint64_t samples = 23;
  bool tokens = true;
  std::size_t extent = 8;  ///< tokens of a window, or numbers of a point
  std::size_t classes = 11;
  dtype type = dtype::f32;  ///< of numbers
  bool ragged = true;
  std::uint64_t seed = 1;

  [[nodiscard]] std::uint64_t size() const { return samples; }
  [[nodiscard]] shape input_shape() const { return {extent}; }
  [[nodiscard]] shape target_shape() const { return tokens ? shape{extent} : shape{}; }
  [[nodiscard]] dtype input_type() const { return tokens ? dtype::i32 : type; }
  [[nodiscard]] dtype target_type() const { return dtype::i32; }
  [[nodiscard]] std::uint64_t fingerprint() const {
    return stable_hash{}
        .add(samples)
        .add(tokens ? 1U : 0U)
        .add(extent)
        .add(classes)
        .add(ragged ? 1U : 0U)
        .add(seed)
        .value();
  }

  void load(std::span<const std::uint64_t> ids, batch& out) const {
    out.prepare(ids, input_type(), input_shape(), target_type(), target_shape());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      require(ids[i] < samples, errc::invalid_argument, "a sample beyond the data set");
      for (std::size_t j = 0; j < extent; ++j) put_input(out.inputs.view(), i * extent + j, draw(ids[i], j));
      const std::size_t targets = tokens ? extent : 1;
      const auto to = out.targets.elements<std::int32_t>().subspan(i * targets, targets);
      for (std::size_t j = 0; j < targets; ++j) to[j] = static_cast<std::int32_t>(draw(ids[i], extent + j) % classes);
      if (!ragged) continue;
      const std::size_t counted = tokens ? draw(ids[i], 1000) % (extent + 1) : (ids[i] % 5 == 2 ? 0 : 1);
      for (std::size_t j = counted; j < targets; ++j) to[j] = -1;
      constexpr float weights[] = {1.0F, 0.25F, 3.0F, 0.0F, 1.0F, 0.7F, 2.0F};
      out.weights[i] = weights[ids[i] % 7];
    }
  }

 private:
  [[nodiscard]] std::uint64_t draw(std::uint64_t id, std::uint64_t place) const {
    return stable_hash{}.add(seed).add(id).add(place).value() >> 11U;
  }
  void put_input(const tensor_view& to, std::size_t at, std::uint64_t drawn) const {
    const double number = static_cast<double>(drawn % 2000) / 1000.0 - 1.0;
    switch (input_type()) {
      case dtype::i32:
        to.as<std::int32_t>()[at] = static_cast<std::int32_t>(drawn % classes);
        break;
      case dtype::f64:
        to.as<double>()[at] = number;
        break;
      default:
        to.as<float>()[at] = static_cast<float>(number);
    }
  }
};
static_assert(dataset<ragged_data>);

/// The same data with every id that was loaded written down.
struct recorded_data : ragged_data {
  struct log {
    std::mutex mutex;
    std::vector<std::uint64_t> ids;
  };
  std::shared_ptr<log> loads = std::make_shared<log>();

  void load(std::span<const std::uint64_t> ids, batch& out) const {
    ragged_data::load(ids, out);
    const std::lock_guard lock{loads->mutex};
    loads->ids.insert(loads->ids.end(), ids.begin(), ids.end());
  }
};
static_assert(dataset<recorded_data>);

[[nodiscard]] inline gpt small_gpt(double dropout = 0) {
  return gpt{{.layers = 2, .heads = 2, .width = 16, .context = 8, .vocabulary = 11, .dropout = dropout}};
}
[[nodiscard]] inline mlp small_mlp() { return mlp{{.widths = {5, 12, 7, 4}}}; }

[[nodiscard]] inline ragged_data data_for(const gpt& m, dtype type = dtype::f32) {
  return {.tokens = true, .extent = m.context(), .classes = m.options().vocabulary, .type = type};
}
[[nodiscard]] inline ragged_data data_for(const mlp& m, dtype type = dtype::f32) {
  const auto& widths = m.options().widths;
  return {.tokens = false, .extent = widths.front(), .classes = widths.back(), .type = type};
}

/// Elements as doubles, which hold the bits of both float types exactly.
[[nodiscard]] inline std::vector<double> values_of(const tensor_view& view) {
  std::vector<double> values(view.count());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = view.type() == dtype::f64 ? view.as<double>()[i] : static_cast<double>(view.as<float>()[i]);
  }
  return values;
}

/// One tensor after one step.
using tensors = std::map<std::string, std::vector<double>>;

/// Everything of a run that law 2 speaks of.
struct outcome {
  std::vector<tensors> gradients;  ///< per step: sums over all ranks, before the division
  std::vector<double> losses;
  std::vector<double> norms;
  tensors parameters;  ///< at the end, with optimizer state
};

template <class Trainer> [[nodiscard]] tensors gradients_of(Trainer& t) {
  tensors all;
  for (const auto& entry : t.parameters().layout().entries) {
    if (entry.spec.trainable)
      all[entry.spec.name] = values_of(t.parameters().grads().slice(0, entry.offset, entry.end()));
  }
  return all;
}

template <class Trainer> [[nodiscard]] tensors parameters_of(Trainer& t) {
  tensors all;
  for (const auto& tensor : t.parameters().named())
    all[tensor.name] = values_of(tensor.view.reshape({tensor.view.count()}));
  return all;
}

/// Makes `count` steps and writes down what they did.
template <class Trainer, class Source>
void note_steps(Trainer& t, const Source& source, std::uint64_t count, outcome& out) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const step_report report = t.step(source);
    out.losses.push_back(report.loss);
    out.norms.push_back(report.grad_norm);
    out.gradients.push_back(gradients_of(t));
  }
  out.parameters = parameters_of(t);
}

[[nodiscard]] inline bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}
[[nodiscard]] inline bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) { return same_bits(x, y); });
}
[[nodiscard]] inline bool same_bits(const tensors& a, const tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first && same_bits(x.second, y.second); });
}
[[nodiscard]] inline bool same_bits(const outcome& a, const outcome& b) {
  return same_bits(a.losses, b.losses) && same_bits(a.norms, b.norms) && same_bits(a.parameters, b.parameters) &&
         std::equal(a.gradients.begin(), a.gradients.end(), b.gradients.begin(), b.gradients.end(),
                    [](const tensors& x, const tensors& y) { return same_bits(x, y); });
}

/// ||a - b|| / ||b||; infinite for NaN, so that it fails every bound.
[[nodiscard]] inline double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  const double distance = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}
/// The worst tensor.
[[nodiscard]] inline double relative_distance(const tensors& a, const tensors& b) {
  double worst = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (const auto& [name, values] : b) {
    const auto found = a.find(name);
    worst = std::max(
        worst, found == a.end() ? std::numeric_limits<double>::infinity() : relative_distance(found->second, values));
  }
  return worst;
}
/// The worst gradient, loss, norm or parameter of a run.
[[nodiscard]] inline double relative_distance(const outcome& a, const outcome& b) {
  double worst = std::max(relative_distance(a.losses, b.losses), relative_distance(a.norms, b.norms));
  if (a.gradients.size() != b.gradients.size()) return std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    worst = std::max(worst, relative_distance(a.gradients[i], b.gradients[i]));
  }
  return std::max(worst, relative_distance(a.parameters, b.parameters));
}

/// Options under which nothing is timed, so that a run is a function of its arguments.
[[nodiscard]] inline trainer_options untimed(numerics mode = numerics::reproducible, dtype type = dtype::f32) {
  return {.seed = 7, .mode = mode, .type = type, .measure = false, .rebalance = false};
}

[[nodiscard]] inline any_device one_thread() { return cpu_device{}; }

/// The ways to divide a batch that law 2 names.
enum class split : std::uint8_t { even, five_three_one, one_empty };
inline constexpr split all_splits[] = {split::even, split::five_three_one, split::one_empty};

[[nodiscard]] inline const char* to_string(split s) {
  constexpr const char* names[] = {"even", "5:3:1", "one empty rank"};
  return names[static_cast<std::size_t>(s)];
}

[[nodiscard]] inline ratio_partitioner partitioner_for(split s, std::uint32_t ranks) {
  if (s == split::five_three_one) return {.ratio = {5, 3, 1}};
  std::vector<double> ratio(ranks, 1.0);
  if (s == split::one_empty && ranks > 1) ratio[(ranks - 1) / 2] = 0;
  return {.ratio = ratio};
}

}  // namespace hetero::test
