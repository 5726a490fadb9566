// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hetero/comm/channel_state.hpp>
#include <hetero/comm/collectives.hpp>
#include <hetero/comm/counts.hpp>
#include <hetero/core/tensor_view.hpp>

/// @file
/// What the collectives over one part per rank check before they send: a call that is wrong by itself fails on its rank
/// alone and leaves the world as it was, so that it may be corrected and repeated.
namespace hetero::detail {

/// `whole` holds one part as long as `part` for each rank.
/// @throws error invalid_shape
inline void check_equal_parts(const channel_state& c, const char* name, const tensor_view& part,
                              const tensor_view& whole) {
  require(part.type() == whole.type() && whole.count() == part.count() * c.size(), errc::invalid_shape, [&] {
    return std::string{name} + " over " + std::to_string(c.size()) + " ranks of " + std::to_string(part.count()) + ' ' +
           to_string(part.type()) + " each needs a whole of " + std::to_string(part.count() * c.size()) + ", not " +
           std::to_string(whole.count()) + ' ' + to_string(whole.type());
  });
}

/// There is one count per rank of the group.
/// @throws error invalid_argument
inline void check_ranks(const channel_state& c, const char* name, std::span<const std::size_t> counts) {
  require(counts.size() == c.size(), errc::invalid_argument, [&] {
    return std::string{name} + " got " + std::to_string(counts.size()) + " counts for " + std::to_string(c.size()) +
           " ranks; pass one for each";
  });
}

/// `part` is as long as this rank's count.
/// @throws error invalid_argument, invalid_shape
/// @return the offsets of the parts, in elements
[[nodiscard]] inline std::vector<std::size_t> check_part(const channel_state& c, const char* name,
                                                         std::span<const std::size_t> counts, const tensor_view& part) {
  check_ranks(c, name, counts);
  std::vector<std::size_t> offsets = offsets_of(counts);
  require(part.count() == counts[c.rank], errc::invalid_shape, [&] {
    return std::string{name} + " counts " + std::to_string(counts[c.rank]) + " elements for rank " +
           std::to_string(c.rank) + ", whose view has " + std::to_string(part.count());
  });
  return offsets;
}

/// `whole` is as long as all parts.
/// @throws error invalid_shape
inline void check_whole(const char* name, std::span<const std::size_t> offsets, const tensor_view& part,
                        const tensor_view& whole) {
  require(part.type() == whole.type() && whole.count() == offsets.back(), errc::invalid_shape, [&] {
    return std::string{name} + " of counts that add up to " + std::to_string(offsets.back()) + ' ' +
           to_string(part.type()) + " got a view of " + std::to_string(whole.count()) + ' ' + to_string(whole.type());
  });
}

[[nodiscard]] inline std::vector<std::size_t> check_counts(const channel_state& c, const char* name,
                                                           std::span<const std::size_t> counts, const tensor_view& part,
                                                           const tensor_view& whole) {
  std::vector<std::size_t> offsets = check_part(c, name, counts, part);
  check_whole(name, offsets, part, whole);
  return offsets;
}

/// @throws error invalid_argument when the two share memory
inline void check_apart(const tensor_view& a, const tensor_view& b) {
  const std::less<const std::byte*> before;
  const std::span<std::byte> x = memory_of(a);
  const std::span<std::byte> y = memory_of(b);
  require(x.empty() || y.empty() || !before(x.data(), y.data() + y.size()) || !before(y.data(), x.data() + x.size()),
          errc::invalid_argument, "the input and the output of a collective overlap; give them memory of their own");
}

/// `part` is exactly the part of `whole` that begins at byte `at`, or shares no memory with it.
/// @throws error invalid_argument
inline void check_own_part(const tensor_view& whole, const tensor_view& part, std::size_t at) {
  if (part.count() != 0 && memory_of(part).data() != memory_of(whole).data() + at) check_apart(whole, part);
}

/// Copies this rank's own part, unless it is in its place already.
inline void copy_part(const tensor_view& to, const std::byte* from) {
  if (to.count() != 0 && to.data() != from) std::memcpy(to.data(), from, to.size_bytes());
}

/// Lets a mismatch say what this rank passed: a fingerprint holds only a hash of it.
template <class Body> void naming_counts(const channel_state& c, std::span<const std::size_t> counts, Body&& body) {
  try {
    body();
  } catch (const error& e) {
    if (e.code() != errc::mismatch) throw;
    throw error{e.code(),
                e.message() + "; the counts of rank " + std::to_string(c.members[c.rank]) + " are " + list_of(counts),
                e.context(), e.location()};
  }
}

}  // namespace hetero::detail
