// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/tuning.hpp>
#include <hetero/core/ids.hpp>

namespace hetero {

/// What was measured between two ranks.
struct link_measurement {
  rank_id a{0}, b{0};           ///< a < b
  double latency_s = 0;         ///< half of the shortest round trip
  double bytes_per_second = 0;  ///< each way, both ways at once; 0 when it was not asked for
  std::string path;             ///< how they reach each other, such as an interface; empty when nobody could tell
};

/// A link that is much slower than others of its kind.
struct slow_link {
  std::size_t link = 0;  ///< index into `link_report::links`
  double factor = 0;     ///< times slower than the median
  double median = 0;     ///< of the other links that join ranks of one host, or ranks of different hosts
  bool by_latency = true;
};

/// The links of a world as `probe` found them; equal on all ranks.
struct link_report {
  std::vector<std::string> hosts;             ///< by rank
  std::vector<link_measurement> links;        ///< every pair, (0,1) (0,2) ... (1,2) ...
  std::vector<double> port_bytes_per_second;  ///< by rank, each way with all others at once; empty when not asked for
  std::vector<slow_link> slow;                ///< worst first

  /// Rules for `world::tune`: the bandwidth of each port, where it was measured and the ports differ by more than a
  /// quarter; less is noise, and uneven shares would follow it.
  [[nodiscard]] tuning suggest() const {
    if (port_bytes_per_second.empty()) return {};
    const auto [slowest, fastest] = std::minmax_element(port_bytes_per_second.begin(), port_bytes_per_second.end());
    if (*slowest <= 0 || *fastest <= 1.25 * *slowest) return {};
    return {.all_reduce = {}, .bytes_per_second = port_bytes_per_second};
  }

  [[nodiscard]] bool same_host(const link_measurement& l) const { return hosts[index_of(l.a)] == hosts[index_of(l.b)]; }
};

namespace detail {

[[nodiscard]] inline double middle_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// "12.3 ms": three digits and a unit.
[[nodiscard]] inline std::string with_unit(double value, std::initializer_list<std::pair<double, const char*>> units) {
  auto unit = *units.begin();
  for (const auto& u : units) {
    if (value >= u.first) unit = u;
  }
  char text[48];
  std::snprintf(text, sizeof text, "%.3g %s", value / unit.first, unit.second);
  return text;
}
[[nodiscard]] inline std::string seconds_text(double s) {
  return with_unit(s, {{1e-9, "ns"}, {1e-6, "us"}, {1e-3, "ms"}, {1, "s"}});
}
[[nodiscard]] inline std::string rate_text(double bytes_per_second) {
  return with_unit(bytes_per_second, {{1, "B/s"}, {1e3, "kB/s"}, {1e6, "MB/s"}, {1e9, "GB/s"}});
}

/// Links at least `factor` times slower than the median of at least two others of their kind; latencies also by more
/// than `least_s`, which scheduling alone can cost.
[[nodiscard]] inline std::vector<slow_link> find_slow_links(const link_report& report, double factor, double least_s) {
  std::vector<slow_link> found;
  for (std::size_t i = 0; i < report.links.size(); ++i) {
    const link_measurement& one = report.links[i];
    std::vector<double> latencies, rates;
    for (std::size_t j = 0; j < report.links.size(); ++j) {
      if (j == i || report.same_host(report.links[j]) != report.same_host(one)) continue;
      latencies.push_back(report.links[j].latency_s);
      rates.push_back(report.links[j].bytes_per_second);
    }
    if (latencies.size() < 2) continue;
    const double usual = middle_of(latencies);
    const double rate = middle_of(rates);
    if (one.latency_s >= factor * usual && one.latency_s - usual >= least_s) {
      found.push_back({i, one.latency_s / usual, usual, true});
    } else if (one.bytes_per_second > 0 && one.bytes_per_second * factor <= rate) {
      found.push_back({i, rate / one.bytes_per_second, rate, false});
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& x, const auto& y) { return x.factor > y.factor; });
  return found;
}

}  // namespace detail

/// "rank 2 <-> rank 3: 12.3 ms, 24 x the median of its siblings (510 us); between alpha and beta, interface eth1".
[[nodiscard]] inline std::string to_string(const link_report& report, const slow_link& slow) {
  const link_measurement& l = report.links[slow.link];
  char factor[32];
  std::snprintf(factor, sizeof factor, "%.0f", slow.factor);
  std::string text = "rank " + std::to_string(index_of(l.a)) + " <-> rank " + std::to_string(index_of(l.b)) + ": ";
  if (slow.by_latency) {
    text += detail::seconds_text(l.latency_s) + ", " + factor + " x the median of its siblings (" +
            detail::seconds_text(slow.median) + ')';
  } else {
    text += detail::rate_text(l.bytes_per_second) + ", a " + factor + "th of the median of its siblings (" +
            detail::rate_text(slow.median) + ')';
  }
  text += report.same_host(l) ? "; within " + report.hosts[index_of(l.a)]
                              : "; between " + report.hosts[index_of(l.a)] + " and " + report.hosts[index_of(l.b)];
  if (!l.path.empty()) text += ", " + l.path;
  return text;
}

/// A table: one line for each rank and each link; with more than ten ranks their extremes instead. Slow links are
/// named.
[[nodiscard]] inline std::string to_string(const link_report& report) {
  std::string text;
  const auto line = [&](const std::string& a, const std::string& b, const std::string& c, const std::string& d) {
    char row[256];
    std::snprintf(row, sizeof row, "  %-14s %-12s %-12s %s", a.c_str(), b.c_str(), c.c_str(), d.c_str());
    text += row;
    while (text.back() == ' ') text.pop_back();
    text += '\n';
  };
  const auto rate = [](double r) { return r > 0 ? detail::rate_text(r) : std::string{}; };
  if (!report.port_bytes_per_second.empty()) {
    line("rank", "each way", "", "host");
    for (std::size_t r = 0; r < report.hosts.size(); ++r) {
      line(std::to_string(r), rate(report.port_bytes_per_second[r]), "", report.hosts[r]);
    }
  }
  const bool measured = !report.links.empty() && report.links[0].bytes_per_second > 0;
  if (!report.links.empty()) line("link", "latency", measured ? "each way" : "", "path");
  const auto link_line = [&](const std::string& name, const link_measurement& l) {
    line(name, detail::seconds_text(l.latency_s), rate(l.bytes_per_second), l.path);
  };
  if (report.hosts.size() <= 10) {
    for (const auto& l : report.links) {
      link_line(std::to_string(index_of(l.a)) + " <-> " + std::to_string(index_of(l.b)), l);
    }
  } else {
    auto sorted = report.links;
    std::sort(sorted.begin(), sorted.end(), [](const auto& x, const auto& y) { return x.latency_s < y.latency_s; });
    link_line("fastest", sorted.front());
    link_line("median", sorted[sorted.size() / 2]);
    link_line("slowest", sorted.back());
  }
  for (const auto& s : report.slow) text += "slow: " + to_string(report, s) + '\n';
  return text;
}

}  // namespace hetero
