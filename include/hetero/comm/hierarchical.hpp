// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <hetero/comm/algorithm/reduce.hpp>
#include <hetero/comm/collective_mixin.hpp>
#include <hetero/comm/concepts.hpp>
#include <hetero/comm/island_layout.hpp>

namespace hetero {

/// Equal on all ranks.
struct hierarchical_options {
  /// An all_reduce goes in pieces of so many bytes, so that the islands work on one while another is between leaders.
  std::size_t piece_bytes = std::size_t{1} << 20U;
};

/// Ranks on islands that are fast inside and far apart: what crosses from island to island is what one rank per island,
/// its leader, must send. `Inner` joins the ranks of an island, `Outer` reaches every rank.
///
/// An all_reduce of S bytes is reduced to the leader, summed between the k leaders (2(k-1)/k S each way for each), and
/// broadcast. All ranks end with equal bits. Types of one or two bytes travel as sums of 32 bits to and between
/// leaders, are rounded once there, and travel narrow to the others. Messages between two ranks, and `gather`, go
/// directly. Contracts and errors are those of `world`.
template <communicator Inner, communicator Outer = Inner>
requires reducer<Inner> && all_reducer<Inner> && broadcaster<Inner> && gatherer<Inner> && barrier_capable<Inner> &&
    reducer<Outer> && async_all_reducer<Outer> && broadcaster<Outer> && all_gatherer<Outer> && all_gatherer_v<Outer> &&
    gatherer<Outer> && barrier_capable<Outer>
class hierarchical_communicator : public detail::collective_mixin<hierarchical_communicator<Inner, Outer>> {
  using mixin = detail::collective_mixin<hierarchical_communicator>;

 public:
  /// `all` holds every rank, `inner` those of this rank's island. Collective over all ranks.
  /// @throws error invalid_argument when the inner communicators are no islands; mismatch for unequal options; as
  /// `world`
  hierarchical_communicator(Outer all, Inner inner, const hierarchical_options& options = {})
      : all_{std::move(all)}, inner_{std::move(inner)}, options_{options} {
    require(options.piece_bytes >= 8, errc::invalid_argument,
            "a piece of a hierarchical all_reduce has 8 bytes or more");
    std::array<std::int64_t, 3> mine{index_of(all_.rank()), index_of(inner_.rank()),
                                     static_cast<std::int64_t>(options.piece_bytes)};
    inner_.broadcast(tensor_view{std::span{mine}.template first<1>()}, rank_id{0}, traffic_class::control);
    std::vector<std::int64_t> rows(mine.size() * all_.world_size());
    all_.all_gather(tensor_view{std::span{mine}}, tensor_view{std::span{rows}}, traffic_class::control);
    std::vector<std::uint32_t> leaders, places;
    for (std::size_t r = 0; r < rows.size(); r += mine.size()) {
      leaders.push_back(static_cast<std::uint32_t>(rows[r]));
      places.push_back(static_cast<std::uint32_t>(rows[r + 1]));
      require(rows[r + 2] == rows[2], errc::mismatch, [&] {
        return "ranks disagree on the pieces of a hierarchical all_reduce: rank 0 has " + std::to_string(rows[2]) +
               " bytes and rank " + std::to_string(r / mine.size()) + " has " + std::to_string(rows[r + 2]);
      });
    }
    layout_ = std::make_shared<const detail::island_layout>(detail::island_layout::from(leaders, places));
    Outer peers = all_.split(leads() ? 0 : 1, static_cast<int>(index_of(all_.rank())));
    if (leads()) leaders_.emplace(std::move(peers));
  }

  [[nodiscard]] rank_id rank() const noexcept { return all_.rank(); }
  [[nodiscard]] std::uint32_t world_size() const noexcept { return all_.world_size(); }
  [[nodiscard]] std::size_t islands() const noexcept { return layout_->islands(); }
  /// The island of a rank; they are numbered by their leaders' ranks.
  [[nodiscard]] std::uint32_t island_of(rank_id rank) const { return layout_->island.at(index_of(rank)); }
  /// True when this rank speaks for its island.
  [[nodiscard]] bool leads() const noexcept { return inner_.rank() == rank_id{0}; }

  void send(const tensor_view& view, rank_id to, traffic_class traffic = traffic_class::other) {
    all_.send(view, to, traffic);
  }
  void recv(const tensor_view& view, rank_id from, traffic_class traffic = traffic_class::other) {
    all_.recv(view, from, traffic);
  }
  void send_recv(const tensor_view& out, rank_id to, const tensor_view& in, rank_id from,
                 traffic_class traffic = traffic_class::other) {
    all_.send_recv(out, to, in, from, traffic);
  }

  using mixin::all_reduce;
  void all_reduce(const tensor_view& view, reduce_op op, traffic_class traffic = traffic_class::other) {
    detail::check_view(view);
    guarded([&] {
      if (islands() == 1) return inner_.all_reduce(view, op, traffic);
      detail::visit_dtype(view.type(), [&]<class T>(T) {
        reduce_pieces(std::span{reinterpret_cast<T*>(view.data()), view.count()}, op, traffic);
      });
    });
  }

  /// The other ranks' views end with partial sums, those of one or two bytes unchanged.
  void reduce(const tensor_view& view, reduce_op op, rank_id root, traffic_class traffic = traffic_class::other) {
    detail::check_view(view);
    check_root(root);
    guarded([&] {
      detail::visit_dtype(view.type(), [&]<class T>(T) {
        const std::span values{reinterpret_cast<T*>(view.data()), view.count()};
        if constexpr (std::same_as<T, detail::accumulator_of<T>>) {
          reduce_wide(view, op, root, traffic);
        } else {
          std::vector<detail::accumulator_of<T>> wide(values.size());
          widen(values, std::span{wide});
          reduce_wide(tensor_view{std::span{wide}}, op, root, traffic);
          if (rank() == root) narrow<T>(std::span{wide}, values);
        }
      });
    });
  }

  using mixin::broadcast;
  void broadcast(const tensor_view& view, rank_id root, traffic_class traffic = traffic_class::other) {
    detail::check_view(view);
    check_root(root);
    guarded([&] {
      const std::uint32_t home = island_of(root);
      const bool at_home = home == island_of(rank());
      if (at_home) inner_.broadcast(view, rank_id{layout_->place[index_of(root)]}, traffic);
      if (leaders_) leaders_->broadcast(view, rank_id{home}, traffic);
      if (!at_home) inner_.broadcast(view, rank_id{0}, traffic);
    });
  }

  using mixin::all_gather;
  void all_gather(const tensor_view& in, const tensor_view& out, traffic_class traffic = traffic_class::other) {
    detail::check_view(in);
    detail::check_view(out);
    require(in.type() == out.type() && out.count() == in.count() * world_size(), errc::invalid_shape, [&] {
      return "all_gather over " + std::to_string(world_size()) + " ranks of " + std::to_string(in.count()) + ' ' +
             to_string(in.type()) + " needs room for " + std::to_string(in.count() * world_size()) + ", not " +
             std::to_string(out.count()) + ' ' + to_string(out.type());
    });
    guarded([&] { gather_islands(in, out, traffic); });
  }

  void gather(const tensor_view& in, const tensor_view& out, rank_id root,
              traffic_class traffic = traffic_class::other) {
    all_.gather(in, out, root, traffic);
  }

  void barrier(traffic_class traffic = traffic_class::control) {
    guarded([&] {
      inner_.barrier(traffic);
      if (leaders_) leaders_->barrier(traffic);
      inner_.barrier(traffic);
    });
  }

  [[nodiscard]] hierarchical_communicator channel(std::string_view purpose) const {
    std::optional<Outer> leaders;
    if (leaders_) leaders.emplace(leaders_->channel(purpose));
    hierarchical_communicator other{all_.channel(purpose), inner_.channel(purpose), std::move(leaders), layout_,
                                    options_};
    other.inherit(*this);
    return other;
  }

  /// The ranks of one color keep their islands; the first of each leads it.
  [[nodiscard]] hierarchical_communicator split(int color, int key) {
    Outer all = all_.split(color, key);
    hierarchical_communicator other{std::move(all), inner_.split(color, key), options_};
    other.inherit(*this);
    return other;
  }

  void abort(std::string_view reason) const noexcept { abort(reason, errc::aborted); }
  void abort(std::string_view reason, errc code) const noexcept {
    const error why{code, std::string{reason}};
    detail::end_world(all_, why);
    detail::end_world(inner_, why);
    if (leaders_) detail::end_world(*leaders_, why);
  }

  [[nodiscard]] traffic_counters counters() const noexcept {
    return shares_counters() ? all_.counters() : all_.counters() + inner_.counters();
  }
  [[nodiscard]] traffic_counters handle_counters() const noexcept {
    traffic_counters sum = detail::handle_counters_of(all_) + detail::handle_counters_of(inner_);
    if (leaders_) sum = sum + detail::handle_counters_of(*leaders_);
    return sum + this->async_counters();
  }
  /// What this rank has sent and received for its island.
  [[nodiscard]] traffic_counters between_islands() const noexcept {
    return leaders_ ? detail::handle_counters_of(*leaders_) : traffic_counters{};
  }
  [[nodiscard]] const void* counter_source() const noexcept requires requires(const Outer& o) { o.counter_source(); }
  { return all_.counter_source(); }

  [[nodiscard]] std::string path_to(rank_id peer) const requires requires(const Outer& o) { o.path_to(peer); }
  { return std::string{all_.path_to(peer)}; }

  void set_timeout(
      std::chrono::milliseconds timeout) requires detail::has_timeout<Outer> && detail::has_timeout<Inner> {
    all_.set_timeout(timeout);
    inner_.set_timeout(timeout);
    if (leaders_) leaders_->set_timeout(timeout);
  }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept requires detail::has_timeout<Outer> {
    return all_.timeout();
  }

 private:
  hierarchical_communicator(Outer all, Inner inner, std::optional<Outer> leaders,
                            std::shared_ptr<const detail::island_layout> layout, const hierarchical_options& options)
      : all_{std::move(all)},
        inner_{std::move(inner)},
        leaders_{std::move(leaders)},
        layout_{std::move(layout)},
        options_{options} {}

  /// An error of one level must not leave the ranks of another waiting.
  template <class Body> void guarded(Body&& body) const {
    try {
      body();
    } catch (const error& e) {
      abort(e.message(), e.code());
      throw;
    } catch (const std::exception& e) {
      abort(e.what());
      throw;
    }
  }

  void check_root(rank_id root) const {
    require(index_of(root) < world_size(), errc::invalid_argument, [&] {
      return "root " + std::to_string(index_of(root)) + " is not among the " + std::to_string(world_size()) + " ranks";
    });
  }

  [[nodiscard]] bool shares_counters() const noexcept {
    if constexpr (requires { inner_.counter_source() == all_.counter_source(); }) {
      return inner_.counter_source() == all_.counter_source();
    } else {
      return false;
    }
  }

  template <class T, class Wide> static void widen(std::span<T> from, std::span<Wide> to) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<Wide>(from[i]);
  }
  /// @throws error invalid_argument when a sum does not fit
  template <class T, class Wide> static void narrow(std::span<Wide> from, std::span<T> to) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = static_cast<T>(from[i]);
      if constexpr (std::is_integral_v<T>) {
        if (static_cast<Wide>(to[i]) != from[i]) detail::throw_overflow(dtype_of<T>);
      }
    }
  }

  /// Piece k is reduced inside the islands while k - 1 and k - 2 are between leaders.
  template <class T> void reduce_pieces(std::span<T> values, reduce_op op, traffic_class traffic) {
    using wide = detail::accumulator_of<T>;
    constexpr std::size_t depth = 2;
    constexpr std::size_t slots = depth + 1;
    const std::size_t step = options_.piece_bytes / sizeof(wide);
    const std::size_t pieces = std::max<std::size_t>(1, (values.size() + step - 1) / step);
    const auto piece = [&](std::size_t k) {
      return values.subspan(k * step, std::min(step, values.size() - k * step));
    };
    std::vector<wide> room(std::same_as<T, wide> ? 0 : std::min(slots, pieces) * std::min(step, values.size()));
    const auto summed = [&](std::size_t k) {
      if constexpr (std::same_as<T, wide>) {
        return piece(k);
      } else {
        return std::span{room}.subspan(k % slots * std::min(step, values.size()), piece(k).size());
      }
    };
    std::array<pending, slots> between;
    for (std::size_t k = 0; k < pieces + depth; ++k) {
      if (k < pieces) {
        const std::span<wide> sum = summed(k);
        if constexpr (!std::same_as<T, wide>) widen(piece(k), sum);
        const tensor_view view{sum};
        inner_.reduce(view, op, rank_id{0}, traffic);
        if (leaders_ && pieces == 1) leaders_->all_reduce(view, op, traffic);
        if (leaders_ && pieces > 1) between[k % slots] = leaders_->all_reduce_async(view, op, traffic);
      }
      if (k < depth || k - depth >= pieces) continue;
      const std::size_t done = k - depth;
      if (leaders_) {
        between[done % slots].wait();
        if constexpr (!std::same_as<T, wide>) narrow(summed(done), piece(done));
      }
      inner_.broadcast(tensor_view{piece(done)}, rank_id{0}, traffic);
    }
  }

  void reduce_wide(const tensor_view& view, reduce_op op, rank_id root, traffic_class traffic) {
    const std::uint32_t home = island_of(root);
    const rank_id leader{layout_->leader[home]};
    inner_.reduce(view, op, rank_id{0}, traffic);
    if (leaders_) leaders_->reduce(view, op, rank_id{home}, traffic);
    if (root == leader) return;
    if (rank() == leader) all_.send(view, root, traffic);
    if (rank() == root) all_.recv(view, leader, traffic);
  }

  void gather_islands(const tensor_view& in, const tensor_view& out, traffic_class traffic) {
    const std::size_t count = in.count();
    const std::size_t bytes = in.size_bytes();
    const std::size_t own_size = layout_->size[island_of(rank())];
    std::vector<std::byte> island(leads() ? own_size * bytes : 0);
    std::vector<std::byte> packed(layout_->in_rank_order() ? 0 : out.size_bytes());
    const tensor_view island_view{island.data(), in.type(), shape{leads() ? own_size * count : 0}};
    const tensor_view all_view{packed.empty() ? out.data() : packed.data(), in.type(), shape{out.count()}};
    inner_.gather(in, island_view, rank_id{0}, traffic);
    if (leaders_) {
      std::vector<std::size_t> counts;
      for (const std::size_t size : layout_->size) counts.push_back(size * count);
      leaders_->all_gather_v(island_view, all_view, counts, traffic);
    }
    inner_.broadcast(all_view, rank_id{0}, traffic);
    if (packed.empty() || bytes == 0) return;
    for (std::size_t i = 0; i < layout_->order.size(); ++i) {
      std::memcpy(static_cast<std::byte*>(out.data()) + layout_->order[i] * bytes, packed.data() + i * bytes, bytes);
    }
  }

  Outer all_;
  Inner inner_;
  std::optional<Outer> leaders_;  ///< of a leader
  std::shared_ptr<const detail::island_layout> layout_;
  hierarchical_options options_;
};

/// Ranks that pass the same `island` (0 or above) form one. Further numbers cut each island again, outermost first:
/// `make_hierarchical(world, site, host)` sums within hosts, then between the hosts of a site, then between sites.
/// Collective over all ranks of `all`.
/// @throws error as `world::split`
template <communicator C, class... More>
requires(std::same_as<More, int>&&...) [[nodiscard]] auto make_hierarchical(C& all, int island, More... inner_islands) {
  C group = all.split(island, static_cast<int>(index_of(all.rank())));
  if constexpr (sizeof...(More) == 0) {
    return hierarchical_communicator<C, C>{all.channel("hierarchical"), std::move(group)};
  } else {
    auto inner = make_hierarchical(group, inner_islands...);
    return hierarchical_communicator<decltype(inner), C>{all.channel("hierarchical"), std::move(inner)};
  }
}

}  // namespace hetero
