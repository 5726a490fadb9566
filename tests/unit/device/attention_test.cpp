// SPDX-License-Identifier: Apache-2.0
#include "unit/device/kernel_test.hpp"

#include <hetero/device/cpu/attention.hpp>

using namespace hetero;
using namespace hetero::test::kernels;
using hetero::detail::cpu::run;

namespace {

struct size {
  std::size_t samples, context, heads, head_width;
  [[nodiscard]] std::size_t width() const { return heads * head_width; }
};

struct reference {
  std::vector<double> out, log_sum_exp, grad_qkv;
};

/// The context x context matrix, whole, in double.
template <class T>
reference plain_attention(const size& s, const tensor<T>& qkv, const tensor<T>& grad_out) {
  const std::size_t width = s.width();
  reference r;
  r.out.resize(s.samples * s.context * width);
  r.log_sum_exp.resize(s.samples * s.heads * s.context);
  r.grad_qkv.resize(3 * r.out.size());
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_width));
  for (std::size_t sample = 0; sample < s.samples; ++sample) {
    for (std::size_t head = 0; head < s.heads; ++head) {
      const auto at = [&](std::size_t t, std::size_t part, std::size_t i) {
        return (sample * s.context + t) * 3 * width + part * width + head * s.head_width + i;
      };
      const auto out_at = [&](std::size_t t, std::size_t i) {
        return (sample * s.context + t) * width + head * s.head_width + i;
      };
      const auto x = [&](std::size_t t, std::size_t part, std::size_t i) {
        return static_cast<double>(qkv[at(t, part, i)]);
      };
      for (std::size_t t = 0; t < s.context; ++t) {
        std::vector<double> p(t + 1);
        double most = -1e300;
        for (std::size_t u = 0; u <= t; ++u) {
          for (std::size_t i = 0; i < s.head_width; ++i) p[u] += scale * x(t, 0, i) * x(u, 1, i);
          most = std::max(most, p[u]);
        }
        double sum = 0;
        for (double& value : p) sum += value = std::exp(value - most);
        for (double& value : p) value /= sum;
        r.log_sum_exp[(sample * s.heads + head) * s.context + t] = most + std::log(sum);
        for (std::size_t u = 0; u <= t; ++u) {
          for (std::size_t i = 0; i < s.head_width; ++i) r.out[out_at(t, i)] += p[u] * x(u, 2, i);
        }
        std::vector<double> grad_p(t + 1);
        double mean = 0;
        for (std::size_t u = 0; u <= t; ++u) {
          for (std::size_t i = 0; i < s.head_width; ++i) {
            const double g = static_cast<double>(grad_out[out_at(t, i)]);
            grad_p[u] += g * x(u, 2, i);
            r.grad_qkv[at(u, 2, i)] += p[u] * g;
          }
          mean += p[u] * grad_p[u];
        }
        for (std::size_t u = 0; u <= t; ++u) {
          const double grad_score = p[u] * (grad_p[u] - mean) * scale;
          for (std::size_t i = 0; i < s.head_width; ++i) {
            r.grad_qkv[at(t, 0, i)] += grad_score * x(u, 1, i);
            r.grad_qkv[at(u, 1, i)] += grad_score * x(t, 0, i);
          }
        }
      }
    }
  }
  return r;
}

template <class T>
struct attention {
  size s;
  tensor<T> qkv{s.samples, s.context, 3 * s.width()};
  tensor<T> grad_out{s.samples, s.context, s.width()};
  tensor<T> out{s.samples, s.context, s.width()};
  tensor<T> log_sum_exp{s.samples, s.heads, s.context};
  tensor<T> grad_qkv{s.samples, s.context, 3 * s.width()};

  explicit attention(size shape_, double scale = 1.5) : s{shape_} {
    qkv = normal<T>({s.samples, s.context, 3 * s.width()}, 1, scale);
    grad_out = normal<T>({s.samples, s.context, s.width()}, 2);
  }
  void forward(std::size_t threads = 1) {
    thread_team team{threads};
    run(op::attention_forward{out, log_sum_exp, qkv, static_cast<std::uint32_t>(s.heads)}, team);
  }
  void backward(std::size_t threads = 1) {
    thread_team team{threads};
    run(op::attention_backward{grad_qkv, grad_out, qkv, out, log_sum_exp, static_cast<std::uint32_t>(s.heads)}, team);
  }
  [[nodiscard]] attention sample(std::size_t i) const {
    attention one{{1, s.context, s.heads, s.head_width}};
    one.qkv = rows_of(qkv, i, 1);
    one.grad_out = rows_of(grad_out, i, 1);
    return one;
  }
};

}  // namespace

TEMPLATE_TEST_CASE("tiled attention matches the whole matrix at ragged sizes", "", float, double) {
  using T = TestType;
  const size s = GENERATE(size{1, 1, 1, 1}, size{2, 3, 2, 3}, size{1, 17, 3, 8}, size{2, 64, 2, 32}, size{1, 65, 1, 64},
                          size{1, 130, 2, 17}, size{1, 200, 1, 33}, size{1, 63, 1, 130});
  CAPTURE(s.samples, s.context, s.heads, s.head_width);
  attention<T> a{s};
  a.forward();
  a.backward();
  const reference r = plain_attention(s, a.qkv, a.grad_out);
  CHECK(distance(a.out.values, r.out) < 2 * tolerance<T>);
  CHECK(distance(a.log_sum_exp.values, r.log_sum_exp) < tolerance<T>);
  CHECK(distance(a.grad_qkv.values, r.grad_qkv) < 4 * tolerance<T>);
}

TEMPLATE_TEST_CASE("a sample's attention has the same bits alone, in a batch and on two threads", "", float, double) {
  using T = TestType;
  attention<T> batch{{5, 70, 3, 20}};
  attention<T> shared = batch;
  batch.forward(1);
  batch.backward(1);
  shared.forward(2);
  shared.backward(2);
  CHECK(same_bits(batch.out, shared.out));
  CHECK(same_bits(batch.log_sum_exp, shared.log_sum_exp));
  CHECK(same_bits(batch.grad_qkv, shared.grad_qkv));

  attention<T> alone = batch.sample(3);
  alone.forward();
  alone.backward();
  CHECK(same_bits(alone.out, rows_of(batch.out, 3, 1)));
  CHECK(same_bits(alone.log_sum_exp, rows_of(batch.log_sum_exp, 3, 1)));
  CHECK(same_bits(alone.grad_qkv, rows_of(batch.grad_qkv, 3, 1)));
  CHECK_FALSE(same_bits(alone.grad_qkv, rows_of(batch.grad_qkv, 2, 1)));  // control
}

TEST_CASE("attention is causal: what comes later changes no bit") {
  const size s{1, 100, 2, 16};
  attention<float> before{s};
  before.forward();
  attention<float> after = before;
  for (std::size_t i = 80 * 3 * s.width(); i < after.qkv.count(); ++i) after.qkv[i] = 1e15F;
  after.forward();
  const auto head_of = [&](const tensor<float>& out, std::size_t rows) {
    return tensor<float>{{rows * s.width()},
                         {out.values.begin(), out.values.begin() + static_cast<std::ptrdiff_t>(rows * s.width())}};
  };
  CHECK(same_bits(head_of(before.out, 80), head_of(after.out, 80)));
  CHECK_FALSE(same_bits(head_of(before.out, 81), head_of(after.out, 81)));  // control
}

TEST_CASE("attention survives scores of any finite size") {
  const double scale = GENERATE(1e-30, 30.0, 1e4, 1e15);
  CAPTURE(scale);
  attention<float> a{{1, 90, 1, 8}, scale};
  for (std::size_t i = 2 * 8; i < a.qkv.count(); i += 24) {  // values stay of size 1
    for (std::size_t j = 0; j < 8; ++j) a.qkv[i + j] = 0.5F;
  }
  a.forward();
  a.backward();
  const auto finite = [](float x) { return std::isfinite(x); };
  CHECK(std::all_of(a.out.values.begin(), a.out.values.end(),
                    [](float x) { return x == Approx(0.5).epsilon(1e-5); }));  // the weights still sum to 1
  CHECK(std::all_of(a.grad_qkv.values.begin(), a.grad_qkv.values.end(), finite));
}

TEST_CASE("no samples and no context are legal in attention") {
  attention<float> no_samples{{0, 16, 2, 4}};
  no_samples.forward(2);
  no_samples.backward(2);
  attention<float> no_context{{2, 0, 2, 4}};
  no_context.forward(2);
  no_context.backward(2);
  CHECK(no_context.out.count() == 0);
}

TEST_CASE("attention refuses operands that do not fit, and says what they got") {
  thread_team team{1};
  attention<float> a{{2, 6, 2, 4}};
  auto found = failure_of([&] { run(op::attention_forward{a.out, a.log_sum_exp, a.qkv, 3}, team); });
  CHECK(found.code == errc::invalid_argument);
  CHECK_THAT(found.text, ContainsSubstring("8") && ContainsSubstring("3 heads"));
  CHECK(failure_of([&] {
          run(op::attention_forward{a.out, a.log_sum_exp, a.qkv, 0}, team);
        }).code == errc::invalid_argument);
  found = failure_of([&] { run(op::attention_forward{a.qkv, a.log_sum_exp, a.qkv, 2}, team); });
  CHECK(found.code == errc::invalid_shape);
  CHECK_THAT(found.text, ContainsSubstring("96") && ContainsSubstring("[2, 6, 24]"));
  CHECK(failure_of([&] {
          run(op::attention_forward{a.out, a.log_sum_exp, a.out, 2}, team);
        }).code == errc::invalid_shape);
  CHECK(failure_of([&] {
          run(op::attention_backward{a.out, a.grad_out, a.qkv, a.out, a.log_sum_exp, 2}, team);
        }).code == errc::invalid_shape);
  tensor<double> wide{2, 6, 8};
  CHECK(failure_of([&] {
          run(op::attention_forward{wide, a.log_sum_exp, a.qkv, 2}, team);
        }).code == errc::invalid_shape);
  tensor<float16> half{{2, 6, 24}, std::vector<float16>(288)};
  CHECK(failure_of([&] { run(op::attention_forward{a.out, a.log_sum_exp, half, 2}, team); }).code == errc::unsupported);
}
