// SPDX-License-Identifier: Apache-2.0
#include "unit/device/kernel_test.hpp"

#include <numeric>

#include <hetero/device/cpu/dropout.hpp>

using namespace hetero;
using namespace hetero::test::kernels;
using hetero::detail::cpu::run;

namespace {

template <class T>
struct dropped {
  tensor<T> in;
  tensor<std::int64_t> ids;
  tensor<T> out{in.extents[0], in.extents[1]};

  [[nodiscard]] op::dropout op(double probability) const {
    return {.out = out, .in = in, .sample_ids = ids, .probability = probability, .seed = 99, .step = 3, .layer = 2};
  }
};

[[nodiscard]] tensor<std::int64_t> ids_from(std::int64_t first, std::size_t count) {
  tensor<std::int64_t> ids{count};
  std::iota(ids.values.begin(), ids.values.end(), first);
  return ids;
}

template <class T>
[[nodiscard]] tensor<T> ones(std::size_t samples, std::size_t elements) {
  return {{samples, elements}, std::vector<T>(samples * elements, T{1})};
}

}  // namespace

TEMPLATE_TEST_CASE("dropout keeps or drops by the element's own random number and scales what stays", "", float,
                   double) {
  using T = TestType;
  const std::size_t elements = GENERATE(1U, 3U, 17U, 64U, 65U, 203U);
  const double probability = GENERATE(0.1, 0.5, 0.99);
  CAPTURE(elements, probability);
  dropped<T> d{normal<T>({5, elements}, 1), {{5}, {7, 0, 123456789012345, -1, 8}}};
  thread_team team{1};
  const op::dropout op = d.op(probability);
  run(op, team);
  const detail::dropout_mask mask{op, elements};
  bool right = true;
  for (std::size_t s = 0; s < 5; ++s) {
    for (std::size_t e = 0; e < elements; ++e) {
      const T scaled = d.in[s * elements + e] * static_cast<T>(1 / (1 - probability));
      const T expected = mask.keeps(static_cast<std::uint64_t>(d.ids[s]), e) ? scaled : T{0};
      right = right && d.out[s * elements + e] == expected;
    }
  }
  CHECK(right);

  SECTION("in place, and again on a gradient, the mask is the same") {
    dropped<T> grad{ones<T>(5, elements), d.ids};
    op::dropout in_place = grad.op(probability);
    in_place.out = in_place.in;
    run(in_place, team);
    for (std::size_t i = 0; i < d.out.count(); ++i) right = right && (grad.in[i] == 0) == (d.out[i] == 0);
    CHECK(right);
  }
}

TEST_CASE("the share of dropped elements is the probability") {
  const double probability = GENERATE(0.0, 1e-3, 0.1, 0.5, 0.9);
  CAPTURE(probability);
  const std::size_t count = 40 * 5000;
  dropped<float> d{ones<float>(40, 5000), ids_from(100, 40)};
  thread_team team{2};
  run(d.op(probability), team);
  const auto zeros = static_cast<double>(std::count(d.out.values.begin(), d.out.values.end(), 0.0F));
  const double n = static_cast<double>(count);
  CHECK(std::abs(zeros - n * probability) <= 5 * std::sqrt(n * probability * (1 - probability)));
  if (probability == 0) CHECK(same_bits(d.out, d.in));
}

TEST_CASE("a sample's mask does not depend on the batch around it, its place in it, or threads") {
  dropped<float> whole{normal<float>({12, 333}, 1), ids_from(40, 12)};
  thread_team one{1};
  thread_team two{2};
  run(whole.op(0.3), two);
  for (const std::size_t split : {1U, 5U, 11U}) {
    dropped<float> head{rows_of(whole.in, 0, split), rows_of(whole.ids, 0, split)};
    dropped<float> tail{rows_of(whole.in, split, 12 - split), rows_of(whole.ids, split, 12 - split)};
    run(head.op(0.3), one);
    run(tail.op(0.3), one);
    CHECK(same_bits(head.out, rows_of(whole.out, 0, split)));
    CHECK(same_bits(tail.out, rows_of(whole.out, split, 12 - split)));
  }
  dropped<float> other{whole.in, ids_from(41, 12)};  // control: another id, another mask
  run(other.op(0.3), one);
  CHECK_FALSE(same_bits(rows_of(other.out, 0, 1), rows_of(whole.out, 0, 1)));
}

TEST_CASE("seed, step, layer and sample each give masks of their own") {
  thread_team team{1};
  const auto out_of = [&](auto change, std::int64_t id) {
    dropped<float> d{ones<float>(1, 4096), ids_from(id, 1)};
    op::dropout op = d.op(0.5);
    change(op);
    run(op, team);
    return d.out;
  };
  const tensor<float> first = out_of([](op::dropout&) {}, 5);
  CHECK(same_bits(first, out_of([](op::dropout&) {}, 5)));
  const tensor<float> others[] = {out_of([](op::dropout& o) { o.seed = 98; }, 5),
                                  out_of([](op::dropout& o) { o.step = 4; }, 5),
                                  out_of([](op::dropout& o) { o.layer = 1; }, 5), out_of([](op::dropout&) {}, 6)};
  for (const tensor<float>& other : others) {
    std::size_t equal = 0;
    for (std::size_t i = 0; i < 4096; ++i) equal += first[i] == other[i] ? 1 : 0;
    CHECK(std::abs(static_cast<double>(equal) - 2048) < 5 * 32);  // independent: half agree, deviation 32
  }
}

TEST_CASE("dropout drops NaN and infinity like any other value") {
  dropped<float> d{{{1, 256}, std::vector<float>(256, std::nanf(""))}, ids_from(0, 1)};
  thread_team team{1};
  run(d.op(0.5), team);
  CHECK(std::count(d.out.values.begin(), d.out.values.end(), 0.0F) > 80);
  CHECK(std::count_if(d.out.values.begin(), d.out.values.end(), [](float x) { return std::isnan(x); }) > 80);
}

TEST_CASE("dropout refuses probabilities outside [0, 1) and operands that do not fit") {
  dropped<float> d{ones<float>(3, 8), ids_from(0, 3)};
  thread_team team{1};
  const double bad = GENERATE(1.0, -0.1, 2.0, std::nan(""));
  const failure found = failure_of([&] { run(d.op(bad), team); });
  CHECK(found.code == errc::invalid_argument);
  CHECK_THAT(found.text, ContainsSubstring("[0, 1)"));
  CHECK(std::isnan(d.out[0]));

  op::dropout op = d.op(0.5);
  tensor<std::int64_t> two = ids_from(0, 2);
  op.sample_ids = two;
  CHECK(failure_of([&] { run(op, team); }).code == errc::invalid_shape);
  op = d.op(0.5);
  tensor<float> other{3, 9};
  op.out = other;
  CHECK(failure_of([&] { run(op, team); }).code == errc::invalid_shape);
  tensor<bfloat16> half{{3, 8}, std::vector<bfloat16>(24)};
  op.out = half;
  op.in = half;
  CHECK(failure_of([&] { run(op, team); }).code == errc::unsupported);

  dropped<float> none{{{0, 8}, {}}, ids_from(0, 0)};
  run(none.op(0.5), team);
}
