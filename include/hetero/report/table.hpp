// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hetero/core/error.hpp>

namespace hetero {

/// Text in aligned columns, for plans, summaries and benchmarks. Names belong to the left, numbers to the right.
class table {
 public:
  enum class align : std::uint8_t { left, right };
  struct column {
    std::string title;
    align side = align::right;
  };

  explicit table(std::vector<column> columns) : columns_{std::move(columns)} {}

  /// Adds a row with one text per column.
  /// @throws error invalid_argument for another number of texts
  table& add_row(std::vector<std::string> cells) {
    require(cells.size() == columns_.size(), errc::invalid_argument, [&] {
      return "a row of " + std::to_string(cells.size()) + " cells for a table of " + std::to_string(columns_.size()) +
             " columns";
    });
    rows_.push_back(std::move(cells));
    return *this;
  }

  [[nodiscard]] std::size_t rows() const noexcept { return rows_.size(); }

  /// Title line, rule and rows, each ended by a newline; no line ends in spaces.
  [[nodiscard]] std::string text() const {
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      std::size_t width = width_of(columns_[i].title);
      for (const auto& row : rows_) width = std::max(width, width_of(row[i]));
      widths.push_back(width);
    }
    std::vector<std::string> titles;
    std::vector<std::string> rules;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      titles.push_back(columns_[i].title);
      rules.emplace_back(widths[i], '-');
    }
    std::string out;
    append(out, titles, widths);
    append(out, rules, widths);
    for (const auto& row : rows_) append(out, row, widths);
    return out;
  }

 private:
  // Columns on the screen, taking a code point for one: true for everything we print.
  [[nodiscard]] static std::size_t width_of(std::string_view text) noexcept {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<std::uint8_t>(c) & 0xc0U) != 0x80U; }));
  }

  void append(std::string& out, const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) const {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string space(widths[i] - width_of(cells[i]), ' ');
      if (i != 0) line += "  ";
      line += columns_[i].side == align::left ? cells[i] + space : space + cells[i];
    }
    const auto last = line.find_last_not_of(' ');
    out += line.substr(0, last == std::string::npos ? 0 : last + 1);
    out += '\n';
  }

  std::vector<column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace hetero
