// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"
#include "tcp_ranks.hpp"

#include <hetero/comm/tcp_transport.hpp>

#include <boost/asio/write.hpp>

#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace hetero;

namespace {

using boost::asio::ip::tcp;

/// Rank 0 of two, whose peer is a bare socket that may say anything.
struct lone_rank {
  lone_rank() {
    tcp::acceptor acceptor{*context, {boost::asio::ip::address_v4::loopback(), 0}};
    peer.connect(acceptor.local_endpoint());
    std::vector<std::vector<detail::tcp_socket>> sockets(2);
    sockets[1].emplace_back(acceptor.accept());
    rank.emplace(std::make_shared<detail::tcp_transport>(context, 0, std::move(sockets)));
    rank->set_timeout(std::chrono::seconds{20});
  }

  void says(const detail::frame_header& header) {
    boost::asio::write(peer, boost::asio::buffer(&header, sizeof header));
  }

  /// What a receive of four bytes on the first channel ends with.
  std::string outcome() {
    std::int32_t value = 0;
    try {
      rank->recv(tensor_view{std::span{&value, 1}}, rank_id{1});
    } catch (const error& e) {
      return e.what();
    }
    return "received";
  }

  std::shared_ptr<boost::asio::io_context> context = std::make_shared<boost::asio::io_context>(1);
  tcp::socket peer{*context};
  std::optional<world> rank;
};

detail::frame_header header_of_message() {
  detail::frame_header h;
  h.channel = stable_hash{}.add("world").value();
  h.element = dtype::i32;
  h.count = 1;
  h.bytes = h.total = 4;
  return h;
}

}  // namespace

TEST_CASE("a frame that no rank can have sent ends the world before anything is allocated for it", "[comm]") {
  lone_rank r;
  detail::frame_header h = header_of_message();
  SECTION("control: a sound frame") {
    r.says(h);
    boost::asio::write(r.peer, boost::asio::buffer("four", 4));
    REQUIRE(r.outcome() == "received");
  }
  SECTION("wrong magic") {
    h.magic ^= 1U;
    r.says(h);
    REQUIRE_THAT(r.outcome(),
                 ContainsSubstring("peer_lost: rank 1 sent a frame that does not start with the magic number"));
  }
  SECTION("unknown kind") {
    h.kind = static_cast<operation_kind>(200);
    r.says(h);
    REQUIRE_THAT(r.outcome(), ContainsSubstring("peer_lost") && ContainsSubstring("a field out of range"));
  }
  SECTION("impossible lengths") {
    h.bytes =
        GENERATE(std::uint64_t{1} << 63U, std::numeric_limits<std::uint64_t>::max(), (std::uint64_t{1} << 40U) + 1);
    r.says(h);
    REQUIRE_THAT(r.outcome(), ContainsSubstring("peer_lost") && ContainsSubstring("more than its kind may have"));
  }
  SECTION("a long reason to abort") {
    h.type = detail::frame_type::abort;
    h.bytes = detail::max_abort_text_bytes + 1;
    r.says(h);
    REQUIRE_THAT(r.outcome(), ContainsSubstring("peer_lost") && ContainsSubstring("more than its kind may have"));
  }
  SECTION("another length than the receiver expects") {
    h.bytes = h.total = 8;
    r.says(h);
    REQUIRE_THAT(r.outcome(),
                 ContainsSubstring("mismatch") && ContainsSubstring("holds 8 bytes where 4 were expected"));
  }
  SECTION("another epoch") {
    h.epoch = 3;
    r.says(h);
    REQUIRE_THAT(r.outcome(), ContainsSubstring("mismatch") && ContainsSubstring("epochs 0 and 3 differ"));
  }
  SECTION("the end in the middle of a frame") {
    boost::asio::write(r.peer, boost::asio::buffer(&h, 20));
    r.peer.close();
    REQUIRE_THAT(r.outcome(), ContainsSubstring("peer_lost: rank 1 closed its connection without a goodbye"));
  }
  SECTION("the end after a goodbye") {
    h = {};
    h.type = detail::frame_type::goodbye;
    r.says(h);
    r.peer.close();
    REQUIRE_THAT(r.outcome(), ContainsSubstring("peer_lost: rank 1 left the world"));
  }
}

TEST_CASE("early messages are kept up to a limit, and then the sender waits", "[comm]") {
  // Two of these pass the limit, so the second stays in the sender until the first has been received.
  constexpr std::size_t count = detail::mailbox::stash_limit_bytes / 4 / 3 * 2;
  REQUIRE_NOTHROW(test::run_tcp_ranks(2, [](world& w) {
    world bulk = w.channel("bulk");
    world news = w.channel("news");
    if (w.rank() == rank_id{0}) {
      const std::vector<float> first(count, 1);
      const std::vector<float> second(count, 2);
      int last = 3;
      bulk.send(tensor_view{std::span{first}}, rank_id{1});
      bulk.send(tensor_view{std::span{second}}, rank_id{1});
      news.send(tensor_view{std::span{&last, 1}}, rank_id{1});
      return;
    }
    // The news come last. Whoever waits for them sits at the sockets and reads the bulk, as far as the limit allows.
    std::exception_ptr failed;
    int last = 0;
    std::thread reader{[&] {
      try {
        news.recv(tensor_view{std::span{&last, 1}}, rank_id{0});
      } catch (...) {
        failed = std::current_exception();
      }
    }};
    std::vector<float> values(count);
    try {
      for (const float expected : {1.0F, 2.0F}) {
        bulk.recv(tensor_view{std::span{values}}, rank_id{0});
        conformance::expect(values.front() == expected && values.back() == expected, "bulk");
      }
    } catch (...) {
      reader.join();
      throw;
    }
    reader.join();
    if (failed) std::rethrow_exception(failed);
    conformance::expect(last == 3, "news");
  }));
}
