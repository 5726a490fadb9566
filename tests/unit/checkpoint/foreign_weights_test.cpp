// SPDX-License-Identifier: Apache-2.0
// Files that other programs wrote.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <hetero/checkpoint/safetensors_json.hpp>

#include "support/catch.hpp"
#include "support/test_data.hpp"

using namespace hetero;

namespace {

template <class T> std::vector<T> load(const safetensors_file& file, const std::string& name) {
  const shape extents = file.tensor(name).extents;
  std::vector<T> values(extents.count());
  file.load_tensor(name, {values.data(), dtype_of<T>, extents});
  return values;
}

}  // namespace

TEST_CASE("foreign weights: one file per element type, each the values -3 to 2") {
  const auto folder = test::test_data("weights/safetensors-samples");
  if (!folder) {
    WARN("no data collection here: foreign safetensors files were not read");
    return;
  }
  struct sample {
    std::string file;
    stored_type type;
    double modulus;  // unsigned values wrap around it
  };
  const std::vector<sample> samples{
      {"b", stored_type::i8, 0},      {"B", stored_type::u8, 256}, {"h", stored_type::i16, 0},
      {"H", stored_type::u16, 65536}, {"i", stored_type::i32, 0},  {"I", stored_type::u32, 4294967296.0},
      {"e", stored_type::f16, 0},     {"f", stored_type::f32, 0},  {"d", stored_type::f64, 0}};
  for (const sample& s : samples) {
    CAPTURE(s.file);
    const safetensors_file file{(*folder / (s.file + ".safetensors")).string()};
    CHECK(file.metadata().at("test") == "a");
    REQUIRE(file.names().size() == 1);
    const std::string name = file.names().front();
    CHECK(file.tensor(name).type == s.type);
    const bool floating = s.type <= stored_type::f16;
    std::vector<double> values(6);
    if (floating && s.type != stored_type::f64) {
      values = load<double>(file, name);
    } else if (s.type == stored_type::f64) {
      values = load<double>(file, name);
      CHECK_THROWS_AS(load<float>(file, name), error);
    } else {
      const auto whole = load<std::int64_t>(file, name);
      values.assign(whole.begin(), whole.end());
      CHECK_THROWS_AS(load<float>(file, name), error);  // no silent conversion between families
    }
    for (int i = 0; i < 6; ++i) {
      const double expected = i - 3 < 0 ? i - 3 + s.modulus : i - 3;
      CHECK(values[static_cast<std::size_t>(i)] == expected);
    }
  }
  const safetensors_file all{(*folder / "overall.safetensors").string()};
  CHECK(all.names().size() == 9);
  CHECK(all.verify() == 0);  // nobody else writes our checksums
  for (const stored_tensor& tensor : all.tensors()) CHECK(tensor.extents.count() == 6);
}

TEST_CASE("foreign weights: narrowing is refused with the type that would work") {
  const auto folder = test::test_data("weights/safetensors-samples");
  if (!folder) {
    WARN("no data collection here: foreign safetensors files were not read");
    return;
  }
  const safetensors_file file{(*folder / "H.safetensors").string()};
  std::vector<std::uint8_t> bytes(6);
  REQUIRE_THROWS_WITH(file.load_tensor(file.names().front(), {bytes.data(), dtype::u8, file.tensors().front().extents}),
                      ContainsSubstring("U16") && ContainsSubstring("read it as i32"));
}

TEST_CASE("foreign weights: every checkpoint of the collection loads whole") {
  const auto folder = test::test_data("weights");
  if (!folder) {
    WARN("no data collection here: foreign safetensors files were not read");
    return;
  }
  std::map<std::string, std::size_t> elements;
  for (const auto& entry : std::filesystem::recursive_directory_iterator{*folder}) {
    if (entry.path().extension() != ".safetensors" || entry.path().parent_path().filename() == "safetensors-samples")
      continue;
    const safetensors_file file{entry.path().string()};
    for (const stored_tensor& tensor : file.tensors()) {
      elements[entry.path().filename().string()] += tensor.extents.count();
      if (tensor.type == stored_type::i64) {
        CHECK(load<std::int64_t>(file, tensor.name).size() == tensor.extents.count());
        continue;
      }
      for (const float value : load<float>(file, tensor.name)) REQUIRE(std::isfinite(value));
    }
  }
  CHECK(elements.size() == 3);
  CHECK(elements["mnist.safetensors"] > 370'000);  // the layers of its README: fc1 alone has 11616 x 32
}

TEST_CASE("foreign weights: a layer gives the published output") {
  const auto path = test::test_data("weights/burn-mnist/mnist.safetensors");
  if (!path) {
    WARN("no data collection here: foreign safetensors files were not read");
    return;
  }
  const safetensors_file file{path->string()};
  CHECK(file.tensor("fc1.weight").extents == shape{32, 11616});
  CHECK(file.tensor("conv1.weight").extents == shape{8, 1, 3, 3});
  CHECK(load<std::int64_t>(file, "norm1.num_batches_tracked").front() > 0);
  for (const float variance : load<float>(file, "norm1.running_var")) CHECK(variance > 0);
}
