// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

/// @file
/// Law 7: every byte that leaves or enters a rank is counted under the purpose it served.
namespace hetero {

/// What a message is for.
enum class traffic_class : std::uint8_t { control, gradient, parameter, activation, checkpoint, data, other };

inline constexpr std::size_t traffic_classes = 7;

/// Name of the class, as printed in reports.
[[nodiscard]] constexpr const char* to_string(traffic_class c) noexcept {
  constexpr const char* names[] = {"control", "gradient", "parameter", "activation", "checkpoint", "data", "other"};
  return names[static_cast<std::size_t>(c)];
}

/// Totals of one traffic class on one rank. Bytes are payload: what an algorithm moves, without frame headers.
struct traffic_totals {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t messages = 0;  ///< messages sent; large ones travel in pieces and each piece counts
  std::uint64_t rounds = 0;    ///< dependent steps of collectives, the factor of latency in their cost

  friend constexpr traffic_totals operator+(const traffic_totals& a, const traffic_totals& b) noexcept {
    return {a.bytes_sent + b.bytes_sent, a.bytes_received + b.bytes_received, a.messages + b.messages,
            a.rounds + b.rounds};
  }
  friend constexpr traffic_totals operator-(const traffic_totals& a, const traffic_totals& b) noexcept {
    return {a.bytes_sent - b.bytes_sent, a.bytes_received - b.bytes_received, a.messages - b.messages,
            a.rounds - b.rounds};
  }
  friend constexpr bool operator==(const traffic_totals&, const traffic_totals&) = default;
};

/// A snapshot of all classes; the difference of two snapshots is what happened between them.
struct traffic_counters {
  std::array<traffic_totals, traffic_classes> by_class{};

  [[nodiscard]] constexpr const traffic_totals& operator[](traffic_class c) const noexcept {
    return by_class[static_cast<std::size_t>(c)];
  }
  [[nodiscard]] constexpr traffic_totals& operator[](traffic_class c) noexcept {
    return by_class[static_cast<std::size_t>(c)];
  }

  /// The sum over all classes.
  [[nodiscard]] constexpr traffic_totals total() const noexcept {
    traffic_totals sum;
    for (const auto& totals : by_class) sum = sum + totals;
    return sum;
  }

  friend constexpr traffic_counters operator+(traffic_counters a, const traffic_counters& b) noexcept {
    for (std::size_t i = 0; i < traffic_classes; ++i) a.by_class[i] = a.by_class[i] + b.by_class[i];
    return a;
  }
  friend constexpr traffic_counters operator-(traffic_counters a, const traffic_counters& b) noexcept {
    for (std::size_t i = 0; i < traffic_classes; ++i) a.by_class[i] = a.by_class[i] - b.by_class[i];
    return a;
  }
  friend constexpr bool operator==(const traffic_counters&, const traffic_counters&) = default;
};

namespace detail {

/// The live counters behind the snapshots. Thread-safe.
class traffic_meter {
 public:
  /// Counts everything in `total` as well from now on. Before, or by, the thread that counts here.
  void feeds(traffic_meter* total) noexcept { total_ = total; }

  void sent(traffic_class c, std::size_t bytes) noexcept {
    add(at(c).bytes_sent, bytes);
    add(at(c).messages, 1);
    if (total_ != nullptr) total_->sent(c, bytes);
  }
  void received(traffic_class c, std::size_t bytes) noexcept {
    add(at(c).bytes_received, bytes);
    if (total_ != nullptr) total_->received(c, bytes);
  }
  void round(traffic_class c) noexcept {
    add(at(c).rounds, 1);
    if (total_ != nullptr) total_->round(c);
  }

  void add(const traffic_counters& moved) noexcept {
    for (std::size_t i = 0; i < traffic_classes; ++i) {
      add(cells_[i].bytes_sent, moved.by_class[i].bytes_sent);
      add(cells_[i].bytes_received, moved.by_class[i].bytes_received);
      add(cells_[i].messages, moved.by_class[i].messages);
      add(cells_[i].rounds, moved.by_class[i].rounds);
    }
  }

  [[nodiscard]] traffic_counters snapshot() const noexcept {
    traffic_counters out;
    for (std::size_t i = 0; i < traffic_classes; ++i) {
      out.by_class[i] = {cells_[i].bytes_sent.load(std::memory_order_relaxed),
                         cells_[i].bytes_received.load(std::memory_order_relaxed),
                         cells_[i].messages.load(std::memory_order_relaxed),
                         cells_[i].rounds.load(std::memory_order_relaxed)};
    }
    return out;
  }

 private:
  struct cell {
    std::atomic<std::uint64_t> bytes_sent{0}, bytes_received{0}, messages{0}, rounds{0};
  };
  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) noexcept {
    counter.fetch_add(amount, std::memory_order_relaxed);
  }
  cell& at(traffic_class c) noexcept { return cells_[static_cast<std::size_t>(c)]; }
  std::array<cell, traffic_classes> cells_;
  traffic_meter* total_ = nullptr;
};

}  // namespace detail
}  // namespace hetero
