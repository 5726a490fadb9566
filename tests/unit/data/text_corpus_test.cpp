// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <unistd.h>

#include <hetero/data/text_corpus.hpp>

#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/test_data.hpp"

using namespace hetero;

namespace {

std::string written(const std::filesystem::path& path, const std::string& text) {
  std::ofstream{path, std::ios::binary} << text;
  return path.string();
}

errc code_of(const auto& action) {
  try {
    action();
  } catch (const error& e) {
    return e.code();
  }
  FAIL("nothing was thrown");
  return errc::aborted;
}

/// The token that each position of the text is predicted from, counted over all windows.
std::vector<int> times_predicted(const text_windows& windows, std::uint64_t tokens) {
  std::vector<int> times(tokens);
  std::vector<std::uint64_t> ids(windows.size());
  std::iota(ids.begin(), ids.end(), std::uint64_t{0});
  batch all;
  windows.load(ids, all);
  const auto targets = all.targets.elements<std::int32_t>();
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] != ignored_target) ++times.at(i + 1);
  }
  return times;
}

}  // namespace

TEST_CASE("text corpus: characters are numbered in order") {
  const auto corpus = text_corpus::from_string("banana bread");
  CHECK(corpus.vocabulary() == 7);  // space a b d e n r
  CHECK(corpus.size() == 12);
  CHECK(corpus.encode("bad n") == std::vector<std::int32_t>{2, 1, 3, 0, 5});
  CHECK(corpus.decode(corpus.encode("a bean")) == "a bean");
  REQUIRE_THROWS_WITH(corpus.encode("box"), ContainsSubstring("U+006F 'o'"));
  REQUIRE_THROWS_WITH(corpus.decode(std::array{7}), ContainsSubstring("token 7"));
  REQUIRE_THROWS_WITH(corpus.decode(std::array{-1}), ContainsSubstring("token -1"));
}

TEST_CASE("text corpus: UTF-8 characters are single tokens, wide vocabularies too") {
  const std::string text = "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x90\x8d";  // two-, three- and four-byte characters
  const auto corpus = text_corpus::from_string(text);
  CHECK(corpus.size() == 9);
  CHECK(corpus.vocabulary() == 8);
  CHECK(corpus.decode(corpus.encode(text)) == text);
  const auto bytes = text_corpus::from_string(text, {.unit = text_unit::bytes});
  CHECK(bytes.size() == text.size());
  CHECK(bytes.vocabulary() == 256);
  CHECK(bytes.decode(bytes.encode(text)) == text);

  std::string many;
  for (char32_t c = 0x4e00; c < 0x4e00 + 400; ++c) detail::append_utf8(many, c);
  const auto wide = text_corpus::from_string(many);
  CHECK(wide.vocabulary() == 400);
  batch out;
  wide.windows(100).load(std::array<std::uint64_t, 1>{3}, out);
  CHECK(out.targets.elements<std::int32_t>()[98] == 399);
  CHECK(out.targets.elements<std::int32_t>()[99] == ignored_target);
}

TEST_CASE("text corpus: bytes that are no UTF-8 are refused, or taken as bytes") {
  for (const std::string bad :
       {"ab\xff", "ab\xc0\xaf", "ab\xed\xa0\x80", "ab\xe2\x82", "ab\xf5\x80\x80\x80", "ab\x80"}) {
    REQUIRE_THROWS_WITH(text_corpus::from_string(bad),
                        ContainsSubstring("not UTF-8 at byte 2") && ContainsSubstring("text_unit::bytes"));
    CHECK(text_corpus::from_string(bad, {.unit = text_unit::bytes}).size() == bad.size());
  }
}

TEST_CASE("text windows: inputs, and the tokens that follow") {
  const auto windows = text_corpus::from_string("abcdefgh").windows(3);  // 7 predictions: 3 + 3 + 1
  REQUIRE(windows.size() == 3);
  CHECK(windows.input_shape() == shape{3});
  batch out;
  windows.load(std::array<std::uint64_t, 2>{2, 0}, out);
  const auto inputs = out.inputs.elements<std::int32_t>();
  const auto targets = out.targets.elements<std::int32_t>();
  CHECK(std::vector(inputs.begin(), inputs.end()) == std::vector<std::int32_t>{6, 0, 0, 0, 1, 2});
  CHECK(std::vector(targets.begin(), targets.end()) == std::vector<std::int32_t>{7, -1, -1, 1, 2, 3});
  CHECK(out.sample_ids == std::vector<std::uint64_t>{2, 0});
  REQUIRE_THROWS_WITH(windows.load(std::array<std::uint64_t, 1>{3}, out), ContainsSubstring("invalid_argument"));
  windows.load({}, out);
  CHECK(out.inputs.extents() == shape{0, 3});
}

TEST_CASE("text windows: every token but the first is predicted exactly once") {
  for (const std::size_t length : {2U, 3U, 9U, 10U, 11U, 64U, 65U, 66U}) {
    const auto corpus = text_corpus::from_string(std::string(length / 2, 'a') + std::string(length - length / 2, 'b'));
    for (std::uint64_t context = 1; context < length; ++context) {
      std::vector<int> expected(length, 1);
      expected[0] = 0;
      std::vector<int> times = times_predicted(corpus.windows(context), length + context);
      times.resize(length);
      REQUIRE(times == expected);
    }
  }
}

TEST_CASE("text corpus: a split shares the vocabulary and loses nothing") {
  const auto corpus = text_corpus::from_string("aaaaaaaaaaaaaaaaaabz");
  const auto [train, validation] = corpus.split(0.9);
  CHECK(train.size() == 18);
  CHECK(validation.size() == 2);
  CHECK(train.vocabulary() == 3);
  CHECK(validation.vocabulary() == 3);
  batch out;
  validation.windows(1).load(std::array<std::uint64_t, 1>{0}, out);
  CHECK(out.inputs.elements<std::int32_t>()[0] == 1);
  CHECK(out.targets.elements<std::int32_t>()[0] == 2);
  CHECK(train.windows(17).size() == 1);  // a window never looks into the other part
  CHECK_THROWS(train.windows(18));
  CHECK(train.windows(5).fingerprint() != corpus.windows(5).fingerprint());
  for (const double bad : {0.0, 1.0, -1.0, std::nan(""), 0.99}) CHECK_THROWS_AS(corpus.split(bad), error);
}

TEST_CASE("text corpus: each bad text has its own clear error") {
  test::temp_dir dir{"text"};
  const auto message = [](const auto& action) {
    try {
      action();
    } catch (const error& e) {
      return e.message();
    }
    return std::string{"nothing was thrown"};
  };
  const std::string empty = written(dir / "empty.txt", "");
  CHECK(code_of([&] { text_corpus{empty}; }) == errc::invalid_argument);
  CHECK_THAT(message([&] { text_corpus{empty}; }), ContainsSubstring("empty.txt' is empty"));

  const std::string one = written(dir / "one.txt", "x");
  CHECK(code_of([&] { text_corpus{one}; }) == errc::invalid_argument);
  CHECK_THAT(message([&] { text_corpus{one}; }), ContainsSubstring("single token"));
  CHECK(text_corpus{written(dir / "two.txt", "xy")}.windows(1).size() == 1);

  CHECK(code_of([&] { text_corpus{(dir / "missing.txt").string()}; }) == errc::io);
  CHECK_THAT(message([&] { text_corpus{"missing-everywhere.txt"}; }), ContainsSubstring("looked in"));
  CHECK(code_of([&] { text_corpus{dir.path().string()}; }) == errc::io);
  CHECK_THAT(message([&] { text_corpus{dir.path().string()}; }), ContainsSubstring("is a folder"));
  CHECK(code_of([&] { (void)text_corpus::from_files({}); }) == errc::invalid_argument);

  const std::string small = written(dir / "small.txt", "0123456789");
  CHECK(code_of([&] { (void)text_corpus{small}.windows(10); }) == errc::invalid_argument);
  CHECK_THAT(message([&] { (void)text_corpus{small}.windows(64); }), ContainsSubstring("needs at least 65 tokens") &&
                                                                         ContainsSubstring("has 10") &&
                                                                         ContainsSubstring("at most 9"));
  CHECK(text_corpus{small}.windows(9).size() == 1);  // control: the longest that fits
  CHECK(code_of([&] { (void)text_corpus{small}.windows(0); }) == errc::invalid_argument);

  if (::geteuid() != 0) {  // root may read everything
    std::filesystem::permissions(small, std::filesystem::perms::none);
    CHECK(code_of([&] { text_corpus{small}; }) == errc::io);
  }
}

TEST_CASE("text corpus: several files are one text") {
  test::temp_dir dir{"texts"};
  const std::vector<std::string> files{written(dir / "a", "abc"), written(dir / "b", ""), written(dir / "c", "cde")};
  const auto corpus = text_corpus::from_files(files);
  CHECK(corpus.size() == 6);
  CHECK(corpus.windows(2).fingerprint() == text_corpus::from_string("abccde").windows(2).fingerprint());
  CHECK(corpus.windows(2).fingerprint() != text_corpus::from_string("abcced").windows(2).fingerprint());
  CHECK(text_corpus{std::filesystem::path{files[0]}}.size() == 3);
}

TEST_CASE("text corpus: batches without a context take the one they are given, once") {
  const auto corpus = text_corpus::from_string(std::string(50, 'a') + std::string(51, 'b'));
  const auto open = corpus.batches({.global_batch = 4, .seed = 3});
  REQUIRE_THROWS_WITH(open.sample_ids(0), ContainsSubstring("no context yet"));
  const auto bound = open.with_context(10);
  CHECK(bound.steps_per_epoch() == 3);
  CHECK(bound.data().context() == 10);
  CHECK(bound.with_context(20).data().context() == 10);
  CHECK(bound.fingerprint() == corpus.batches({.global_batch = 4, .context = 10, .seed = 3}).fingerprint());
  CHECK_THROWS_AS(open.with_context(101), error);
  CHECK_THROWS_AS(corpus.batches({.context = 10}), error);  // no global batch
}

TEST_CASE("text corpus: Tiny Shakespeare has the figures of its README") {
  const auto path = test::test_data("tinyshakespeare/input.txt");
  if (!path) {
    WARN("no data collection here: Tiny Shakespeare was not read");
    return;
  }
  const text_corpus corpus{*path};
  CHECK(corpus.vocabulary() == 65);
  CHECK(corpus.size() == 1'115'394);
  const auto [train, validation] = corpus.split(0.9);
  CHECK(train.size() == 1'003'854);
  CHECK(validation.size() == 111'540);
  CHECK(validation.windows(64).size() == 1743);
  batch out;
  train.windows(64).load(std::array<std::uint64_t, 1>{0}, out);
  CHECK(corpus.decode(out.inputs.elements<std::int32_t>().first(13)) == "First Citizen");
}
