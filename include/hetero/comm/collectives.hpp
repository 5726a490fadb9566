// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hetero/comm/algorithm/all_gather.hpp>
#include <hetero/comm/algorithm/barrier.hpp>
#include <hetero/comm/algorithm/broadcast.hpp>
#include <hetero/comm/algorithm/doubling_all_gather.hpp>
#include <hetero/comm/channel_state.hpp>
#include <hetero/core/tensor_view.hpp>

/// @file
/// The operations of `world` over a channel: checks, fingerprint, algorithm.
namespace hetero::detail {

/// @throws error unsupported, invalid_shape
inline void check_view(const tensor_view& view) {
  require(view.device().kind == device_kind::cpu, errc::unsupported, [&] {
    return "communication works on host memory and this view lies on " + to_string(view.device()) +
           "; copy it to a host buffer first";
  });
  require(view.contiguous(), errc::invalid_shape,
          "communication needs a view without gaps; copy it to a contiguous one");
}

[[nodiscard]] inline std::span<std::byte> memory_of(const tensor_view& view) noexcept {
  return {static_cast<std::byte*>(view.data()), view.size_bytes()};
}

[[nodiscard]] inline tensor_view bytes_of(std::string& text) noexcept {
  return {text.data(), dtype::u8, shape{text.size()}};
}

inline void check_peer(const channel_state& c, std::uint32_t peer, const char* role) {
  require(peer < c.size() && peer != c.rank, errc::invalid_argument, [&] {
    return std::string{role} + ' ' + std::to_string(peer) + " is not another rank of '" + c.name + "', which has " +
           std::to_string(c.size()) + " and this is rank " + std::to_string(c.rank);
  });
}

inline void check_root(const channel_state& c, std::uint32_t root) {
  require(root < c.size(), errc::invalid_argument, [&] {
    return "root " + std::to_string(root) + " is not among the " + std::to_string(c.size()) + " ranks of '" + c.name +
           '\'';
  });
}

/// Runs an algorithm; an error that is this rank's alone, such as an overflow, ends the world before it is rethrown, so
/// that no rank is left waiting.
template <class Body> void run_collective(channel_state& c, Body&& body) {
  check_alone(c);
  if (c.size() == 1) return;
  try {
    body();
  } catch (const error& e) {
    const std::uint32_t self = c.members[c.rank];
    c.context->carrier->abort({e.code(), self, e.message()});
    throw e.with({rank_id{self}, {}});
  } catch (const std::exception& e) {  // memory that ran out, say
    abort(c, e.what());
    throw;
  }
}

inline void send_recv(channel_state& c, const tensor_view* out, std::uint32_t to, const tensor_view* in,
                      std::uint32_t from, traffic_class traffic) {
  if (out != nullptr) check_view(*out), check_peer(c, to, "destination");
  if (in != nullptr) check_view(*in), check_peer(c, from, "source");
  run_collective(c, [&] {
    transfer receive;
    transfer send;
    std::optional<operation> receiving;
    std::optional<operation> sending;
    if (in != nullptr) {
      receiving = c.begin(operation_kind::message, in->type(), in->count(), 0, traffic, c.received[from]++);
      receiving->start_recv(receive, memory_of(*in).data(), in->size_bytes(), from);
    }
    if (out != nullptr) {
      sending = c.begin(operation_kind::message, out->type(), out->count(), 0, traffic, c.sent[to]++);
      sending->start_send(send, memory_of(*out).data(), out->size_bytes(), to);
    }
    if (receiving) receiving->finish(receive);
    if (sending) sending->finish(send);
  });
}

inline void send(channel_state& c, const tensor_view& view, std::uint32_t to, traffic_class traffic) {
  send_recv(c, &view, to, nullptr, 0, traffic);
}

inline void recv(channel_state& c, const tensor_view& view, std::uint32_t from, traffic_class traffic) {
  send_recv(c, nullptr, 0, &view, from, traffic);
}

inline void send_recv(channel_state& c, const tensor_view& out, std::uint32_t to, const tensor_view& in,
                      std::uint32_t from, traffic_class traffic) {
  send_recv(c, &out, to, &in, from, traffic);
}

inline void broadcast(channel_state& c, const tensor_view& view, std::uint32_t root, traffic_class traffic) {
  check_view(view);
  check_root(c, root);
  run_collective(c, [&] {
    operation run = c.begin(operation_kind::broadcast, view.type(), view.count(), root, traffic, c.collectives++);
    tree_broadcast(run, memory_of(view), root);
  });
}

/// Part r is bytes [offsets[r], offsets[r+1]) of `data`. Both ways send to the right first, so that ranks whose totals
/// differ, and with them the way, meet and are told.
template <exchange Exchange>
void gather_everywhere(Exchange& ex, std::byte* data, std::span<const std::size_t> offsets) {
  if (offsets.back() <= doubling_all_gather_bytes) return doubling_all_gather(ex, data, offsets);
  ring_all_gather(ex, data, offsets);
}

inline void all_gather(channel_state& c, const tensor_view& in, const tensor_view& out, traffic_class traffic) {
  check_view(in);
  check_view(out);
  require(in.type() == out.type() && out.count() == in.count() * c.size(), errc::invalid_shape, [&] {
    return "all_gather over " + std::to_string(c.size()) + " ranks of " + std::to_string(in.count()) + ' ' +
           to_string(in.type()) + " needs room for " + std::to_string(in.count() * c.size()) + ", not " +
           std::to_string(out.count()) + ' ' + to_string(out.type());
  });
  const std::size_t bytes = in.size_bytes();
  std::byte* const own = memory_of(out).data() + c.rank * bytes;
  if (bytes != 0 && own != in.data()) std::memmove(own, in.data(), bytes);
  run_collective(c, [&] {
    operation run = c.begin(operation_kind::all_gather, in.type(), in.count(), 0, traffic, c.collectives++);
    std::vector<std::size_t> offsets(c.size() + 1);
    for (std::size_t r = 0; r <= c.size(); ++r) offsets[r] = r * bytes;
    gather_everywhere(run, memory_of(out).data(), offsets);
  });
}

inline std::vector<std::string> all_gather_bytes(channel_state& c, std::string_view bytes, traffic_class traffic) {
  std::vector<std::int64_t> lengths(c.size());
  lengths[c.rank] = static_cast<std::int64_t>(bytes.size());
  all_gather(c, tensor_view{std::span{&lengths[c.rank], 1}}, tensor_view{std::span{lengths}}, traffic);
  std::vector<std::size_t> offsets(c.size() + 1);
  for (std::size_t r = 0; r < c.size(); ++r) offsets[r + 1] = offsets[r] + static_cast<std::size_t>(lengths[r]);
  std::string all(offsets.back(), '\0');
  bytes.copy(all.data() + offsets[c.rank], bytes.size());
  run_collective(c, [&] {
    operation run = c.begin(operation_kind::all_gather, dtype::u8, all.size(), 0, traffic, c.collectives++);
    gather_everywhere(run, std::as_writable_bytes(std::span{all}).data(), offsets);
  });
  std::vector<std::string> parts;
  for (std::size_t r = 0; r < c.size(); ++r) parts.push_back(all.substr(offsets[r], offsets[r + 1] - offsets[r]));
  return parts;
}

inline void barrier(channel_state& c, traffic_class traffic) {
  run_collective(c, [&] {
    operation run = c.begin(operation_kind::barrier, dtype::u8, 0, 0, traffic, c.collectives++);
    dissemination_barrier(run);
  });
}

inline void agree(channel_state& c, std::string_view what, std::string_view value) {
  const std::vector<std::string> values = all_gather_bytes(c, value, traffic_class::control);
  for (std::size_t r = 1; r < values.size(); ++r) {
    if (values[r] == values[0]) continue;
    throw error{errc::mismatch,
                "ranks disagree on " + std::string{what} + ": rank " + std::to_string(c.members[0]) + " has '" +
                    values[0] + "' and rank " + std::to_string(c.members[r]) + " has '" + values[r] +
                    "'; start every rank with the same",
                {rank_id{c.members[c.rank]}, {}}};
  }
}

/// @throws error invalid_argument for a negative color
inline std::unique_ptr<channel_state> split(channel_state& c, int color, int key) {
  require(color >= 0, errc::invalid_argument,
          "a color is 0 or above; a rank of its own group passes one nobody else has");
  std::vector<std::int32_t> pairs(2 * std::size_t{c.size()});
  const auto own = std::span{pairs}.subspan(2 * std::size_t{c.rank}, 2);
  own[0] = color;
  own[1] = key;
  all_gather(c, tensor_view{own}, tensor_view{std::span{pairs}}, traffic_class::control);

  std::vector<std::pair<std::int32_t, std::uint32_t>> order;  // (key, rank here)
  for (std::uint32_t r = 0; r < c.size(); ++r) {
    if (pairs[2 * std::size_t{r}] == color) order.emplace_back(pairs[2 * std::size_t{r} + 1], r);
  }
  std::sort(order.begin(), order.end());
  std::unique_ptr<channel_state> group = c.derive("split");
  group->id = stable_hash{}.add(group->id).add(static_cast<std::uint64_t>(color)).value();
  group->name += '(' + std::to_string(color) + ')';
  group->members.clear();
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    if (order[i].second == c.rank) group->rank = i;
    group->members.push_back(c.members[order[i].second]);
  }
  std::vector<std::uint32_t> chosen;
  for (const auto& [k, r] : order) chosen.push_back(r);
  group->rules = std::make_shared<const tuning>(rules_for(*c.rules, chosen));
  group->reset_messages();
  return group;
}

}  // namespace hetero::detail
