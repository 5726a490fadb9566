// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <hetero/checkpoint/safetensors_json.hpp>

#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/test_data.hpp"

using namespace hetero;

namespace {

/// A small model with every element type, an empty tensor and a scalar.
struct model {
  std::vector<float> weight{0.5F, -1.5F, 2.5F, 3.25F, -4.0F, 1e-30F};
  std::vector<double> exact{1.0 / 3.0};
  std::vector<std::int64_t> step{-(std::int64_t{1} << 40)};
  std::vector<std::int32_t> ids{1, -2, 3};
  std::vector<bfloat16> brief{bfloat16{1.5F}, bfloat16{-2.0F}};
  std::vector<float16> half{float16{0.25F}};
  std::vector<std::int8_t> small{-128, 127, 0};
  std::vector<std::uint8_t> bytes{255};
  float none = 0;

  [[nodiscard]] std::vector<named_tensor> tensors() {
    return {{"layer.weight", {weight.data(), dtype::f32, {2, 3}}},
            {"exact", {exact.data(), dtype::f64, {}}},
            {"step", tensor_view{std::span{step}}},
            {"ids", tensor_view{std::span{ids}}},
            {"brief \"quoted\" \\ \n \xc3\xa9", tensor_view{std::span{brief}}},
            {"half", tensor_view{std::span{half}}},
            {"small", tensor_view{std::span{small}}},
            {"bytes", tensor_view{std::span{bytes}}},
            {"none", {&none, dtype::f32, {0, 5}}}};
  }
};

std::string content_of(const std::filesystem::path& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char piece[512];
  while (std::fgets(piece, sizeof piece, pipe) != nullptr) text += piece;
  return ::pclose(pipe) == 0 ? text : "failed: " + text;
}

}  // namespace

TEST_CASE("crc32c: the published check values, in any pieces") {
  const auto of = [](std::string_view text) { return crc32c{}.add(std::as_bytes(std::span{text})).value(); };
  CHECK(of("") == 0);
  CHECK(of("123456789") == 0xe3069283U);
  CHECK(of(std::string(32, '\0')) == 0x8a9136aaU);
  CHECK(of(std::string(32, '\xff')) == 0x62a8ab43U);
  const std::string text = "in pieces of every length, aligned or not";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    crc32c sum;
    sum.add(std::as_bytes(std::span{text}.first(cut))).add(std::as_bytes(std::span{text}.subspan(cut)));
    CHECK(sum.value() == of(text));
  }
}

TEST_CASE("safetensors: every type survives, bit for bit") {
  test::temp_dir dir{"safetensors"};
  const std::string path = (dir / "m.safetensors").string();
  model saved;
  save_safetensors(path, saved.tensors(), {{"made by", "hetero \"quoted\" \t"}, {"step", "7"}});
  const safetensors_file file{path};
  CHECK(file.names().size() == 9);
  CHECK(std::is_sorted(file.tensors().begin(), file.tensors().end(), [](auto& a, auto& b) { return a.name < b.name; }));
  CHECK(file.metadata().at("made by") == "hetero \"quoted\" \t");
  CHECK(file.metadata().at("step") == "7");
  CHECK(file.verify() == 9);
  CHECK(file.contains("half"));
  CHECK_FALSE(file.contains("hal"));

  model loaded;
  for (auto* values : {&loaded.weight}) values->assign(values->size(), 0);
  loaded.exact = {0};
  loaded.step = {0};
  loaded.ids.assign(3, 0);
  loaded.brief.assign(2, bfloat16{});
  loaded.half.assign(1, float16{});
  loaded.small.assign(3, 0);
  loaded.bytes = {0};
  for (const named_tensor& tensor : loaded.tensors()) file.load_tensor(tensor.name, tensor.view);
  CHECK(loaded.weight == saved.weight);
  CHECK(loaded.exact == saved.exact);
  CHECK(loaded.step == saved.step);
  CHECK(loaded.ids == saved.ids);
  CHECK(loaded.brief == saved.brief);
  CHECK(loaded.half == saved.half);
  CHECK(loaded.small == saved.small);
  CHECK(loaded.bytes == saved.bytes);
}

TEST_CASE("safetensors: equal content gives equal files; elements are aligned") {
  test::temp_dir dir{"safetensors"};
  model saved;
  auto tensors = saved.tensors();
  save_safetensors((dir / "a").string(), tensors, {{"k", "v"}});
  std::reverse(tensors.begin(), tensors.end());
  save_safetensors((dir / "b").string(), tensors, {{"k", "v"}});
  CHECK(content_of(dir / "a") == content_of(dir / "b"));
  const safetensors_file file{(dir / "a").string()};
  for (const stored_tensor& tensor : file.tensors()) CHECK(tensor.begin % size_of(tensor.type) == 0);
}

TEST_CASE("safetensors: no tensors and no metadata is a file too") {
  test::temp_dir dir{"safetensors"};
  save_safetensors((dir / "none").string(), {});
  const safetensors_file file{(dir / "none").string()};
  CHECK(file.names().empty());
  CHECK(file.metadata().empty());
}

TEST_CASE("safetensors: a writer takes tensors in pieces, in its order only") {
  test::temp_dir dir{"safetensors"};
  const std::string path = (dir / "pieces").string();
  const std::array<float, 4> values{1, 2, 3, 4};
  const auto bytes = std::as_bytes(std::span{values});
  safetensors_writer writer{path, {{"b", dtype::f32, {4}}, {"a", dtype::f32, {2}}, {"e", dtype::f32, {0}}}};
  CHECK(writer.entries()[0].name == "a");
  REQUIRE_THROWS_WITH(writer.write("b", bytes), ContainsSubstring("'a' is due"));
  writer.write("a", bytes.first(3));
  REQUIRE_THROWS_WITH(writer.write("a", bytes.first(6)), ContainsSubstring("only 5 were due"));
  writer.write("a", bytes.subspan(3, 5));
  REQUIRE_THROWS_WITH(writer.commit(), ContainsSubstring("'b' is due"));
  CHECK_FALSE(std::filesystem::exists(path));
  writer.write("b", bytes);
  REQUIRE_THROWS_WITH(writer.write("b", bytes), ContainsSubstring("no tensor is due"));
  writer.commit();
  const safetensors_file file{path};
  CHECK(file.verify() == 3);
  std::vector<float> a(2);
  file.load_tensor("a", tensor_view{std::span{a}});
  CHECK(a == std::vector<float>{1, 2});
}

TEST_CASE("safetensors: what cannot be saved is refused, and nothing is written") {
  test::temp_dir dir{"safetensors"};
  const std::string path = (dir / "refused").string();
  std::array<float, 6> values{};
  const tensor_view view{values.data(), dtype::f32, {2, 3}};
  const auto save = [&](std::vector<named_tensor> tensors, const file_metadata& metadata = {}) {
    save_safetensors(path, tensors, metadata);
  };
  REQUIRE_THROWS_WITH(save({{"a", view}, {"a", view}}), ContainsSubstring("two tensors are named 'a'"));
  REQUIRE_THROWS_WITH(save({{"__metadata__", view}}), ContainsSubstring("reserved"));
  REQUIRE_THROWS_WITH(save({{"bad\xff", view}}), ContainsSubstring("UTF-8"));
  REQUIRE_THROWS_WITH(save({{"a", view}}, {{"k", "cut \xe2\x82"}}), ContainsSubstring("UTF-8"));
  REQUIRE_THROWS_WITH(save({{"a", view}}, {{"crc32c:a", "0"}}), ContainsSubstring("reserved"));
  REQUIRE_THROWS_WITH(save({{"a", view.slice(1, 0, 2)}}), ContainsSubstring("has gaps"));
  REQUIRE_THROWS_WITH(save({{"a", tensor_view{values.data(), dtype::f32, {6}, {device_kind::cuda, 1}}}}),
                      ContainsSubstring("cuda:1"));
  CHECK(std::filesystem::is_empty(dir.path()));
  save({{"a", view}});  // control
  CHECK(std::filesystem::exists(path));
}

TEST_CASE("safetensors: another shape, a missing tensor and a lossy type are told apart") {
  test::temp_dir dir{"safetensors"};
  const std::string path = (dir / "m.safetensors").string();
  model saved;
  save_safetensors(path, saved.tensors());
  const safetensors_file file{path};
  std::array<float, 6> six{};
  const auto as = [&](const shape& extents) { return tensor_view{six.data(), dtype::f32, extents}; };
  REQUIRE_THROWS_WITH(file.load_tensor("layer.weight", as({3, 2})), ContainsSubstring("mismatch") &&
                                                                        ContainsSubstring("[2, 3]") &&
                                                                        ContainsSubstring("another model"));
  REQUIRE_THROWS_WITH(file.load_tensor("layer.bias", as({6})), ContainsSubstring("no tensor 'layer.bias'; it has 9: "));
  REQUIRE_THROWS_WITH(file.load_tensor("exact", as({})),
                      ContainsSubstring("unsupported") && ContainsSubstring("read it as f64"));
  REQUIRE_THROWS_WITH(file.load_tensor("ids", tensor_view{six.data(), dtype::f32, {3}}),
                      ContainsSubstring("read it as i32"));
  std::array<double, 6> wide{};
  file.load_tensor("layer.weight", {wide.data(), dtype::f64, {2, 3}});  // control: exact widening is fine
  CHECK(wide[3] == 3.25);
  std::array<double, 2> brief{};
  file.load_tensor(saved.tensors()[4].name, {brief.data(), dtype::f64, {2}});
  CHECK(brief == std::array<double, 2>{1.5, -2.0});
}

TEST_CASE("safetensors: one flipped bit anywhere in the data is found") {
  test::temp_dir dir{"safetensors"};
  const auto path = dir / "m.safetensors";
  model saved;
  save_safetensors(path.string(), saved.tensors());
  const std::string good = content_of(path);
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  for (std::size_t at = 8 + header; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    std::ofstream{path, std::ios::binary} << bad;
    const safetensors_file file{path.string()};
    REQUIRE_THROWS_WITH(file.verify(), ContainsSubstring("bad_file") && ContainsSubstring("CRC-32C"));
    int refused = 0;
    for (const named_tensor& tensor : saved.tensors()) {
      try {
        file.load_tensor(tensor.name, tensor.view);
      } catch (const error& e) {
        CHECK(e.code() == errc::bad_file);
        ++refused;
      }
    }
    REQUIRE(refused == 1);
  }
}

TEST_CASE("safetensors: NumPy reads what we write") {
  test::temp_dir dir{"safetensors"};
  const std::string path = (dir / "m.safetensors").string();
  model saved;
  save_safetensors(path, saved.tensors(), {{"made by", "h\xc3\xa9t\xc3\xa9ro"}});
  std::string python;
  for (const std::string candidate : {"python3", "/usr/bin/python3"}) {
    if (python.empty() && output_of(candidate + " -c 'import numpy' 2>&1").empty()) python = candidate;
  }
  if (python.empty()) {
    WARN("no Python with NumPy here: our files were not read by another program");
    return;
  }
  const auto script = test::source_dir() / "tests/unit/checkpoint/read_safetensors.py";
  const std::string said =
      output_of("PYTHONIOENCODING=utf-8 " + python + " '" + script.string() + "' '" + path + "' 2>&1");
  CHECK(said ==
        "metadata \"h\xc3\xa9t\xc3\xa9ro\"\n"
        "exact F64 [] 0.3333333333333333 0.3333333333333333 0.3333333333333333\n"
        "step I64 [1] -1099511627776.0 -1099511627776.0 -1099511627776.0\n"
        "ids I32 [3] 2.0 1.0 3.0\n"
        "layer.weight F32 [2, 3] 0.75 0.5 1.0000000031710769e-30\n"
        "none F32 [0, 5] 0.0\n"
        "brief \"quoted\" \\ \n \xc3\xa9 BF16 [2] 65472.0 16320.0 49152.0\n"
        "half F16 [1] 0.25 0.25 0.25\n"
        "bytes U8 [1] 255.0 255.0 255.0\n"
        "small I8 [3] -1.0 -128.0 0.0\n");
  // Control: the script does look.
  std::string bytes = content_of(path);
  std::ofstream{path, std::ios::binary} << bytes + "x";
  CHECK(output_of(python + " '" + script.string() + "' '" + path + "' 2>&1").rfind("failed: ", 0) == 0);
}
