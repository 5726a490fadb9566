// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <algorithm>
#include <bit>
#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hetero/comm/shared_memory_link.hpp>
#include <hetero/comm/shared_memory_ring.hpp>
#include <hetero/comm/world.hpp>

namespace hetero::detail {

/// The memory in which one rank receives from the other ranks of its host: a ring for each, in the order of ranks.
class shared_inbox {
 public:
  shared_inbox() = default;

  /// Makes it under a name that only this job knows. Empty when the host has no room for it.
  [[nodiscard]] static shared_inbox create(const std::string& name, std::size_t rings, std::size_t capacity) {
    namespace ipc = boost::interprocess;
    shared_inbox inbox;
    try {
      ipc::shared_memory_object object{ipc::create_only, name.c_str(), ipc::read_write};
      const auto bytes = static_cast<ipc::offset_t>(rings * shared_ring::memory_for(capacity));
      object.truncate(bytes);
      // A file system that is full would kill the process later, at the first touch.
      if (::posix_fallocate(object.get_mapping_handle().handle, 0, bytes) != 0) {
        ipc::shared_memory_object::remove(name.c_str());
        return {};
      }
      inbox.region_ = std::make_shared<ipc::mapped_region>(object, ipc::read_write);
    } catch (const ipc::interprocess_exception&) {
      return {};
    }
    for (std::size_t r = 0; r < rings; ++r) shared_ring::create(inbox.at(r, capacity));
    return inbox;
  }

  /// Another rank's. Empty when it cannot be reached: the two may live in different containers.
  [[nodiscard]] static shared_inbox open(const std::string& name, std::size_t rings, std::size_t capacity) {
    namespace ipc = boost::interprocess;
    shared_inbox inbox;
    try {
      const ipc::shared_memory_object object{ipc::open_only, name.c_str(), ipc::read_write};
      inbox.region_ = std::make_shared<ipc::mapped_region>(object, ipc::read_write);
    } catch (const ipc::interprocess_exception&) {
      return {};
    }
    if (inbox.region_->get_size() != rings * shared_ring::memory_for(capacity)) return {};
    return inbox;
  }

  static void forget(const std::string& name) noexcept {
    boost::interprocess::shared_memory_object::remove(name.c_str());
  }

  [[nodiscard]] explicit operator bool() const noexcept { return region_ != nullptr; }
  [[nodiscard]] void* at(std::size_t ring, std::size_t capacity) const noexcept {
    return static_cast<std::byte*>(region_->get_address()) + ring * shared_ring::memory_for(capacity);
  }
  [[nodiscard]] std::shared_ptr<void> memory() const noexcept { return region_; }

 private:
  std::shared_ptr<boost::interprocess::mapped_region> region_;
};

/// Bytes of each ring of a host with so many ranks. All rings together stay below what a container usually grants, and
/// one ring within a core's cache.
[[nodiscard]] constexpr std::size_t ring_capacity(std::size_t ranks_of_host) noexcept {
  constexpr std::size_t all = std::size_t{32} << 20U;
  constexpr std::size_t most = std::size_t{512} << 10U;
  constexpr std::size_t least = std::size_t{16} << 10U;
  const std::size_t rings = ranks_of_host * (ranks_of_host - 1);
  return std::bit_floor(std::clamp(all / std::max<std::size_t>(1, rings), least, most));
}

/// The links from this rank to others of its host.
struct shared_memory_links {
  std::vector<std::pair<std::uint32_t, std::unique_ptr<shared_memory_link>>> by_rank;
};

/// Agrees with every other rank of the host on shared memory. Collective over all ranks of `setup`: each tells what it
/// could open, and a pair uses memory when both could. `wanted` may differ between ranks; a rank that does not want it
/// keeps its connections.
/// @throws error as the operations of `setup`
[[nodiscard]] inline shared_memory_links link_through_memory(world& setup, std::span<const std::uint64_t> host_ids,
                                                             std::uint64_t token, bool wanted) {
  const auto self = static_cast<std::uint32_t>(index_of(setup.rank()));
  const auto n = static_cast<std::uint32_t>(host_ids.size());
  const auto ranks_of = [&](std::uint64_t host) {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t r = 0; r < n; ++r) {
      if (host_ids[r] == host) ranks.push_back(r);
    }
    return ranks;
  };
  const std::vector<std::uint32_t> here = ranks_of(host_ids[self]);
  bool anybody = false;
  for (std::uint32_t r = 0; r < n && !anybody; ++r) {
    anybody = std::count(host_ids.begin(), host_ids.end(), host_ids[r]) > 1;
  }
  shared_memory_links links;
  if (!anybody) return links;

  const std::size_t capacity = ring_capacity(here.size());
  const std::size_t rings = here.size() - 1;
  const auto name_of = [&](std::uint32_t rank) {
    return "hetero-" + std::to_string(token) + '-' + std::to_string(host_ids[self] % 1'000'000) + '-' +
           std::to_string(rank);
  };
  // The ring of a writer in the inbox of a reader: the readers' own place is left out.
  const auto ring_of = [&](std::uint32_t writer, std::uint32_t reader) {
    const auto place = static_cast<std::size_t>(std::lower_bound(here.begin(), here.end(), writer) - here.begin());
    return writer > reader ? place - 1 : place;
  };

  shared_inbox own;
  if (wanted && rings > 0) own = shared_inbox::create(name_of(self), rings, capacity);
  struct remove_name {
    std::string name;
    ~remove_name() {
      if (!name.empty()) shared_inbox::forget(name);
    }
  } const cleanup{own ? name_of(self) : std::string{}};
  setup.barrier();

  std::vector<shared_inbox> others(here.size());
  std::vector<std::uint8_t> opened(std::size_t{n} * n);
  const auto row = std::span{opened}.subspan(std::size_t{self} * n, n);
  for (std::size_t i = 0; i < here.size(); ++i) {
    if (here[i] == self || !own) continue;
    others[i] = shared_inbox::open(name_of(here[i]), rings, capacity);
    row[here[i]] = others[i] ? 1 : 0;
  }
  setup.all_gather(tensor_view{row}, tensor_view{std::span{opened}}, traffic_class::control);
  for (std::size_t i = 0; i < here.size(); ++i) {
    const std::uint32_t r = here[i];
    if (r == self || row[r] == 0 || opened[std::size_t{r} * n + self] == 0) continue;
    auto both =
        std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(own.memory(), others[i].memory());
    links.by_rank.emplace_back(
        r, std::make_unique<shared_memory_link>(self, shared_ring{others[i].at(ring_of(self, r), capacity), capacity},
                                                shared_ring{own.at(ring_of(r, self), capacity), capacity}, both));
  }
  return links;
}

/// HETERO_SHARED_MEMORY=0 keeps a rank on its connections.
/// @throws error invalid_argument for any other value than 0 and 1
[[nodiscard]] inline bool shared_memory_wanted() {
  const char* const value = std::getenv("HETERO_SHARED_MEMORY");
  if (value == nullptr) return true;
  const std::string_view text{value};
  require(text == "0" || text == "1", errc::invalid_argument,
          [&] { return "HETERO_SHARED_MEMORY='" + std::string{text} + "' is neither 0 nor 1"; });
  return text == "1";
}

}  // namespace hetero::detail
