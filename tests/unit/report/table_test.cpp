// SPDX-License-Identifier: Apache-2.0
#include <hetero/report/table.hpp>

#include "support/catch.hpp"

using namespace hetero;

TEST_CASE("table: names to the left, numbers to the right, no spaces at the end") {
  table rows{{{"device", table::align::left}, {"share"}, {"note", table::align::left}}};
  rows.add_row({"cpu:0", "9", "fast"}).add_row({"cpu:1 (emulated)", "100", ""});
  CHECK(rows.rows() == 2);
  CHECK(rows.text() ==
        "device            share  note\n"
        "----------------  -----  ----\n"
        "cpu:0                 9  fast\n"
        "cpu:1 (emulated)    100\n");
}

TEST_CASE("table: a character of several bytes takes one column") {
  table rows{{{"\xc2\xb5s"}, {"x"}}};
  rows.add_row({"1", "2"});
  CHECK(rows.text() == "\xc2\xb5s  x\n--  -\n 1  2\n");
}

TEST_CASE("table: a row of another length is refused") {
  table rows{{{"a"}, {"b"}}};
  REQUIRE_THROWS_WITH(rows.add_row({"1"}), ContainsSubstring("1 cells for a table of 2 columns"));
  CHECK(rows.rows() == 0);
}
