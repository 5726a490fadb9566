// SPDX-License-Identifier: Apache-2.0
// A second, independent model of device_backend: each op as the plainest loop that its documentation allows, one
// element at a time and in double. Slow, and for comparisons only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include <hetero/core/rng.hpp>
#include <hetero/device/any_device.hpp>

#include "support/element.hpp"

namespace hetero::test {

/// The device. Copies share counters; streams are numbers, since every op is finished when `launch` returns.
class reference_device {
 public:
  explicit reference_device(std::uint16_t ordinal = 0,
                            std::size_t budget_bytes = std::numeric_limits<std::size_t>::max())
      : id_{device_kind::cpu, ordinal}, budget_{budget_bytes}, state_{std::make_shared<state>()} {}

  [[nodiscard]] device_id id() const noexcept { return id_; }
  [[nodiscard]] std::size_t threads() const noexcept { return 1; }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return budget_; }
  [[nodiscard]] device_counters counters() const {
    const std::lock_guard lock{state_->mutex};
    return state_->counters;
  }

  [[nodiscard]] stream_id create_stream() {
    const std::lock_guard lock{state_->mutex};
    return stream_id{state_->next_stream++};
  }
  void destroy_stream(stream_id) noexcept {}

  [[nodiscard]] void* allocate(std::size_t bytes, stream_id) {
    const std::lock_guard lock{state_->mutex};
    device_counters& c = state_->counters;
    require(bytes <= budget_ - c.bytes_in_use, errc::out_of_memory, [&] {
      return "the reference device may hold " + std::to_string(budget_) + " bytes, " + std::to_string(c.bytes_in_use) +
             " are in use and " + std::to_string(bytes) + " were asked for";
    });
    ++c.allocations;
    c.bytes_allocated += bytes;
    c.bytes_in_use += bytes;
    c.peak_bytes_in_use = std::max(c.peak_bytes_in_use, c.bytes_in_use);
    void* const p = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    std::memset(p, 0xff, bytes);  // NaN: nobody may rely on fresh memory
    return p;
  }
  void deallocate(void* p, std::size_t bytes, stream_id) noexcept {
    const std::lock_guard lock{state_->mutex};
    state_->counters.bytes_in_use -= bytes;
    std::free(p);
  }

  void copy(tensor_view to, tensor_view from, stream_id) {
    require(to.count() == from.count() && to.type() == from.type(), errc::invalid_shape, "copy of unequal views");
    for (std::size_t i = 0; i < to.count(); ++i) std::memcpy(address(to, i), address(from, i), size_of(to.type()));
    const std::lock_guard lock{state_->mutex};
    ++state_->counters.copies;
    state_->counters.bytes_copied += to.size_bytes();
  }

  void launch(const device_op& op, stream_id) {
    std::visit([](const auto& o) { run(o); }, op);
    const std::lock_guard lock{state_->mutex};
    ++state_->counters.launches;
  }

  void order(stream_id, stream_id) {}
  void synchronize(stream_id) {}

 private:
  struct state {
    std::mutex mutex;
    device_counters counters;
    std::uint64_t next_stream = 1;
  };

  static void add_to(const tensor_view& v, std::size_t i, double value) { set(v, i, get(v, i) + value); }
  static void put(const tensor_view& v, std::size_t i, double value, bool accumulate) {
    set(v, i, accumulate ? get(v, i) + value : value);
  }
  template <class F> static void map(const tensor_view& out, F&& f) {
    for (std::size_t i = 0; i < out.count(); ++i) set(out, i, f(i));
  }

  static void run(const op::fill& o) {
    map(o.out, [&](std::size_t) { return o.value; });
  }
  static void run(const op::convert& o) {
    map(o.out, [&](std::size_t i) { return get(o.in, i); });
  }
  static void run(const op::accumulate& o) {
    map(o.into, [&](std::size_t i) { return get(o.into, i) + o.factor * get(o.from, i); });
  }
  static void run(const op::scale& o) {
    map(o.values, [&](std::size_t i) { return o.factor * get(o.values, i); });
  }
  static void run(const op::add& o) {
    map(o.out, [&](std::size_t i) { return get(o.a, i) + get(o.b, i); });
  }

  static constexpr double gelu_a = 0.7978845608028654;  // sqrt(2 / pi)
  static constexpr double gelu_b = 0.044715;
  static void run(const op::gelu_forward& o) {
    map(o.out, [&](std::size_t i) {
      const double x = get(o.in, i);
      return 0.5 * x * (1 + std::tanh(gelu_a * (x + gelu_b * x * x * x)));
    });
  }
  static void run(const op::gelu_backward& o) {
    map(o.grad_in, [&](std::size_t i) {
      const double x = get(o.in, i);
      const double t = std::tanh(gelu_a * (x + gelu_b * x * x * x));
      return get(o.grad_out, i) * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_a * (1 + 3 * gelu_b * x * x));
    });
  }
  static void run(const op::relu_forward& o) {
    map(o.out, [&](std::size_t i) { return std::max(get(o.in, i), 0.0); });
  }
  static void run(const op::relu_backward& o) {
    map(o.grad_in, [&](std::size_t i) { return get(o.out, i) > 0 ? get(o.grad_out, i) : 0.0; });
  }

  // Masks are this device's own: only their laws (same key same mask, rate, scale) are comparable between backends.
  static void run(const op::dropout& o) {
    const std::size_t samples = o.in.extent(0);
    const std::size_t elements = samples == 0 ? 0 : o.in.count() / samples;
    for (std::size_t s = 0; s < samples; ++s) {
      const auto id = static_cast<std::uint64_t>(o.sample_ids.as<std::int64_t>()[s]);
      const counter_rng rng{o.seed ^ (id * 0x9e3779b97f4a7c15ULL) ^ (o.step * 0xd1342543de82ef95ULL),
                            rng_purpose::dropout, o.layer};
      for (std::size_t e = 0; e < elements; ++e) {
        const bool kept = static_cast<double>(rng.uniform(e)) >= o.probability;
        const std::size_t i = s * elements + e;
        set(o.out, i, kept ? get(o.in, i) / (1 - o.probability) : 0.0);
      }
    }
  }

  static void run(const op::matmul& o) {
    const std::size_t m = o.out.extent(0);
    const std::size_t n = o.out.extent(1);
    const std::size_t k = o.a.extent(o.transpose_a ? 0 : 1);
    require(o.a.count() == m * k && o.b.count() == k * n && o.b.extent(o.transpose_b ? 0 : 1) == n, errc::invalid_shape,
            [&] { return "matmul of " + to_string(o.a.extents()) + " and " + to_string(o.b.extents()); });
    std::vector<double> sums(m * n);
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        double sum = o.bias ? get(o.bias, j) : 0;
        for (std::size_t l = 0; l < k; ++l) {
          sum += get(o.a, o.transpose_a ? l * m + i : i * k + l) * get(o.b, o.transpose_b ? j * k + l : l * n + j);
        }
        sums[i * n + j] = sum;
      }
    }
    for (std::size_t i = 0; i < m * n; ++i) put(o.out, i, sums[i], o.accumulate);
  }
  static void run(const op::column_sum& o) {
    const std::size_t n = o.out.count();
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::size_t i = 0; i < o.in.extent(0); ++i) sum += get(o.in, i * n + j);
      put(o.out, j, sum, o.accumulate);
    }
  }

  static void run(const op::layer_norm_forward& o) {
    const std::size_t n = o.in.extent(1);
    const auto width = static_cast<double>(n);
    for (std::size_t r = 0; r < o.in.extent(0); ++r) {
      double mean = 0;
      for (std::size_t j = 0; j < n; ++j) mean += get(o.in, r * n + j) / width;
      double variance = 0;
      for (std::size_t j = 0; j < n; ++j) variance += std::pow(get(o.in, r * n + j) - mean, 2) / width;
      const double rstd = 1 / std::sqrt(variance + o.epsilon);
      set(o.mean, r, mean);
      set(o.rstd, r, rstd);
      for (std::size_t j = 0; j < n; ++j) {
        set(o.out, r * n + j, (get(o.in, r * n + j) - mean) * rstd * get(o.gain, j) + (o.bias ? get(o.bias, j) : 0));
      }
    }
  }
  static void run(const op::layer_norm_backward_input& o) {
    const std::size_t n = o.in.extent(1);
    const auto width = static_cast<double>(n);
    for (std::size_t r = 0; r < o.in.extent(0); ++r) {
      double sum = 0;
      double dot = 0;
      const auto normal = [&](std::size_t j) { return (get(o.in, r * n + j) - get(o.mean, r)) * get(o.rstd, r); };
      for (std::size_t j = 0; j < n; ++j) {
        const double g = get(o.grad_out, r * n + j) * get(o.gain, j);
        sum += g / width;
        dot += g * normal(j) / width;
      }
      for (std::size_t j = 0; j < n; ++j) {
        const double g = get(o.grad_out, r * n + j) * get(o.gain, j);
        set(o.grad_in, r * n + j, (g - sum - normal(j) * dot) * get(o.rstd, r));
      }
    }
  }
  static void run(const op::layer_norm_backward_weight& o) {
    const std::size_t n = o.in.extent(1);
    for (std::size_t j = 0; j < n; ++j) {
      double gain = 0;
      double bias = 0;
      for (std::size_t r = 0; r < o.in.extent(0); ++r) {
        const double g = get(o.grad_out, r * n + j);
        gain += g * (get(o.in, r * n + j) - get(o.mean, r)) * get(o.rstd, r);
        bias += g;
      }
      put(o.grad_gain, j, gain, o.accumulate);
      if (o.grad_bias) put(o.grad_bias, j, bias, o.accumulate);
    }
  }
  static void run(const op::rms_norm_forward& o) {
    const std::size_t n = o.in.extent(1);
    for (std::size_t r = 0; r < o.in.extent(0); ++r) {
      double squares = 0;
      for (std::size_t j = 0; j < n; ++j) squares += std::pow(get(o.in, r * n + j), 2) / static_cast<double>(n);
      const double rstd = 1 / std::sqrt(squares + o.epsilon);
      set(o.rstd, r, rstd);
      for (std::size_t j = 0; j < n; ++j) set(o.out, r * n + j, get(o.in, r * n + j) * rstd * get(o.gain, j));
    }
  }
  static void run(const op::rms_norm_backward_input& o) {
    const std::size_t n = o.in.extent(1);
    for (std::size_t r = 0; r < o.in.extent(0); ++r) {
      const double rstd = get(o.rstd, r);
      double dot = 0;
      for (std::size_t j = 0; j < n; ++j) {
        dot += get(o.grad_out, r * n + j) * get(o.gain, j) * get(o.in, r * n + j) / static_cast<double>(n);
      }
      for (std::size_t j = 0; j < n; ++j) {
        const double g = get(o.grad_out, r * n + j) * get(o.gain, j);
        set(o.grad_in, r * n + j, rstd * (g - get(o.in, r * n + j) * rstd * rstd * dot));
      }
    }
  }
  static void run(const op::rms_norm_backward_weight& o) {
    const std::size_t n = o.in.extent(1);
    for (std::size_t j = 0; j < n; ++j) {
      double gain = 0;
      for (std::size_t r = 0; r < o.in.extent(0); ++r) {
        gain += get(o.grad_out, r * n + j) * get(o.in, r * n + j) * get(o.rstd, r);
      }
      put(o.grad_gain, j, gain, o.accumulate);
    }
  }

  static std::size_t id_at(const tensor_view& ids, std::size_t i, std::size_t vocabulary) {
    const auto id = static_cast<std::int64_t>(get(ids, i));
    require(id >= 0 && id < static_cast<std::int64_t>(vocabulary), errc::invalid_argument, [&] {
      return "token id " + std::to_string(id) + " is outside a table of " + std::to_string(vocabulary) + " rows";
    });
    return static_cast<std::size_t>(id);
  }
  static void run(const op::embedding_forward& o) {
    const std::size_t n = o.table.extent(1);
    for (std::size_t r = 0; r < o.ids.count(); ++r) {
      const std::size_t id = id_at(o.ids, r, o.table.extent(0));
      for (std::size_t j = 0; j < n; ++j) {
        const double position = o.positions ? get(o.positions, r % o.positions.extent(0) * n + j) : 0;
        set(o.out, r * n + j, get(o.table, id * n + j) + position);
      }
    }
  }
  static void run(const op::embedding_backward& o) {
    const std::size_t n = o.grad_out.extent(1);
    if (o.grad_table && !o.accumulate_table) run(op::fill{o.grad_table, 0});
    if (o.grad_positions && !o.accumulate_positions) run(op::fill{o.grad_positions, 0});
    for (std::size_t r = 0; r < o.ids.count(); ++r) {
      for (std::size_t j = 0; j < n; ++j) {
        const double g = get(o.grad_out, r * n + j);
        if (o.grad_table) add_to(o.grad_table, id_at(o.ids, r, o.grad_table.extent(0)) * n + j, g);
        if (o.grad_positions) add_to(o.grad_positions, r % o.grad_positions.extent(0) * n + j, g);
      }
    }
  }

  // Calls f(sample, head, query, scores of keys 0..query).
  struct heads_of {
    std::size_t samples, context, width, heads, head_width;
    heads_of(const tensor_view& qkv, std::size_t h)
        : samples{qkv.extent(0)}, context{qkv.extent(1)}, width{qkv.extent(2) / 3}, heads{h}, head_width{width / h} {}
    [[nodiscard]] std::size_t at(std::size_t s, std::size_t t, std::size_t which, std::size_t h, std::size_t j) const {
      return (s * context + t) * 3 * width + which * width + h * head_width + j;
    }
    [[nodiscard]] std::size_t out_at(std::size_t s, std::size_t t, std::size_t h, std::size_t j) const {
      return (s * context + t) * width + h * head_width + j;
    }
    [[nodiscard]] double score(const tensor_view& qkv, std::size_t s, std::size_t h, std::size_t q,
                               std::size_t k) const {
      double sum = 0;
      for (std::size_t j = 0; j < head_width; ++j) sum += get(qkv, at(s, q, 0, h, j)) * get(qkv, at(s, k, 1, h, j));
      return sum / std::sqrt(static_cast<double>(head_width));
    }
  };
  static void run(const op::attention_forward& o) {
    const heads_of d{o.qkv, o.heads};
    for (std::size_t s = 0; s < d.samples; ++s) {
      for (std::size_t h = 0; h < d.heads; ++h) {
        for (std::size_t q = 0; q < d.context; ++q) {
          std::vector<double> scores(q + 1);
          double largest = -std::numeric_limits<double>::infinity();
          for (std::size_t k = 0; k <= q; ++k) largest = std::max(largest, scores[k] = d.score(o.qkv, s, h, q, k));
          double sum = 0;
          for (const double score : scores) sum += std::exp(score - largest);
          set(o.log_sum_exp, (s * d.heads + h) * d.context + q, largest + std::log(sum));
          for (std::size_t j = 0; j < d.head_width; ++j) {
            double out = 0;
            for (std::size_t k = 0; k <= q; ++k) {
              out += std::exp(scores[k] - largest) / sum * get(o.qkv, d.at(s, k, 2, h, j));
            }
            set(o.out, d.out_at(s, q, h, j), out);
          }
        }
      }
    }
  }
  static void run(const op::attention_backward& o) {
    const heads_of d{o.qkv, o.heads};
    const double scale = 1 / std::sqrt(static_cast<double>(d.head_width));
    run(op::fill{o.grad_qkv, 0});
    for (std::size_t s = 0; s < d.samples; ++s) {
      for (std::size_t h = 0; h < d.heads; ++h) {
        for (std::size_t q = 0; q < d.context; ++q) {
          double dot = 0;
          for (std::size_t j = 0; j < d.head_width; ++j) {
            dot += get(o.grad_out, d.out_at(s, q, h, j)) * get(o.out, d.out_at(s, q, h, j));
          }
          for (std::size_t k = 0; k <= q; ++k) {
            const double p =
                std::exp(d.score(o.qkv, s, h, q, k) - get(o.log_sum_exp, (s * d.heads + h) * d.context + q));
            double grad_p = 0;
            for (std::size_t j = 0; j < d.head_width; ++j) {
              const double g = get(o.grad_out, d.out_at(s, q, h, j));
              grad_p += g * get(o.qkv, d.at(s, k, 2, h, j));
              add_to(o.grad_qkv, d.at(s, k, 2, h, j), p * g);
            }
            const double grad_score = p * (grad_p - dot) * scale;
            for (std::size_t j = 0; j < d.head_width; ++j) {
              add_to(o.grad_qkv, d.at(s, q, 0, h, j), grad_score * get(o.qkv, d.at(s, k, 1, h, j)));
              add_to(o.grad_qkv, d.at(s, k, 1, h, j), grad_score * get(o.qkv, d.at(s, q, 0, h, j)));
            }
          }
        }
      }
    }
  }

  template <class F>
  static void each_counted_row(const tensor_view& logits, const tensor_view& targets, const tensor_view& weights,
                               std::int32_t ignored, F&& f) {
    const std::size_t rows = logits.extent(0);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto target = static_cast<std::int64_t>(get(targets, r));
      const bool counted = target != ignored;
      require(!counted || (target >= 0 && target < static_cast<std::int64_t>(logits.extent(1))), errc::invalid_argument,
              [&] { return "target " + std::to_string(target) + " is no class"; });
      const double weight = weights ? get(weights, r / (rows / weights.count())) : 1;
      f(r, counted, counted ? static_cast<std::size_t>(target) : 0, weight);
    }
  }
  static void run(const op::cross_entropy& o) {
    const std::size_t n = o.logits.extent(1);
    each_counted_row(o.logits, o.targets, o.weights, o.ignored_target,
                     [&](std::size_t r, bool counted, std::size_t target, double weight) {
                       double largest = -std::numeric_limits<double>::infinity();
                       for (std::size_t j = 0; j < n; ++j) largest = std::max(largest, get(o.logits, r * n + j));
                       double sum = 0;
                       for (std::size_t j = 0; j < n; ++j) sum += std::exp(get(o.logits, r * n + j) - largest);
                       if (counted) {
                         add_to(o.result, 0, weight * (largest + std::log(sum) - get(o.logits, r * n + target)));
                         add_to(o.result, 1, weight);
                       }
                       if (!o.grad_logits) return;
                       for (std::size_t j = 0; j < n; ++j) {
                         const double p = std::exp(get(o.logits, r * n + j) - largest) / sum;
                         set(o.grad_logits, r * n + j, counted ? weight * (p - (j == target ? 1 : 0)) : 0);
                       }
                     });
  }
  static void run(const op::count_correct& o) {
    const std::size_t n = o.logits.extent(1);
    each_counted_row(o.logits, o.targets, o.weights, o.ignored_target,
                     [&](std::size_t r, bool counted, std::size_t target, double weight) {
                       if (!counted) return;
                       std::size_t best = 0;
                       for (std::size_t j = 1; j < n; ++j) {
                         if (get(o.logits, r * n + j) > get(o.logits, r * n + best)) best = j;
                       }
                       if (best == target) add_to(o.correct, 0, weight);
                       add_to(o.correct, 1, weight);
                     });
  }

  static void run(const op::sgd_update& o) {
    for (std::size_t i = 0; i < o.param.count(); ++i) {
      const double param = get(o.param, i);
      double g = o.grad_scale * get(o.grad, i);
      if (o.momentum) {
        const double momentum = o.momentum_factor * get(o.momentum, i) + g;
        set(o.momentum, i, momentum);
        g = o.nesterov ? g + o.momentum_factor * momentum : momentum;
      }
      set(o.param, i, param - o.learning_rate * (g + o.weight_decay * param));
    }
  }
  static void run(const op::adamw_update& o) {
    const double correction1 = 1 - std::pow(o.beta1, static_cast<double>(o.step));
    const double correction2 = 1 - std::pow(o.beta2, static_cast<double>(o.step));
    for (std::size_t i = 0; i < o.param.count(); ++i) {
      const double g = o.grad_scale * get(o.grad, i);
      const double m = o.beta1 * get(o.moment1, i) + (1 - o.beta1) * g;
      const double v = o.beta2 * get(o.moment2, i) + (1 - o.beta2) * g * g;
      set(o.moment1, i, m);
      set(o.moment2, i, v);
      const double update = m / correction1 / (std::sqrt(v / correction2) + o.epsilon);
      set(o.param, i, get(o.param, i) - o.learning_rate * (update + o.weight_decay * get(o.param, i)));
    }
  }

  static void run(const op::sum_squares& o) {
    double sum = 0;
    for (std::size_t i = 0; i < o.in.count(); ++i) sum += std::pow(get(o.in, i), 2);
    add_to(o.result, 0, sum);
  }
  static void run(const op::max_abs& o) {
    double largest = get(o.result, 0);
    for (std::size_t i = 0; i < o.in.count(); ++i) {
      const double x = std::abs(get(o.in, i));
      if (std::isnan(x) || x > largest) largest = x;
    }
    set(o.result, 0, largest);
  }
  static void run(const op::fixed_point_accumulate& o) {
    auto into = o.into.elements<std::int64_t>();
    for (std::size_t i = 0; i < into.size(); ++i) {
      into[i] += static_cast<std::int64_t>(std::nearbyint(std::ldexp(get(o.in, i), o.exponent)));
    }
  }
  static void run(const op::fixed_point_decode& o) {
    const auto in = o.in.elements<std::int64_t>();
    map(o.out, [&](std::size_t i) { return std::ldexp(static_cast<double>(in[i]), -o.exponent); });
  }
  static void run(const op::custom_op& o) {
    const auto launcher = o.launchers.find(device_kind::cpu);
    require(launcher != o.launchers.end(), errc::unsupported,
            [&] { return "custom op '" + o.name + "' has no launcher for cpu"; });
    launcher->second({.tensors = o.tensors, .numbers = o.numbers});
  }

  device_id id_;
  std::size_t budget_;
  std::shared_ptr<state> state_;
};

static_assert(device_backend<reference_device>, "the reference device models device_backend");

}  // namespace hetero::test
