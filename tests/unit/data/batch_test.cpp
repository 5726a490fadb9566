// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <hetero/data/batch.hpp>

#include "support/catch.hpp"

using namespace hetero;

namespace {

batch numbered(std::uint64_t first, std::size_t count) {
  std::vector<std::uint64_t> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(first + i);
  batch out;
  out.prepare(ids, dtype::f32, {2}, dtype::i32, {});
  for (std::size_t i = 0; i < count; ++i) {
    out.inputs.elements<float>()[2 * i] = static_cast<float>(ids[i]);
    out.inputs.elements<float>()[2 * i + 1] = -static_cast<float>(ids[i]);
    out.targets.elements<std::int32_t>()[i] = static_cast<std::int32_t>(ids[i]);
  }
  return out;
}

}  // namespace

TEST_CASE("host_tensor: elements are aligned for every type and size") {
  for (const std::size_t count : {0U, 1U, 3U, 64U, 1000U}) {
    for (const dtype type : {dtype::f64, dtype::f32, dtype::f16, dtype::u8}) {
      const host_tensor tensor{type, {count, 3}};
      CHECK(reinterpret_cast<std::uintptr_t>(tensor.view().data()) % 64 == 0);
      CHECK(tensor.view());  // an empty tensor is not a missing one
      CHECK(tensor.size_bytes() == count * 3 * size_of(type));
    }
  }
  CHECK_FALSE(host_tensor{}.view());
}

TEST_CASE("host_tensor: copies are deep, moves leave nothing, resizing keeps the allocation") {
  host_tensor a{dtype::i32, {4}};
  std::ranges::fill(a.elements<std::int32_t>(), 7);
  host_tensor b = a;
  b.elements<std::int32_t>()[0] = 1;
  CHECK(a.elements<std::int32_t>()[0] == 7);
  const void* address = b.view().data();
  host_tensor c = std::move(b);
  CHECK(c.view().data() == address);
  CHECK(b.count() == 0);  // NOLINT: a moved-from tensor is empty
  CHECK_FALSE(b.view());
  c.resize(dtype::u8, {2, 2});
  CHECK(c.view().data() == address);
  CHECK(c.extents() == shape{2, 2});
  c = host_tensor{};
  CHECK_FALSE(c.view());
}

TEST_CASE("host_tensor: reading as another type or an absurd size is refused") {
  const host_tensor tensor{dtype::i32, {4}};
  REQUIRE_THROWS_WITH(tensor.elements<float>(), ContainsSubstring("invalid_shape"));
  REQUIRE_THROWS_WITH((host_tensor{dtype::f32, {std::size_t{1} << 40U, std::size_t{1} << 40U}}),
                      ContainsSubstring("out_of_memory"));
}

TEST_CASE("batch: parts are views of the same memory") {
  const batch whole = numbered(10, 5);
  CHECK(whole.inputs.extents() == shape{5, 2});
  CHECK(whole.targets.extents() == shape{5});
  CHECK(whole.weights == std::vector<float>(5, 1.0F));

  const batch_view part = whole.slice(1, 4).slice(1, 3);
  REQUIRE(part.size() == 2);
  CHECK(part.sample_ids[0] == 12);
  CHECK(part.inputs.extents() == shape{2, 2});
  CHECK(part.inputs.elements<float>()[1] == -12.0F);
  CHECK(part.targets.elements<std::int32_t>()[1] == 13);
  CHECK(part.inputs.data() == whole.inputs.elements<float>().data() + 4);
  REQUIRE_THROWS_WITH(whole.slice(2, 6), ContainsSubstring("invalid_shape"));
  REQUIRE_THROWS_WITH(whole.slice(3, 2), ContainsSubstring("invalid_shape"));
}

TEST_CASE("batch: no samples is a batch too") {
  const batch nothing = numbered(0, 0);
  CHECK(nothing.empty());
  CHECK(nothing.inputs.extents() == shape{0, 2});
  CHECK(nothing.view().inputs.count() == 0);
  CHECK(nothing.view().inputs);
  const batch some = numbered(0, 3);
  for (std::size_t at = 0; at <= 3; ++at) {
    CHECK(some.slice(at, at).empty());
    CHECK(some.slice(at, at).inputs.extents() == shape{0, 2});
  }
  CHECK(batch{}.slice(0, 0).empty());
}

TEST_CASE("batch: a sample of six dimensions leaves none for the batch") {
  batch out;
  REQUIRE_THROWS_WITH(out.prepare({}, dtype::f32, {1, 1, 1, 1, 1, 1}, dtype::i32, {}),
                      ContainsSubstring("invalid_shape"));
}
