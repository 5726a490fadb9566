// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hetero/comm/operation.hpp>
#include <hetero/comm/traffic.hpp>
#include <hetero/comm/transport.hpp>
#include <hetero/comm/tuning.hpp>
#include <hetero/core/hash.hpp>

namespace hetero::detail {

/// What all handles of one rank share. Thread-safe.
struct rank_context {
  std::shared_ptr<transport> carrier;  ///< null when the rank is alone
  traffic_meter meter;
  std::mutex mutex;
  std::map<std::pair<std::uint64_t, std::string>, std::uint64_t> purposes;  ///< how often each was asked for
  world_failure failure;                                                    ///< of a rank that is alone and was aborted
  bool failed = false;
};

/// One channel of one group as seen by one rank: its id, and how far its sequences have come.
struct channel_state {
  std::shared_ptr<rank_context> context;
  std::vector<std::uint32_t> members;  ///< rank in the transport of each rank of the group
  std::uint32_t rank = 0;              ///< in the group
  std::uint64_t id = 0;
  std::string name;
  std::chrono::milliseconds timeout{30'000};
  std::uint64_t collectives = 0;
  std::shared_ptr<const tuning> rules = std::make_shared<const tuning>();  ///< equal on all ranks
  std::vector<std::uint64_t> sent, received;  ///< messages to and from each rank of the group
  traffic_meter meter;                        ///< of this handle alone; what it counts, the context's counts too

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(members.size()); }

  /// All ranks of a transport, or the one rank of none.
  [[nodiscard]] static std::unique_ptr<channel_state> root(std::shared_ptr<transport> carrier) {
    auto state = std::make_unique<channel_state>();
    state->context = std::make_shared<rank_context>();
    state->members.resize(carrier ? carrier->world_size() : 1);
    std::iota(state->members.begin(), state->members.end(), 0U);
    state->rank = carrier ? carrier->rank() : 0;
    state->context->carrier = std::move(carrier);
    state->id = stable_hash{}.add("world").value();
    state->name = "world";
    state->reset_messages();
    return state;
  }

  /// The same group under an id that depends on this channel, the purpose and how often it was asked for.
  [[nodiscard]] std::unique_ptr<channel_state> derive(std::string_view purpose) const {
    auto state = std::make_unique<channel_state>();
    state->context = context;
    state->members = members;
    state->rank = rank;
    state->timeout = timeout;
    state->rules = rules;
    std::uint64_t times = 0;
    {
      const std::lock_guard lock{context->mutex};
      times = context->purposes[{id, std::string{purpose}}]++;
    }
    state->id = stable_hash{}.add(id).add(purpose).add(times).value();
    state->name = name + '/' + std::string{purpose};
    if (times > 0) state->name += '#' + std::to_string(times + 1);
    state->reset_messages();
    return state;
  }

  /// The operation behind one message between this rank and `peer`, or behind a collective when there is no peer.
  [[nodiscard]] operation begin(operation_kind kind, dtype type, std::size_t count, std::uint32_t detail,
                                traffic_class traffic, std::uint64_t sequence) {
    fingerprint what;
    what.channel = id;
    what.sequence = sequence;
    what.count = count;
    what.detail = detail;
    what.kind = kind;
    what.type = type;
    meter.feeds(&context->meter);
    return operation{{context->carrier.get(), &meter, members, rank, what, name, traffic, timeout}};
  }

  void reset_messages() {
    sent.assign(members.size(), 0);
    received.assign(members.size(), 0);
  }
};

/// Ends the world of this rank. Any thread.
inline void abort(channel_state& c, std::string_view reason, errc code = errc::aborted) noexcept {
  const std::uint32_t self = c.members[c.rank];
  world_failure why{
      code, self,
      (code == errc::aborted ? "rank " + std::to_string(self) + " aborted: " : std::string{}) + std::string{reason}};
  if (c.context->carrier) return c.context->carrier->abort(std::move(why));
  const std::lock_guard lock{c.context->mutex};
  if (!std::exchange(c.context->failed, true)) c.context->failure = std::move(why);
}

/// The whole of an operation of a rank that is alone.
/// @throws error aborted
inline void check_alone(channel_state& c) {
  if (c.context->carrier) return;
  const std::lock_guard lock{c.context->mutex};
  if (c.context->failed) throw error{c.context->failure.code, c.context->failure.message, {rank_id{0}, {}}};
}

}  // namespace hetero::detail
