// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <hetero/device/cpu_device.hpp>
#include <hetero/model/loss/accuracy.hpp>
#include <hetero/model/loss/softmax_cross_entropy.hpp>

#include "archetypes/layer.hpp"
#include "conformance/layer.hpp"
#include "support/catch.hpp"
#include "support/reference_device.hpp"

using namespace hetero;
using namespace hetero::test;

namespace {

/// Logits, targets and weights on a device, and what a loss makes of them.
struct loss_setup {
  explicit loss_setup(int which)
      : device{which == 0 ? any_device{reference_device{}} : any_device{cpu_device{}}},
        queue{device},
        scratch{device, queue.id()} {}

  std::vector<double> evaluate(const shape& extents, std::span<const double> logits, std::vector<std::int32_t> targets,
                               std::vector<float> weights, bool in_place = false) {
    const buffer prediction{device, queue.id(), dtype::f64, extents};
    const buffer gradient{device, queue.id(), dtype::f64, extents};
    const buffer result{device, queue.id(), dtype::f64, {2}};
    upload(device, queue.id(), prediction.view(), logits);
    queue.launch(op::fill{.out = result.view(), .value = 0});
    execution context{.device = device, .stream = queue.id(), .scratch = scratch};
    const tensor_view to = in_place ? prediction.view() : gradient.view();
    const auto without_last = detail::without_last(extents);
    const tensor_view target{targets.data(), dtype::i32,
                             targets.size() == without_last.count() ? without_last : shape{targets.size()}};
    const tensor_view weight = weights.empty() ? tensor_view{} : tensor_view{std::span{weights}};
    softmax_cross_entropy{}.evaluate(context, prediction.view(), target, weight, result.view(), to);
    grad = download(device, queue.id(), to);
    return download(device, queue.id(), result.view());
  }

  any_device device;
  stream queue;
  scratch_pool scratch;
  std::vector<double> grad;
};

}  // namespace

TEST_CASE("cross-entropy sums and weighs rows, and its gradient is that of the sum", "[model]") {
  loss_setup loss{GENERATE(0, 1)};
  const auto logits = normals(2 * 3 * 5, 4);
  const std::vector<std::int32_t> targets{0, 4, -1, 2, -1, 1};
  const std::vector<float> weights{0.5F, 3.0F};
  const auto found = loss.evaluate({2, 3, 5}, logits, targets, weights);
  double sum = 0;
  for (std::size_t r = 0; r < 6; ++r) {
    if (targets[r] < 0) continue;
    double exponentials = 0;
    for (std::size_t c = 0; c < 5; ++c) exponentials += std::exp(logits[r * 5 + c]);
    sum += static_cast<double>(weights[r / 3]) *
           (std::log(exponentials) - logits[r * 5 + static_cast<std::size_t>(targets[r])]);
  }
  CHECK(found[0] == Approx(sum).epsilon(1e-12));
  CHECK(found[1] == 2 * 0.5 + 2 * 3.0);

  const auto gradient = loss.grad;
  std::vector<double> slopes(logits.size());
  auto moved = logits;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    moved[i] = logits[i] + 1e-5;
    const double above = loss.evaluate({2, 3, 5}, moved, targets, weights)[0];
    moved[i] = logits[i] - 1e-5;
    slopes[i] = (above - loss.evaluate({2, 3, 5}, moved, targets, weights)[0]) / 2e-5;
    moved[i] = logits[i];
  }
  CHECK(distance(gradient, slopes) < 1e-8);
  for (std::size_t c = 0; c < 5; ++c) CHECK(gradient[2 * 5 + c] == 0);  // an ignored row

  loss.evaluate({2, 3, 5}, logits, targets, weights, true);
  CHECK(loss.grad == gradient);  // in place
}

TEST_CASE("cross-entropy classifies samples", "[model]") {
  loss_setup loss{GENERATE(0, 1)};
  const std::vector<double> logits{0, 0, 0, 0};
  const auto found = loss.evaluate({2, 2}, logits, {1, 0}, {});
  CHECK(found[0] == Approx(2 * std::log(2.0)));
  CHECK(found[1] == 2);
  CHECK(loss.grad == std::vector<double>{0.5, -0.5, -0.5, 0.5});
  const auto none = loss.evaluate({2, 2}, logits, {-1, -1}, {});
  CHECK(none == std::vector<double>{0, 0});
}

TEST_CASE("cross-entropy refuses targets that fit no row or class", "[model]") {
  loss_setup loss{GENERATE(0, 1)};
  const std::vector<double> logits(4);
  CHECK_THROWS_WITH(loss.evaluate({2, 2}, logits, {1}, {}),
                    ContainsSubstring("one target per row") && ContainsSubstring("[2, 2]"));
  CHECK_THROWS_WITH(loss.evaluate({2, 2}, logits, {0, 2}, {}), ContainsSubstring("invalid_argument"));
}

TEST_CASE("accuracy is a sum with its weight", "[model]") {
  loss_setup setup{GENERATE(0, 1)};
  const buffer prediction{setup.device, setup.queue.id(), dtype::f64, {4, 3}};
  const buffer result{setup.device, setup.queue.id(), dtype::f64, {2}};
  upload(setup.device, setup.queue.id(), prediction.view(), std::vector<double>{1, 2, 0, 5, 4, 3, 0, 0, 1, 9, 1, 1});
  setup.queue.launch(op::fill{.out = result.view(), .value = 0});
  execution context{.device = setup.device, .stream = setup.queue.id(), .scratch = setup.scratch};
  std::vector<std::int32_t> targets{1, 0, 0, -1};
  std::vector<float> weights{1, 2, 4, 8};
  accuracy{}.evaluate(context, prediction.view(), tensor_view{std::span{targets}}, tensor_view{std::span{weights}},
                      result.view());
  CHECK(download(setup.device, setup.queue.id(), result.view()) == std::vector<double>{3, 7});
  CHECK_THROWS_WITH(
      accuracy{}.evaluate(context, prediction.view(), tensor_view{std::span{targets}.first(3)}, {}, result.view()),
      ContainsSubstring("one target per row"));
}
