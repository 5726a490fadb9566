// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/async_lane.hpp>
#include <hetero/comm/concepts.hpp>
#include <hetero/comm/link_report.hpp>
#include <hetero/comm/neighbour.hpp>
#include <hetero/core/error.hpp>

namespace hetero {

/// Equal on all ranks.
struct probe_options {
  std::uint32_t pings = 8;        ///< round trips of each pair, of which the shortest counts
  bool bandwidth = false;         ///< also measure each pair alone, and each rank with all others at once
  double slow_factor = 10;        ///< name links that many times slower than the median of their siblings
  double least_latency_s = 2e-4;  ///< and by so much: less may be the operating system's doing
};

namespace detail {

/// Rounds in which every rank meets every other once, each round all at the same time. An odd number leaves one out.
[[nodiscard]] constexpr std::uint32_t tournament_rounds(std::uint32_t ranks) noexcept {
  return ranks < 2 ? 0 : ranks + ranks % 2 - 1;
}
/// Whom a rank meets in a round; itself when it is left out.
[[nodiscard]] constexpr std::uint32_t opponent(std::uint32_t rank, std::uint32_t round, std::uint32_t ranks) noexcept {
  const std::uint32_t circle = tournament_rounds(ranks);  // the last place stands still, the others go round
  const std::uint32_t met = rank == circle ? round : rank == round ? circle : (2 * round + circle - rank) % circle;
  return met < ranks ? met : rank;
}

[[nodiscard]] inline std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

/// One rank's part in a probe.
template <communicator C>
requires all_gatherer<C> && barrier_capable<C>
class prober {
 public:
  prober(C& c, const probe_options& options) : c_{c}, options_{options}, rank_{index_of(c.rank())} {}

  [[nodiscard]] link_report run() {
    require(options_.pings > 0 && options_.slow_factor > 1, errc::invalid_argument,
            "a probe needs a ping and a slow_factor above 1");
    const std::uint32_t n = c_.world_size();
    report_.hosts = c_.all_gather(std::string_view{host_name()});
    for (std::uint32_t a = 0; a < n; ++a) {
      for (std::uint32_t b = a + 1; b < n; ++b) report_.links.push_back({rank_id{a}, rank_id{b}, 0, 0, {}});
    }
    std::vector<double> mine(n);
    for (std::uint32_t round = 0; round < tournament_rounds(n); ++round) {
      const std::uint32_t peer = opponent(rank_, round, n);
      if (peer != rank_) mine[peer] = ping(rank_id{peer}, options_.pings);
    }
    share(mine, &link_measurement::latency_s);
    confirm();
    if (options_.bandwidth && n > 1) measure_bandwidth();
    report_.slow = find_slow_links(report_, options_.slow_factor, options_.least_latency_s);
    if constexpr (requires(const C& c) { std::string{c.path_to(rank_id{0})}; }) {
      if (options_.bandwidth || !report_.slow.empty()) share_paths();
    }
    return std::move(report_);
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr double window_s = 0.05;                               // of one bandwidth measurement
  static constexpr std::size_t largest_bytes = std::size_t{256} << 20U;  // each way

  [[nodiscard]] static double since(clock::time_point start) {
    return std::chrono::duration<double>(clock::now() - start).count();
  }

  /// Half of the shortest round trip, on the lower rank of the pair; 0 on the other, which answers.
  [[nodiscard]] double ping(rank_id peer, std::uint32_t times) {
    double best = 0;
    const tensor_view cell{std::span{&token_, 1}};
    // A first message says that the other rank is there: nobody's late arrival is taken for a slow link.
    if (rank_ > index_of(peer)) {
      c_.send(cell, peer, traffic_class::control);
    } else {
      c_.recv(cell, peer, traffic_class::control);
    }
    for (std::uint32_t i = 0; i < times; ++i) {
      if (rank_ > index_of(peer)) {
        c_.recv(cell, peer, traffic_class::control);
        c_.send(cell, peer, traffic_class::control);
        continue;
      }
      const auto start = clock::now();
      c_.send(cell, peer, traffic_class::control);
      c_.recv(cell, peer, traffic_class::control);
      const double half = since(start) / 2;
      best = i == 0 ? half : std::min(best, half);
    }
    return best;
  }

  /// Every rank learns what the lower rank of each pair measured.
  void share(const std::vector<double>& mine, double link_measurement::*what) {
    const std::size_t n = mine.size();
    std::vector<double> all(n * n);
    c_.all_gather(tensor_view{std::span{mine}}, tensor_view{std::span{all}}, traffic_class::control);
    for (auto& l : report_.links) l.*what = all[index_of(l.a) * n + index_of(l.b)];
  }

  /// Runs `body(peer)` on the two ranks of a link while the others wait.
  template <class Body> void alone(const link_measurement& l, Body&& body) {
    if (rank_ == index_of(l.a)) body(l.b);
    if (rank_ == index_of(l.b)) body(l.a);
    c_.barrier(traffic_class::control);
  }

  /// Busy processors delay pings, so what looks slow is asked again, while the ranks that look well only wait.
  void confirm() {
    const auto suspects = find_slow_links(report_, options_.slow_factor, options_.least_latency_s);
    if (suspects.empty()) return;
    std::vector<double> mine(c_.world_size());
    for (const auto& l : report_.links) {
      if (rank_ == index_of(l.a)) mine[index_of(l.b)] = l.latency_s;
    }
    for (std::size_t i = 0; i < std::min(suspects.size(), std::size_t{4} * c_.world_size()); ++i) {
      const link_measurement& l = report_.links[suspects[i].link];
      if (rank_ != index_of(l.a) && rank_ != index_of(l.b)) continue;
      const rank_id peer = rank_ == index_of(l.a) ? l.b : l.a;
      const double again = ping(peer, options_.pings + 3);
      mine[index_of(peer)] = std::min(mine[index_of(peer)], again);
    }
    share(mine, &link_measurement::latency_s);
  }

  void share_paths() {
    std::string mine;
    for (std::uint32_t r = 0; r < c_.world_size(); ++r) {
      mine += (r == rank_ ? std::string{} : std::string{c_.path_to(rank_id{r})}) + '\n';
    }
    const auto all = c_.all_gather(std::string_view{mine});
    for (auto& l : report_.links) {
      std::size_t begin = 0;
      const std::string& row = all[index_of(l.a)];
      for (std::uint32_t r = 0; r < index_of(l.b); ++r) begin = row.find('\n', begin) + 1;
      l.path = row.substr(begin, row.find('\n', begin) - begin);
    }
  }

  [[nodiscard]] static tensor_view bytes_of(std::vector<std::byte>& room, std::size_t count) {
    if (room.size() < count) room.resize(count);
    return {room.data(), dtype::u8, shape{count}};
  }

  void measure_bandwidth() {
    std::vector<double> mine(c_.world_size());
    c_.barrier(traffic_class::control);
    for (const auto& l : report_.links) {
      alone(l, [&](rank_id peer) { mine[index_of(peer)] = stream(peer); });
    }
    share(mine, &link_measurement::bytes_per_second);
    report_.port_bytes_per_second.assign(c_.world_size(), 0);
    for (const auto& l : report_.links) {
      for (const rank_id end : {l.a, l.b}) {
        double& port = report_.port_bytes_per_second[index_of(end)];
        port = std::max(port, l.bytes_per_second);
      }
    }
    if constexpr (neighbour_exchanger<C>) measure_ports();
  }

  /// Bytes per second each way, both ways at once. Doubles the message until it lasts; the lower rank decides.
  [[nodiscard]] double stream(rank_id peer) {
    double rate = 0;
    for (std::int64_t bytes = std::int64_t{64} << 10U; bytes != 0;) {
      const auto size = static_cast<std::size_t>(bytes);
      const tensor_view out = bytes_of(out_, size), in = bytes_of(in_, size);
      const auto start = clock::now();
      c_.send_recv(out, peer, in, peer, traffic_class::control);
      const double seconds = since(start);
      rate = static_cast<double>(size) / std::max(seconds, 1e-9);
      bytes = seconds >= window_s || 2 * size > largest_bytes ? 0 : 2 * bytes;
      const tensor_view next{std::span{&bytes, 1}};
      if (rank_ < index_of(peer)) {
        c_.send(next, peer, traffic_class::control);
      } else {
        c_.recv(next, peer, traffic_class::control);
      }
    }
    return rate;
  }

  /// Each rank in turn with all others at once, each as fast as the pair was alone, so that none holds the others up.
  void measure_ports() {
    const std::uint32_t n = c_.world_size();
    std::vector<double> rates(std::size_t{n} * n);
    for (const auto& l : report_.links) {
      rates[index_of(l.a) * std::size_t{n} + index_of(l.b)] = l.bytes_per_second;
      rates[index_of(l.b) * std::size_t{n} + index_of(l.a)] = l.bytes_per_second;
    }
    double own = 0;
    for (std::uint32_t centre = 0; centre < n; ++centre) {
      const auto size = [&](std::uint32_t r) {
        return std::min(largest_bytes / n, static_cast<std::size_t>(rates[centre * std::size_t{n} + r] * window_s) + 1);
      };
      std::vector<neighbour> neighbours;
      std::vector<std::vector<std::byte>> room(n);
      double total = 0;
      for (std::uint32_t r = 0; r < n; ++r) {
        if (r == rank_ || (rank_ != centre && r != centre)) continue;
        const std::size_t bytes = size(rank_ == centre ? r : rank_);
        room[r].resize(bytes);
        neighbours.push_back({rank_id{r}, bytes_of(out_, bytes), bytes_of(room[r], bytes)});
        total += static_cast<double>(bytes);
      }
      for (auto& nb : neighbours) nb.out = bytes_of(out_, nb.out.count());  // the room may have moved as it grew
      c_.barrier(traffic_class::control);
      const auto start = clock::now();
      c_.neighbour_exchange(neighbours, traffic_class::control);
      if (rank_ == centre) own = total / std::max(since(start), 1e-9);
    }
    std::vector<double> ports(n);
    c_.all_gather(tensor_view{std::span{&own, 1}}, tensor_view{std::span{ports}}, traffic_class::control);
    for (std::uint32_t r = 0; r < n; ++r) {
      report_.port_bytes_per_second[r] = std::max(report_.port_bytes_per_second[r], ports[r]);
    }
  }

  C& c_;
  probe_options options_;
  std::uint32_t rank_;
  std::int64_t token_ = 0;
  std::vector<std::byte> out_, in_;
  link_report report_;
};

}  // namespace detail

/// What `join` asks of every pair: that it works, and whether it is much slower than the others. Cheap, so that an
/// overloaded host can be late by a millisecond without being blamed.
inline constexpr probe_options self_test_options{.pings = 1, .least_latency_s = 1e-3};

/// Measures the links between all ranks: latency of every pair, bandwidth on request, and names those much slower than
/// their siblings. Collective, blocking; the result is equal on all ranks.
///
/// Latency takes n-1 rounds in which all ranks ping one other. Bandwidth takes about 0.1 s for each pair and each rank.
/// @throws error as the communicator; invalid_argument for options without meaning
template <communicator C> [[nodiscard]] link_report probe(C& c, const probe_options& options = {}) {
  return detail::prober<C>{c, options}.run();
}

namespace detail {

/// Tries every pair of ranks; rank 0 names slow links on stderr.
/// @throws error peer_lost, timeout when a pair cannot talk
template <communicator C> void self_test(const C& c, std::chrono::milliseconds timeout) {
  C quiet = c.channel("self-test");
  if constexpr (has_timeout<C>) quiet.set_timeout(timeout);
  const link_report report = probe(quiet, self_test_options);
  if (c.rank() != rank_id{0}) return;
  for (const auto& slow : report.slow) std::fprintf(stderr, "hetero: slow link: %s\n", to_string(report, slow).c_str());
}

}  // namespace detail
}  // namespace hetero
