// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <hetero/core/error.hpp>

/// @file
/// What ranks say to each other before they are a world. A fixed prefix, the same in every version, then a body.
namespace hetero::detail {

inline constexpr std::uint32_t protocol_version = 2;

enum class rendezvous_kind : std::uint32_t {
  hello,       ///< rank to leader: who I am
  registered,  ///< leader to rank: noted, wait
  other_job,   ///< leader to rank: this port serves another job
  refused,     ///< leader to all: why there will be no world
  welcome,     ///< leader to rank: where everybody listens
  peer_hello,  ///< rank to rank: one of their data connections
  ready,       ///< rank to leader: connected to everybody
  failed,      ///< rank to leader: why I could not
  go,          ///< leader to rank: everybody is ready
};

struct rendezvous_prefix {
  static constexpr std::array<char, 8> magic_value{'h', 'e', 't', 'e', 'r', 'o', '\r', '\n'};
  std::array<char, 8> magic = magic_value;
  std::uint32_t version = protocol_version;
  rendezvous_kind kind = rendezvous_kind::hello;
  std::uint32_t bytes = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(rendezvous_prefix) == 24 && std::is_trivially_copyable_v<rendezvous_prefix>);

/// A body is at most this long when it comes from somebody not yet known, and when it comes from the leader.
inline constexpr std::uint32_t max_stranger_bytes = 4096;
inline constexpr std::uint32_t max_leader_bytes = std::uint32_t{8} << 20U;

/// Appends numbers and strings to a body.
class body_writer {
 public:
  template <class T>
  requires std::is_integral_v<T> body_writer& add(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
    return *this;
  }
  body_writer& add(std::string_view text) {
    add(static_cast<std::uint32_t>(text.size()));
    bytes_.append(text);
    return *this;
  }
  body_writer& add(const std::vector<std::string>& texts) {
    add(static_cast<std::uint8_t>(texts.size()));
    for (const std::string& t : texts) add(std::string_view{t});
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

/// Takes them out again. Reading past the end gives zeros and empty strings, and `complete` tells.
class body_reader {
 public:
  explicit body_reader(std::string_view bytes) noexcept : rest_{bytes} {}

  template <class T>
  requires std::is_integral_v<T>
  [[nodiscard]] T number() noexcept {
    T value{};
    if (rest_.size() < sizeof value) {
      complete_ = false;
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  [[nodiscard]] std::string text() {
    const auto length = number<std::uint32_t>();
    if (length > rest_.size()) {
      complete_ = false;
      return {};
    }
    std::string value{rest_.substr(0, length)};
    rest_.remove_prefix(length);
    return value;
  }
  [[nodiscard]] std::vector<std::string> texts() {
    std::vector<std::string> values(number<std::uint8_t>());
    for (std::string& v : values) v = text();
    return values;
  }
  [[nodiscard]] bool complete() const noexcept { return complete_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool complete_ = true;
};

/// What a rank tells the leader.
struct hello_message {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 0;
  std::uint16_t port = 0;              ///< where this rank accepts higher ranks
  bool open_to_others = false;         ///< it accepts connections from other hosts
  std::uint64_t host_id = 0;           ///< equal where memory can be shared
  std::vector<std::string> addresses;  ///< its own, by its routes to the leader
  std::uint64_t settings_hash = 0;
  std::string job;
  std::string settings;  ///< cut to `max_settings_text`; the hash covers all

  static constexpr std::size_t max_settings_text = 2048;
  static constexpr std::size_t max_addresses = 8;

  [[nodiscard]] std::string encode() const {
    body_writer out;
    out.add(rank).add(world_size).add(port).add(std::uint8_t{open_to_others}).add(host_id).add(settings_hash);
    return out.add(job).add(settings).add(addresses).bytes();
  }
  /// False when the bytes are no hello.
  [[nodiscard]] bool decode(std::string_view bytes) {
    body_reader in{bytes};
    rank = in.number<std::uint32_t>();
    world_size = in.number<std::uint32_t>();
    port = in.number<std::uint16_t>();
    open_to_others = in.number<std::uint8_t>() != 0;
    host_id = in.number<std::uint64_t>();
    settings_hash = in.number<std::uint64_t>();
    job = in.text();
    settings = in.text();
    addresses = in.texts();
    return in.complete();
  }
};

/// The first message of a data connection.
struct peer_hello_message {
  std::uint64_t token = 0;
  std::uint32_t rank = 0;
  std::uint32_t stream = 0;

  [[nodiscard]] std::string encode() const { return body_writer{}.add(token).add(rank).add(stream).bytes(); }
  [[nodiscard]] bool decode(std::string_view bytes) {
    body_reader in{bytes};
    token = in.number<std::uint64_t>();
    rank = in.number<std::uint32_t>();
    stream = in.number<std::uint32_t>();
    return in.complete();
  }
};

/// Why there will be no world.
struct refusal_message {
  errc code = errc::rendezvous;
  std::string text;

  [[nodiscard]] std::string encode() const {
    return body_writer{}.add(static_cast<std::uint8_t>(code)).add(text).bytes();
  }
  [[nodiscard]] static refusal_message decode(std::string_view bytes) {
    body_reader in{bytes};
    const auto code = in.number<std::uint8_t>();
    refusal_message m{
        code <= static_cast<std::uint8_t>(errc::plan_does_not_fit) ? static_cast<errc>(code) : errc::rendezvous,
        in.text()};
    if (!in.complete()) m.text = "the leader refused and its reason could not be read";
    return m;
  }
};

/// Where everybody listens, as seen by the rank that gets this, and a number that only this world knows.
struct welcome_message {
  struct place {
    std::vector<std::string> addresses;  ///< tried in this order
    std::uint16_t port = 0;
    std::uint64_t host_id = 0;
  };
  std::uint64_t token = 0;
  std::uint32_t streams = 1;        ///< between ranks of different hosts
  std::uint32_t local_streams = 1;  ///< between ranks of one host
  std::vector<place> places;        ///< by rank

  static constexpr std::uint32_t max_streams = 64;

  /// Connections between two ranks.
  [[nodiscard]] std::uint32_t streams_between(std::uint32_t a, std::uint32_t b) const {
    return places[a].host_id == places[b].host_id ? local_streams : streams;
  }

  [[nodiscard]] std::string encode() const {
    body_writer out;
    out.add(token).add(streams).add(local_streams).add(static_cast<std::uint32_t>(places.size()));
    for (const place& p : places) out.add(p.addresses).add(p.port).add(p.host_id);
    return out.bytes();
  }
  [[nodiscard]] bool decode(std::string_view bytes, std::uint32_t world_size) {
    body_reader in{bytes};
    token = in.number<std::uint64_t>();
    streams = in.number<std::uint32_t>();
    local_streams = in.number<std::uint32_t>();
    if (in.number<std::uint32_t>() != world_size) return false;
    places.resize(world_size);
    for (place& p : places) {
      p.addresses = in.texts();
      p.port = in.number<std::uint16_t>();
      p.host_id = in.number<std::uint64_t>();
    }
    return in.complete() && streams - 1 < max_streams && local_streams - 1 < max_streams;
  }
};

}  // namespace hetero::detail
