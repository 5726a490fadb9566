// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <zlib.h>

#include <hetero/data/idx_images.hpp>

#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/test_data.hpp"

using namespace hetero;

namespace {

std::string big_endian(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 255U);
  return text;
}

/// Pixels of image i are 16 i + position.
std::string image_file(std::uint32_t first, std::uint32_t count, std::uint32_t rows = 2, std::uint32_t columns = 3) {
  std::string text = big_endian(0x803) + big_endian(count) + big_endian(rows) + big_endian(columns);
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::uint32_t p = 0; p < rows * columns; ++p) text += static_cast<char>(16 * (first + i) + p);
  }
  return text;
}

std::string label_file(std::uint32_t count) {
  std::string text = big_endian(0x801) + big_endian(count);
  for (std::uint32_t i = 0; i < count; ++i) text += static_cast<char>(i % 10);
  return text;
}

std::string plain(const std::filesystem::path& path, const std::string& content) {
  std::ofstream{path, std::ios::binary} << content;
  return path.string();
}

std::string packed(const std::filesystem::path& path, const std::string& content) {
  gzFile file = ::gzopen(path.c_str(), "wb");
  REQUIRE(::gzwrite(file, content.data(), static_cast<unsigned>(content.size())) == static_cast<int>(content.size()));
  REQUIRE(::gzclose(file) == Z_OK);
  return path.string();
}

std::string content_of(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

}  // namespace

TEST_CASE("idx images: plain and packed files, in one and in several, are the same data") {
  test::temp_dir dir{"idx"};
  const std::vector<std::string> whole{plain(dir / "whole", image_file(0, 5))};
  const std::vector<std::string> cut{packed(dir / "a.gz", image_file(0, 2)), plain(dir / "b", image_file(2, 3))};
  const std::vector<std::string> labels{packed(dir / "labels.gz", label_file(5))};
  const idx_images one{whole, labels};
  const idx_images many{cut, labels};
  CHECK(one.size() == 5);
  CHECK(one.classes() == 5);
  CHECK(one.fingerprint() == many.fingerprint());
  CHECK(one.input_shape() == shape{6});

  batch out;
  many.load(std::array<std::uint64_t, 2>{4, 1}, out);
  CHECK(out.inputs.extents() == shape{2, 6});
  CHECK(out.targets.extents() == shape{2});
  CHECK(out.inputs.elements<float>()[0] == Approx(64 / 255.0));
  CHECK(out.inputs.elements<float>()[11] == Approx(21 / 255.0));
  CHECK(out.targets.elements<std::int32_t>()[0] == 4);
  many.load({}, out);
  CHECK(out.inputs.extents() == shape{0, 6});
  REQUIRE_THROWS_WITH(many.load(std::array<std::uint64_t, 1>{5}, out), ContainsSubstring("sample 5"));

  const idx_images scaled{whole, labels, {.mean = 0.5F, .deviation = 0.25F, .flatten = false}};
  scaled.load(std::array<std::uint64_t, 1>{1}, out);
  CHECK(out.inputs.extents() == shape{1, 1, 2, 3});
  CHECK(out.inputs.elements<float>()[0] == Approx((16 / 255.0 - 0.5) / 0.25));
  CHECK(scaled.fingerprint() != one.fingerprint());
  REQUIRE_THROWS_WITH((idx_images{whole, labels, {.deviation = 0}}), ContainsSubstring("invalid_argument"));
}

TEST_CASE("idx images: cut off at any byte is refused, packed or not") {
  test::temp_dir dir{"idxcut"};
  const std::string content = image_file(0, 3);
  const std::string gz = content_of(packed(dir / "good.gz", content));
  CHECK(read_idx((dir / "good.gz").string()).values.size() == 18);  // control
  for (std::size_t length = 0; length < content.size(); ++length) {
    const std::string path = plain(dir / "cut", content.substr(0, length));
    REQUIRE_THROWS_WITH(read_idx(path), ContainsSubstring("bad_file") && ContainsSubstring("cut"));
  }
  for (std::size_t length = 0; length < gz.size(); ++length) {
    const std::string path = plain(dir / "cut.gz", gz.substr(0, length));
    REQUIRE_THROWS_WITH(read_idx(path), ContainsSubstring("bad_file") && ContainsSubstring("cut.gz"));
  }
}

TEST_CASE("idx images: damaged and foreign files are refused") {
  test::temp_dir dir{"idxbad"};
  std::string gz = content_of(packed(dir / "good.gz", image_file(0, 60, 4, 4)));
  gz[gz.size() / 2] = static_cast<char>(gz[gz.size() / 2] ^ 0x55);
  REQUIRE_THROWS_WITH(read_idx(plain(dir / "flipped.gz", gz)), ContainsSubstring("bad_file"));
  REQUIRE_THROWS_WITH(read_idx(plain(dir / "text", "Call me Ishmael.")), ContainsSubstring("not an IDX file"));
  REQUIRE_THROWS_WITH(read_idx(plain(dir / "longer", label_file(3) + "x")), ContainsSubstring("goes on after the 3"));
  REQUIRE_THROWS_WITH(read_idx(plain(dir / "floats", big_endian(0xd01) + big_endian(1) + "abcd")),
                      ContainsSubstring("element type 13"));
  REQUIRE_THROWS_WITH(read_idx(plain(dir / "none", big_endian(0x801) + big_endian(0))),
                      ContainsSubstring("extent of 0"));
  REQUIRE_THROWS_WITH(read_idx(plain(dir / "huge", big_endian(0x803) + big_endian(0xffffffff) + big_endian(0xffffffff) +
                                                       big_endian(0xffffffff))),
                      ContainsSubstring("impossible extent"));
  // A large but legal claim costs no memory: it is read in pieces and ends where the file does.
  REQUIRE_THROWS_WITH(read_idx(plain(dir / "lies", big_endian(0x803) + big_endian(0xffff) + big_endian(0x1000) +
                                                       big_endian(0x1000) + "ab")),
                      ContainsSubstring("bad_file"));
  REQUIRE_THROWS_WITH(read_idx((dir / "absent").string()), ContainsSubstring("io: cannot open"));
  REQUIRE_THROWS_WITH(read_idx(dir.path().string()), ContainsSubstring("is a folder"));
}

TEST_CASE("idx images: files that do not belong together are refused") {
  test::temp_dir dir{"idxpair"};
  const std::string images = plain(dir / "images", image_file(0, 3));
  const std::string labels = plain(dir / "labels", label_file(3));
  const std::string more = plain(dir / "more", label_file(4));
  const std::string other = plain(dir / "other", image_file(0, 3, 3, 3));
  using list = std::vector<std::string>;
  CHECK(idx_images{list{images}, list{labels}}.size() == 3);
  REQUIRE_THROWS_WITH((idx_images{list{images}, list{more}}),
                      ContainsSubstring("3 images") && ContainsSubstring("4 labels"));
  REQUIRE_THROWS_WITH((idx_images{list{labels}, list{labels}}), ContainsSubstring("1 dimensions"));
  REQUIRE_THROWS_WITH((idx_images{list{images}, list{images}}), ContainsSubstring("3 dimensions"));
  REQUIRE_THROWS_WITH((idx_images{list{images, other}, list{labels}}), ContainsSubstring("3 x 3"));
  REQUIRE_THROWS_WITH((idx_images{list{}, list{labels}}), ContainsSubstring("at least one file"));
}

TEST_CASE("idx images: folders in the naming of MNIST") {
  test::temp_dir dir{"idxdir"};
  const std::string folder = dir.path().string();
  REQUIRE_THROWS_WITH(idx_images::from_folder(folder, idx_images::part::train), ContainsSubstring("io: found no") &&
                                                                                    ContainsSubstring("train-labels") &&
                                                                                    ContainsSubstring("fashion-mnist"));
  packed(dir / "train-labels-idx1-ubyte.gz", label_file(5));
  packed(dir / "train-images-part1of2-idx3-ubyte.gz", image_file(0, 2));
  REQUIRE_THROWS_WITH(idx_images::from_folder(folder, idx_images::part::train), ContainsSubstring("part2of2"));
  packed(dir / "train-images-part2of2-idx3-ubyte.gz", image_file(2, 3));
  CHECK(idx_images::from_folder(folder, idx_images::part::train).size() == 5);
  plain(dir / "t10k-images-idx3-ubyte", image_file(0, 4));
  plain(dir / "t10k-labels-idx1-ubyte", label_file(4));
  CHECK(idx_images::from_folder(folder, idx_images::part::test).size() == 4);
}

TEST_CASE("idx images: MNIST and Fashion-MNIST") {
  const auto mnist = test::test_data("mnist");
  if (!mnist) {
    WARN("no data collection here: MNIST was not read");
  } else {
    const auto train = idx_images::from_folder(mnist->string(), idx_images::part::train);
    const auto held_out = idx_images::from_folder(mnist->string(), idx_images::part::test);
    CHECK(train.size() == 60'000);
    CHECK(held_out.size() == 10'000);
    CHECK(train.classes() == 10);
    CHECK(train.input_shape() == shape{784});
    batch out;
    train.load(std::array<std::uint64_t, 4>{0, 1, 2, 59'999}, out);  // the well-known first labels 5 0 4, the last 8
    const auto labels = out.targets.elements<std::int32_t>();
    CHECK(std::vector(labels.begin(), labels.end()) == std::vector<std::int32_t>{5, 0, 4, 8});
  }
  const std::filesystem::path fashion = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(fashion)) {
    WARN("dataset-fashion-mnist is not installed: Fashion-MNIST was not read");
  } else {
    const auto held_out = idx_images::from_folder(fashion.string(), idx_images::part::test);
    CHECK(held_out.size() == 10'000);
    CHECK(held_out.classes() == 10);
  }
}
