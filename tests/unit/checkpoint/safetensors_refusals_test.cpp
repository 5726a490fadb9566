// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <hetero/checkpoint/safetensors_json.hpp>

#include "support/catch.hpp"
#include "support/temp_dir.hpp"

using namespace hetero;

namespace {

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(length >> (8 * i) & 255U);
  return text + rest;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, '\1'));
}

std::string tensor(const std::string& name, const std::string& type, const std::string& extents,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + extents + R"(,"data_offsets":)" + offsets + "}";
}

/// Opens `content` as a file: "" when it is accepted, else the error's text.
std::string verdict(const std::string& content) {
  static const test::temp_dir dir{"refusals"};
  const auto path = dir / "f.safetensors";
  std::ofstream{path, std::ios::binary} << content;
  try {
    const safetensors_file file{path.string()};
  } catch (const error& e) {
    CHECK_THAT(e.message(), ContainsSubstring("f.safetensors"));
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("safetensors refusals: sound files pass") {
  CHECK(verdict(file_of("{}", 0)).empty());
  CHECK(verdict(file_of("{}      ", 0)).empty());
  CHECK(verdict(file_of("{" + tensor("a", "F32", "[2]", "[0,8]") + "}", 8)).empty());
  CHECK(verdict(file_of("{" + tensor("b", "F32", "[2]", "[4,12]") + "," + tensor("a", "I8", "[4]", "[0,4]") + "}", 12))
            .empty());
  CHECK(verdict(file_of("{" + tensor("s", "F32", "[]", "[0,4]") + "}", 4)).empty());
  CHECK(verdict(file_of("{" + tensor("e", "F32", "[0,18446744073709551615]", "[0,0]") + "}", 0)).empty());
  CHECK(verdict(file_of(R"({"__metadata__":{"a":"b"}})", 0)).empty());
  CHECK(verdict(file_of("{" + tensor("f8", "F8_E4M3", "[3]", "[0,3]") + "}", 3)).empty());
}

TEST_CASE("safetensors refusals: each trap is refused by name") {
  struct trap {
    std::string name;
    std::string content;
    std::string words;
  };
  const std::string a = tensor("a", "F32", "[2]", "[0,8]");
  const std::string max = "18446744073709551615";
  const std::vector<trap> traps{
      {"empty", "", "it has 0 bytes"},
      {"seven bytes", "1234567", "it has 7 bytes"},
      {"text", "Call me Ishmael. Some years ago", "announce a header of"},
      {"header too large", with_length(100'000'001, "{}"), "at most 100000000"},
      {"length wraps", with_length(~std::uint64_t{0}, "{}"), "announce"},
      {"header cut", with_length(3, "{}"), "cut off"},
      {"no header", with_length(0, ""), "does not open a JSON object"},
      {"space first", file_of(" {}", 0), "does not open a JSON object"},
      {"array", file_of("[]", 0), "does not open a JSON object"},
      {"not JSON", file_of("{\"a\":", 0), "not JSON"},
      {"trailing JSON", file_of("{}{}", 0), "not JSON"},
      {"not UTF-8", file_of("{\"\xff\":1}", 0), "not JSON"},
      {"zero bytes in the header", file_of(std::string("{}\0\0", 4), 0), "not JSON"},
      {"deep", file_of("{\"a\":[[[[[[[[1]]]]]]]]}", 0), "nests deeper"},
      {"very deep", file_of("{\"a\":" + std::string(200'000, '['), 0), "nests deeper"},
      {"tensor is a number", file_of("{\"a\":1}", 0), "lacks one of"},
      {"no dtype", file_of(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8), "lacks one of"},
      {"same name twice", file_of("{" + a + "," + a + "}", 8), "'a' twice"},
      {"same key twice", file_of(R"({"a":{"dtype":"I8","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
       "'dtype' twice"},
      {"metadata no object", file_of(R"({"__metadata__":[]})", 0), "__metadata__ is not an object"},
      {"metadata no string", file_of(R"({"__metadata__":{"a":1}})", 0), "'a' is not a string"},
      {"unknown dtype", file_of("{" + tensor("a", "F33", "[2]", "[0,8]") + "}", 8), "unknown dtype \"F33\""},
      {"dtype a number", file_of(R"({"a":{"dtype":3,"shape":[2],"data_offsets":[0,8]}})", 8), "unknown dtype 3"},
      {"shape no list", file_of("{" + tensor("a", "F32", "2", "[0,8]") + "}", 8), "not a list of whole numbers"},
      {"negative extent", file_of("{" + tensor("a", "F32", "[-2]", "[0,8]") + "}", 8), "not a list of whole numbers"},
      {"fraction", file_of("{" + tensor("a", "F32", "[2.0]", "[0,8]") + "}", 8), "not a list of whole numbers"},
      {"extent past 64 bits", file_of("{" + tensor("a", "F32", "[18446744073709551618]", "[0,8]") + "}", 8),
       "not a list of whole"},
      {"one offset", file_of("{" + tensor("a", "F32", "[2]", "[0]") + "}", 8), "not two whole numbers"},
      {"three offsets", file_of("{" + tensor("a", "F32", "[2]", "[0,8,8]") + "}", 8), "not two whole numbers"},
      {"negative offset", file_of("{" + tensor("a", "F32", "[2]", "[-8,0]") + "}", 8), "not two whole numbers"},
      {"end before begin", file_of("{" + tensor("a", "F32", "[2]", "[8,0]") + "}", 8), "claims data bytes 8 to 0"},
      {"past the end", file_of("{" + tensor("a", "F32", "[2]", "[0,8]") + "}", 7), "cut off"},
      {"far past the end", file_of("{" + tensor("a", "F32", "[2]", "[0," + max + "]") + "}", 8), "claims data bytes"},
      {"size too small", file_of("{" + tensor("a", "F32", "[3]", "[0,8]") + "}", 8), "needs 12 bytes"},
      {"size too large", file_of("{" + tensor("a", "F32", "[1]", "[0,8]") + "}", 8), "needs 4 bytes"},
      {"product wraps to its size", file_of("{" + tensor("a", "F32", "[2305843009213693952,8]", "[0,0]") + "}", 0),
       "impossible shape"},
      {"product wraps", file_of("{" + tensor("a", "F32", "[" + max + "," + max + "]", "[0,8]") + "}", 8),
       "impossible shape"},
      {"overlap", file_of("{" + a + "," + tensor("b", "F32", "[2]", "[4,12]") + "}", 12), "an overlap"},
      {"same bytes twice", file_of("{" + a + "," + tensor("b", "F32", "[2]", "[0,8]") + "}", 8), "an overlap"},
      {"hole", file_of("{" + a + "," + tensor("b", "F32", "[1]", "[12,16]") + "}", 16), "a hole"},
      {"hole in front", file_of("{" + tensor("a", "F32", "[2]", "[4,12]") + "}", 12), "a hole"},
      {"bytes appended", file_of("{" + a + "}", 9), "bytes were appended"},
      {"seven dimensions", file_of("{" + tensor("a", "I8", "[1,1,1,1,1,1,1]", "[0,1]") + "}", 1), "7 dimensions"},
  };
  for (const trap& t : traps) {
    CAPTURE(t.name);
    const std::string said = verdict(t.content);
    CHECK_THAT(said, ContainsSubstring(t.words));
    CHECK(said.rfind(t.name == "seven dimensions" ? "unsupported: " : "bad_file: ", 0) == 0);
    CHECK(said.size() < 1000);
  }
}

TEST_CASE("safetensors refusals: a file cut at any length") {
  test::temp_dir dir{"cut"};
  std::vector<float> values(5, 1.0F);
  const std::vector<named_tensor> tensors{{"a", tensor_view{std::span{values}}}, {"b", tensor_view{std::span{values}}}};
  save_safetensors((dir / "whole").string(), tensors, {{"step", "3"}});
  std::ifstream in{dir / "whole", std::ios::binary};
  const std::string whole{std::istreambuf_iterator<char>{in}, {}};
  CHECK(verdict(whole).empty());  // control
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string said = verdict(whole.substr(0, length));
    REQUIRE(said.rfind("bad_file: ", 0) == 0);
  }
}

TEST_CASE("safetensors refusals: a hostile header does not fill the screen") {
  const std::string name(100'000, 'n');
  CHECK(verdict(file_of("{\"" + name + "\":1}", 0)).size() < 1000);
  CHECK(verdict(file_of("{" + tensor("a", std::string(100'000, 'F'), "[2]", "[0,8]") + "}", 8)).size() < 1000);
}

TEST_CASE("safetensors refusals: a file that shrinks after it was opened") {
  test::temp_dir dir{"shrink"};
  const std::string path = (dir / "f").string();
  std::vector<float> values(1000, 1.0F);
  save_safetensors(path, std::vector<named_tensor>{{"a", tensor_view{std::span{values}}}});
  const safetensors_file file{path};
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100);
  REQUIRE_THROWS_WITH(file.load_tensor("a", tensor_view{std::span{values}}),
                      ContainsSubstring("bad_file") && ContainsSubstring("it ends at byte"));
}

TEST_CASE("safetensors refusals: what is no file") {
  test::temp_dir dir{"nofile"};
  REQUIRE_THROWS_WITH(safetensors_file{(dir / "absent").string()}, ContainsSubstring("io: cannot open"));
  REQUIRE_THROWS_WITH(safetensors_file{dir.path().string()},
                      ContainsSubstring("io:") && ContainsSubstring("regular file"));
  REQUIRE_THROWS_WITH(safetensors_file{"/dev/zero"}, ContainsSubstring("regular file"));
}
