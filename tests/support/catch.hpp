// SPDX-License-Identifier: Apache-2.0
// One spelling for Catch2 2.13 (Debian 12) and 3.x: TEST_CASE, SECTION, GENERATE, TEMPLATE_TEST_CASE, REQUIRE...,
// Approx, and the matcher ContainsSubstring for REQUIRE_THROWS_WITH.
// Catch's assertions are not thread safe: a rank that runs as a thread collects what it found and the test's own thread
// asserts on it.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>

#include <string>

namespace Catch {
using Detail::Approx;
namespace Matchers {
inline StdString::ContainsMatcher ContainsSubstring(const std::string& text,
                                                    CaseSensitive::Choice sensitive = CaseSensitive::Yes) {
  return Contains(text, sensitive);
}
}  // namespace Matchers
}  // namespace Catch
using Catch::Matchers::ContainsSubstring;
#endif
