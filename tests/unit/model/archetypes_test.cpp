// SPDX-License-Identifier: Apache-2.0
#include "archetypes/layer.hpp"

#include <hetero/model/layer/chain.hpp>
#include <hetero/model/layer/residual.hpp>
#include <hetero/model/profile.hpp>

#include "conformance/layer.hpp"
#include "support/catch.hpp"
#include "support/reference_device.hpp"

using namespace hetero;
using namespace hetero::test;

TEST_CASE("the least of a layer is enough for everything that runs layers", "[model]") {
  const layer_base least;
  const residual wrapped{chain{least, chain{least, least}}};
  layer_runner<decltype(wrapped)> runner{wrapped, reference_device{}, {.input = {2, 3}, .split = true}};
  runner.forward();
  runner.backward();
  runner.backward_split();
  CHECK(wrapped.parameters().empty());
  CHECK(parameter_count(wrapped) == 0);
  CHECK(communication_of(wrapped, {2, 3}).empty());
  static_assert(reads_input<layer_base> && reads_output<layer_base>, "who says nothing gets everything");
}

TEST_CASE("the least of a model has a profile and a hash", "[model]") {
  const model_profile profile = profile_of(model_archetype{});
  REQUIRE(profile.layers.size() == 1);
  CHECK(profile.parameters() == 0);
  CHECK(profile.layers[0].name == "unit");
  CHECK(model_hash(model_archetype{}) == model_hash(model_archetype{}));
}
