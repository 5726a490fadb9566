// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"
#include "tcp_ranks.hpp"

#include <hetero/comm/shared_memory_setup.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace hetero;

namespace {

/// Objects of this library that are left in the host's shared memory.
std::vector<std::string> leftovers() {
  std::vector<std::string> names;
  if (!std::filesystem::exists("/dev/shm")) return names;
  for (const auto& entry : std::filesystem::directory_iterator{"/dev/shm"}) {
    if (entry.path().filename().string().starts_with("hetero-")) names.push_back(entry.path().filename().string());
  }
  return names;
}

/// A ring each way between two links of this thread.
struct link_pair {
  explicit link_pair(std::size_t capacity)
      : memory(2 * detail::shared_ring::memory_for(capacity) + detail::shared_ring::line) {
    void* at = memory.data();
    std::size_t space = memory.size();
    std::align(detail::shared_ring::line, 2 * detail::shared_ring::memory_for(capacity), at, space);
    void* const second = static_cast<std::byte*>(at) + detail::shared_ring::memory_for(capacity);
    detail::shared_ring::create(at);
    detail::shared_ring::create(second);
    a.emplace(0, detail::shared_ring{at, capacity}, detail::shared_ring{second, capacity}, nullptr);
    b.emplace(1, detail::shared_ring{second, capacity}, detail::shared_ring{at, capacity}, nullptr);
  }
  std::vector<std::byte> memory;
  std::optional<detail::shared_memory_link> a, b;
};

transfer& prepare(transfer& t, transfer::way way, std::vector<std::uint8_t>& bytes, std::uint64_t sequence) {
  t.direction = way;
  t.peer = way == transfer::way::send ? 1 : 0;
  t.what.sequence = sequence;
  t.what.count = bytes.size();
  t.data = reinterpret_cast<std::byte*>(bytes.data());
  t.bytes = bytes.size();
  return t;
}

}  // namespace

TEST_CASE("ranks that share memory behave as a communicator", "[comm]") {
  const std::uint32_t ranks = GENERATE(2U, 3U, 5U);
  CAPTURE(ranks);
  REQUIRE_NOTHROW(conformance::check_behaviour<world>(test::run_shared_memory_ranks, ranks));
}

TEST_CASE("failures in shared memory reach every rank", "[comm]") {
  const std::uint32_t ranks = GENERATE(2U, 3U, 5U);
  CAPTURE(ranks);
  REQUIRE_NOTHROW(conformance::check_failures<world>(test::run_shared_memory_ranks, ranks));
}

TEST_CASE("a host and its neighbours mix: memory where two ranks share it, streams where not", "[comm]") {
  // Ranks 0 and 2 on one emulated host, 1 and 3 on another.
  REQUIRE_NOTHROW(conformance::check_behaviour<world>(
      [](std::uint32_t ranks, const std::function<void(world&)>& body) {
        std::promise<std::uint16_t> listening;
        const std::shared_future<std::uint16_t> port = listening.get_future().share();
        detail::run_threads(
            ranks,
            [&](std::uint32_t rank) {
              rendezvous_options options;
              options.rank = rank;
              options.world_size = ranks;
              options.host_id = 1 + rank % 2;
              options.on_listening = [&](std::uint16_t p) { listening.set_value(p); };
              options.ports = {rank == 0 ? std::uint16_t{0} : port.get()};
              world w{tcp_rendezvous(options)};
              const std::uint32_t beside = (rank + 2) % 4, beyond = (rank + 1) % 4;
              conformance::expect(w.path_to(rank_id{beside}) == "shared memory", "the path within a host");
              conformance::expect(w.path_to(rank_id{beyond}) == "interface lo, 2 streams", "the path between hosts");
              body(w);
            },
            [](std::uint32_t, const std::exception_ptr&) {});
      },
      4));
}

TEST_CASE("nothing is left in the host's shared memory", "[comm]") {
  // Names go as soon as everybody has opened them: a rank that is killed later leaves nothing behind either.
  const auto before = leftovers();
  std::size_t during = 0;
  test::run_shared_memory_ranks(3, [&](world& w) {
    w.barrier();
    if (w.rank() == rank_id{0}) during = leftovers().size();
    w.barrier();
  });
  REQUIRE(during <= before.size());
  REQUIRE(leftovers().size() <= before.size());
}

TEST_CASE("a message larger than the ring flows through it, whatever its length", "[comm]") {
  constexpr std::size_t capacity = 1024;
  link_pair links{capacity};
  std::uint64_t sequence = 0;
  for (const std::size_t bytes : {0UL, 1UL, 63UL, 64UL, 65UL, 959UL, 960UL, 961UL, 1024UL, 5000UL, 65537UL}) {
    std::vector<std::uint8_t> sent(bytes), got(bytes, 7);
    for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::uint8_t>(i * 13 % 251);
    transfer send, receive;
    links.b->post(prepare(receive, transfer::way::recv, got, sequence));
    links.a->post(prepare(send, transfer::way::send, sent, sequence));
    int turns = 0;
    while (!receive.done && ++turns < 10'000) {
      links.b->progress();
      links.a->progress();
    }
    CAPTURE(bytes, turns);
    REQUIRE((send.done && receive.done));
    REQUIRE(got == sent);
    ++sequence;
  }
}

TEST_CASE("a sender that takes its memory back in the middle leaves the stream whole", "[comm]") {
  link_pair links{1024};
  std::vector<std::uint8_t> large(5000, 1), small(10, 2), got_large(5000), got_small(10);
  transfer receive_large, receive_small, second;
  {
    transfer first;
    links.a->post(prepare(first, transfer::way::send, large, 0));
    REQUIRE(!first.done);
    links.a->cancel(first);
    std::fill(large.begin(), large.end(), std::uint8_t{9});  // the memory is the caller's again
  }
  links.a->post(prepare(second, transfer::way::send, small, 1));
  links.b->post(prepare(receive_large, transfer::way::recv, got_large, 0));
  links.b->post(prepare(receive_small, transfer::way::recv, got_small, 1));
  for (int turn = 0; turn < 1000 && !receive_small.done; ++turn) {
    links.b->progress();
    links.a->progress();
  }
  REQUIRE((receive_large.done && receive_small.done));
  REQUIRE(got_large == std::vector<std::uint8_t>(5000, 1));
  REQUIRE(got_small == small);
}

TEST_CASE("a side falls asleep only when there is nothing to do, and is woken once", "[comm]") {
  link_pair links{1024};
  std::vector<std::uint8_t> bytes(10, 3), got(10);
  REQUIRE(links.b->fall_asleep());
  transfer send, receive;
  links.a->post(prepare(send, transfer::way::send, bytes, 0));
  REQUIRE(links.a->take_bell());
  REQUIRE(!links.a->take_bell());
  REQUIRE(!links.b->fall_asleep());  // control: a message waits
  links.b->post(prepare(receive, transfer::way::recv, got, 0));
  links.b->progress();
  REQUIRE(receive.done);
  REQUIRE(links.b->fall_asleep());
}

TEST_CASE("memory that nobody can have written so ends the world and touches nothing else", "[comm]") {
  constexpr std::size_t capacity = 1024;
  std::vector<std::byte> memory(2 * detail::shared_ring::memory_for(capacity) + detail::shared_ring::line);
  void* at = memory.data();
  std::size_t space = memory.size();
  std::align(detail::shared_ring::line, 2 * detail::shared_ring::memory_for(capacity), at, space);
  void* const second = static_cast<std::byte*>(at) + detail::shared_ring::memory_for(capacity);
  detail::shared_ring::create(at);
  detail::shared_ring::create(second);
  detail::shared_memory_link reader{0, detail::shared_ring{at, capacity}, detail::shared_ring{second, capacity},
                                    nullptr};
  detail::shared_ring writer{second, capacity};
  detail::frame_header h;
  h.bytes = h.total = std::uint64_t{1} << 50U;
  std::memcpy(writer.place(), &h, sizeof h);
  writer.advance(sizeof h);
  REQUIRE(!writer.publish());
  reader.progress();
  REQUIRE_THAT(reader.broken(), ContainsSubstring("into the shared memory"));
}

TEST_CASE("rings shrink with the ranks of a host", "[comm]") {
  REQUIRE(detail::ring_capacity(2) == std::size_t{512} << 10U);
  for (std::size_t n = 2; n <= 64; ++n) {
    REQUIRE(std::has_single_bit(detail::ring_capacity(n)));
    REQUIRE(n * (n - 1) * detail::ring_capacity(n) <= std::max(std::size_t{32} << 20U, n * (n - 1) * 16384));
  }
}
