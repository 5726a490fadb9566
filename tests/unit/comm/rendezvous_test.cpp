// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"

#include "support/temp_dir.hpp"

#include <hetero/comm/rendezvous_address.hpp>
#include <hetero/comm/rendezvous_gather.hpp>
#include <hetero/comm/rendezvous_message.hpp>
#include <hetero/comm/run_ranks.hpp>
#include <hetero/comm/tcp_rendezvous.hpp>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace hetero;

namespace {

using boost::asio::ip::address;
using detail::tcp;

/// One process of the job: what it was started with. `before` runs first, with the leader's port; `after` when it
/// failed.
struct start {
  rendezvous_options options;
  std::function<void(std::uint16_t)> before;
  std::function<void()> after;
};

struct gathering {
  std::vector<std::optional<error>> errors;
  std::chrono::steady_clock::duration elapsed{};
};

start rank(std::uint32_t r, std::uint32_t world_size) {
  start s;
  s.options.rank = r;
  s.options.world_size = world_size;
  s.options.timeout = std::chrono::seconds{20};
  return s;
}

/// Starts them all at once, the first of them being the leader; those that join run a barrier together.
gathering gather(std::vector<start> starts) {
  gathering result;
  result.errors.resize(starts.size());
  std::promise<std::uint16_t> listening;
  const std::shared_future<std::uint16_t> port = listening.get_future().share();
  starts[0].options.on_listening = [&](std::uint16_t p) { listening.set_value(p); };
  const auto begin = std::chrono::steady_clock::now();
  detail::run_threads(
      static_cast<std::uint32_t>(starts.size()),
      [&](std::uint32_t i) {
        start& s = starts[i];
        if (s.options.ports.empty()) s.options.ports = {i == 0 ? std::uint16_t{0} : port.get()};
        if (s.before) s.before(port.get());
        try {
          world w{tcp_rendezvous(s.options)};
          w.barrier();
        } catch (const error& e) {
          result.errors[i].emplace(e);
          if (s.after) s.after();
        }
      },
      [](std::uint32_t, const std::exception_ptr&) {});
  result.elapsed = std::chrono::steady_clock::now() - begin;
  return result;
}

void require_success(const gathering& g) {
  for (const auto& e : g.errors) {
    INFO((e ? e->what() : ""));
    REQUIRE_FALSE(e.has_value());
  }
}

/// Each rank holds an error of this code whose text has each of the words, within a second.
void require_failure(const gathering& g, errc code, const std::vector<std::string>& words) {
  for (const auto& e : g.errors) {
    REQUIRE(e.has_value());
    INFO(e->what());
    REQUIRE(e->code() == code);
    for (const auto& word : words) REQUIRE_THAT(e->what(), ContainsSubstring(word));
  }
  REQUIRE(g.elapsed < std::chrono::seconds{conformance::patience});
}

/// A connection of somebody who is no rank.
struct stranger {
  explicit stranger(std::uint16_t port, const std::string& says = {}) {
    socket.connect({address::from_string("127.0.0.1"), port});
    if (!says.empty()) boost::asio::write(socket, boost::asio::buffer(says));
  }
  boost::asio::io_context context;
  tcp::socket socket{context};
};

}  // namespace

TEST_CASE("ranks find each other by address, by name and over IPv6", "[comm]") {
  const std::string host =
      GENERATE(std::string{"127.0.0.1"}, std::string{"localhost"}, std::string{"::1"}, std::string{"[::1]"});
  std::vector<start> starts{rank(0, 3), rank(1, 3), rank(2, 3)};
  for (start& s : starts) s.options.host = host;
  const gathering g = gather(std::move(starts));
  if (host.find("::1") != std::string::npos && g.errors[0] && g.errors[0]->code() == errc::network) {
    WARN("this machine has no IPv6: " << g.errors[0]->what());
    return;
  }
  require_success(g);
}

TEST_CASE("two processes with one rank are named on every rank", "[comm]") {
  require_failure(gather({rank(0, 3), rank(1, 3), rank(1, 3)}), errc::rendezvous,
                  {"two processes claim rank 1: 127.0.0.1:"});
}

TEST_CASE("a second rank 0 is named on every rank", "[comm]") {
  std::vector<start> starts{rank(0, 3), rank(1, 3), rank(0, 3)};
  const gathering g = gather(std::move(starts));
  require_failure(g, errc::rendezvous, {"two processes claim rank 0: the one that listens and 127.0.0.1:"});
}

TEST_CASE("a rank outside the world is named on every rank", "[comm]") {
  require_failure(gather({rank(0, 3), rank(1, 3), rank(7, 3)}), errc::rendezvous,
                  {"rank 7 is outside a world of 3; ranks are 0 to 2"});
}

TEST_CASE("world sizes that differ are both named on every rank", "[comm]") {
  require_failure(gather({rank(0, 3), rank(1, 3), rank(2, 4)}), errc::mismatch,
                  {"rank 2 was started with a world size of 4 and rank 0 with 3"});
}

TEST_CASE("settings that differ are both named on every rank", "[comm]") {
  std::vector<start> starts{rank(0, 3), rank(1, 3), rank(2, 3)};
  for (start& s : starts) s.options.settings = "layers=4";
  SECTION("control: equal settings") { require_success(gather(std::move(starts))); }
  SECTION("short ones") {
    starts[2].options.settings = "layers=6";
    require_failure(gather(std::move(starts)), errc::mismatch, {"rank 0 with 'layers=4' and rank 2 with 'layers=6'"});
  }
  SECTION("long ones that differ at the end") {
    for (start& s : starts) s.options.settings = std::string(10000, 'x');
    starts[2].options.settings.back() = 'y';
    require_failure(gather(std::move(starts)), errc::mismatch, {"different settings"});
  }
}

TEST_CASE("a rank that comes late still hears why there is no world", "[comm]") {
  std::vector<start> starts{rank(0, 4), rank(1, 4), rank(1, 4), rank(3, 4)};
  std::promise<void> refused;
  starts[1].after = [&] { refused.set_value(); };
  starts[3].before = [&](std::uint16_t) { refused.get_future().wait(); };
  require_failure(gather(std::move(starts)), errc::rendezvous, {"two processes claim rank 1"});
}

TEST_CASE("a refusal is for the ranks of its own job", "[comm]") {
  std::vector<start> starts{rank(0, 4), rank(1, 4), rank(1, 4), rank(2, 4)};
  std::promise<void> refused;
  starts[1].after = [&] { refused.set_value(); };
  starts[3].before = [&](std::uint16_t) { refused.get_future().wait(); };
  starts[3].options.job = "another";
  starts[3].options.timeout = std::chrono::milliseconds{100};
  const gathering g = gather(std::move(starts));
  REQUIRE_THAT(g.errors[0]->what(), ContainsSubstring("two processes claim rank 1"));
  REQUIRE_THAT(g.errors[3]->what(), ContainsSubstring("the leader of another job listens there"));
}

TEST_CASE("a missing rank is named on all others at the deadline", "[comm]") {
  std::vector<start> starts{rank(0, 5), rank(1, 5), rank(3, 5)};
  for (start& s : starts) s.options.timeout = std::chrono::milliseconds{300};
  const gathering g = gather(std::move(starts));
  require_failure(g, errc::rendezvous, {"after 300 ms ranks 2, 4 of 5 have not come"});
  REQUIRE(g.elapsed >= std::chrono::milliseconds{300});
}

TEST_CASE("a leader that is not there is an error with its address", "[comm]") {
  start s = rank(1, 2);
  s.options.ports = {1};
  s.options.timeout = std::chrono::milliseconds{200};
  const gathering g = gather({s});
  require_failure(g, errc::rendezvous, {"rank 1 did not find rank 0 within 200 ms", "127.0.0.1:1: Connection refused"});
}

TEST_CASE("another protocol version is refused with both versions", "[comm]") {
  std::string reply;
  std::jthread other;
  rendezvous_options options = rank(0, 2).options;
  options.ports = {0};
  options.on_listening = [&](std::uint16_t port) {
    other = std::jthread{[port, &reply] {
      detail::rendezvous_prefix hello;
      hello.version = detail::protocol_version + 1;
      stranger s{port, {reinterpret_cast<const char*>(&hello), sizeof hello}};
      boost::system::error_code ec;
      boost::asio::read(s.socket, boost::asio::dynamic_buffer(reply), ec);
    }};
  };
  REQUIRE_THROWS_WITH(
      (void)tcp_rendezvous(options),
      ContainsSubstring("mismatch") && ContainsSubstring("speaks rendezvous protocol 3 and rank 0 protocol 2"));
  other.join();
  REQUIRE_THAT(reply, ContainsSubstring("speaks rendezvous protocol 3 and rank 0 protocol 2"));
}

TEST_CASE("strangers do not disturb a rendezvous", "[comm]") {
  std::vector<std::unique_ptr<stranger>> strangers;
  std::vector<start> starts{rank(0, 3), rank(1, 3), rank(2, 3)};
  starts[1].before = [&](std::uint16_t port) {
    for (const std::string& says :
         {std::string{"GET / HTTP/1.1\r\n\r\n"}, std::string{}, std::string{"h"}, std::string{"hetero\r\n"},
          std::string(100, '\0'), std::string("hetero\r\n\1\0\0\0\0\0\0\0\xff\xff\xff\xff\0\0\0\0", 24)}) {
      strangers.push_back(std::make_unique<stranger>(port, says));
    }
    for (int i = 0; i < 100; ++i) strangers.push_back(std::make_unique<stranger>(port));  // more than are kept
  };
  const gathering g = gather(std::move(starts));
  require_success(g);
  REQUIRE(g.elapsed < std::chrono::seconds{conformance::patience});
}

TEST_CASE("ranks of another job are sent away without harm", "[comm]") {
  std::vector<start> starts{rank(0, 2), rank(1, 2), rank(1, 2)};
  starts[0].options.job = starts[1].options.job = "mine";
  starts[2].options.job = "theirs";
  starts[2].options.timeout = std::chrono::milliseconds{200};
  const gathering g = gather(std::move(starts));
  REQUIRE_FALSE(g.errors[0].has_value());
  REQUIRE_FALSE(g.errors[1].has_value());
  REQUIRE(g.errors[2]->code() == errc::rendezvous);
}

TEST_CASE("a port that another program holds", "[comm]") {
  boost::asio::io_context context;
  tcp::acceptor other{context, {address::from_string("127.0.0.1"), 0}};
  start s = rank(0, 2);
  SECTION("is an error that says what to set") {
    std::jthread answers_and_closes{[&] {
      tcp::socket socket{context};
      boost::system::error_code ec;
      other.accept(socket, ec);
    }};
    s.options.ports = {other.local_endpoint().port()};
    require_failure(gather({s}), errc::rendezvous,
                    {"Address already in use", "another program has port " + std::to_string(s.options.ports[0]),
                     "set MASTER_PORT to a free one"});
  }
  SECTION("is passed over when there are more to try") {
    std::vector<start> starts{rank(0, 2), rank(1, 2)};
    starts[0].options.ports = {other.local_endpoint().port(), 0};
    require_success(gather(std::move(starts)));
  }
}

TEST_CASE("an address that other machines reach needs permission", "[comm]") {
  for (const std::uint32_t r : {0U, 1U}) {
    start s = rank(r, 2);
    s.options.host = "192.0.2.77";
    s.options.ports = {r == 0 ? std::uint16_t{0} : std::uint16_t{1}};
    s.options.timeout = std::chrono::milliseconds{200};
    require_failure(gather({s}), errc::unauthenticated, {"192.0.2.77", "allow_unauthenticated"});
    s.options.allow_unauthenticated = true;  // control: now it is a matter of reaching it
    const gathering g = gather({s});
    require_failure(g, errc::rendezvous,
                    {r == 0 ? "is 192.0.2.77, which no interface of rank 0's host has" : "192.0.2.77:1: "});
  }
  start s = rank(1, 2);
  s.options.host = "no-such-host.invalid";
  s.options.ports = {1};
  require_failure(gather({s}), errc::network, {"no-such-host.invalid", "set MASTER_ADDR"});
}

TEST_CASE("a world has as many connections as rank 0 says", "[comm]") {
  constexpr std::uint32_t ranks = 5;
  std::promise<std::uint16_t> listening;
  const std::shared_future<std::uint16_t> port = listening.get_future().share();
  boost::asio::io_context context;
  std::vector<detail::rendezvous_result> results(ranks);
  detail::run_threads(
      ranks,
      [&](std::uint32_t r) {
        rendezvous_options options = rank(r, ranks).options;
        options.on_listening = [&](std::uint16_t p) { listening.set_value(p); };
        options.ports = {r == 0 ? std::uint16_t{0} : port.get()};
        options.streams = r == 0 ? 3 : 7;
        options.local_streams = r == 0 ? 2 : 7;
        options.host_id = r < 2 ? 100 : 200 + r / 4;  // hosts of ranks {0, 1}, {2, 3}, {4}
        results[r] = detail::gather_ranks(context, options);
      },
      [](std::uint32_t, const std::exception_ptr&) {});
  const std::vector<std::uint64_t> hosts{100, 100, 200, 200, 201};
  for (std::uint32_t a = 0; a < ranks; ++a) {
    REQUIRE(results[a].host_ids == hosts);
    REQUIRE(results[a].token == results[0].token);
    for (std::uint32_t b = 0; b < ranks; ++b) {
      INFO(a << " and " << b);
      const std::size_t expected = a == b ? 0 : hosts[a] == hosts[b] ? 2 : 3;
      REQUIRE(results[a].streams[b].size() == expected);
      for (std::size_t s = 0; s < expected; ++s) {
        // The same number means the same connection on both sides.
        boost::system::error_code ec;
        const auto near = results[a].streams[b][s].get().local_endpoint(ec);
        REQUIRE(results[b].streams[a][s].get().remote_endpoint(ec) == near);
      }
    }
  }
}

TEST_CASE("ranks of one host know that they are", "[comm]") {
  REQUIRE(detail::host_id() != 0);
  REQUIRE(detail::host_id() == detail::host_id());
}

TEST_CASE("numbers of connections that make no sense are refused", "[comm]") {
  for (const std::uint32_t streams : {0U, 65U}) {
    start s = rank(0, 2);
    s.options.ports = {0};
    s.options.streams = streams;
    require_failure(gather({s}), errc::rendezvous, {"1 to 64 connections, not " + std::to_string(streams)});
  }
}

TEST_CASE("a port file tells where rank 0 is", "[comm]") {
  const test::temp_dir folder;
  const std::string path = (folder / "port").string();
  std::vector<start> starts{rank(0, 3), rank(1, 3), rank(2, 3)};
  for (start& s : starts) {
    s.options.port_file = path;
    s.options.ports = {0};
  }
  boost::asio::io_context context;
  tcp::acceptor other{context, {address::from_string("127.0.0.1"), 0}};
  SECTION("that appears while the others wait") {}
  SECTION("in place of one that an earlier run left behind") {
    SECTION("where nobody listens any more") { std::ofstream{path} << "127.0.0.1:1\nrun 0\n"; }
    SECTION("of a host that is gone") { std::ofstream{path} << "no-such-host.invalid:1\nrun 0\n"; }
    SECTION("where another program listens and says nothing") {
      std::ofstream{path} << "127.0.0.1:" << other.local_endpoint().port() << "\nrun 0\n";
    }
    SECTION("that is no port file") { std::ofstream{path} << "something else\n"; }
    SECTION("that was not written to its end") { std::ofstream{path} << "127.0.0.1:77\n"; }
  }
  require_success(gather(std::move(starts)));
  REQUIRE_FALSE(std::filesystem::exists(path));
  REQUIRE(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("the leader of another run that has an old port by now sends ranks away", "[comm]") {
  const test::temp_dir folder;
  const std::string path = (folder / "port").string();
  start s = rank(1, 2);
  s.options.port_file = path;
  s.options.timeout = std::chrono::milliseconds{300};
  std::vector<start> others{rank(0, 2), rank(1, 2)};
  others[1].before = [&](std::uint16_t port) {
    std::ofstream{path} << "127.0.0.1:" << port << "\nrun 0\n";
    require_failure(gather({s}), errc::rendezvous, {"the leader of another job listens there", "HETERO_PORT_FILE"});
  };
  require_success(gather(std::move(others)));
}

TEST_CASE("a port file that is missing or cannot be written is named", "[comm]") {
  const test::temp_dir folder;
  start s = rank(1, 2);
  s.options.port_file = (folder / "nobody").string();
  s.options.timeout = std::chrono::milliseconds{200};
  require_failure(gather({s}), errc::rendezvous, {"the port file '" + s.options.port_file + "': is not there yet"});
  s = rank(0, 2);
  s.options.ports = {0};
  s.options.port_file = (folder / "no folder" / "port").string();
  require_failure(gather({s}), errc::io, {"cannot write the port file", "no folder"});
}

TEST_CASE("a rank that hides from other hosts may stay on its own", "[comm]") {
  // Control of the refusal across hosts: nobody is remote, so the one without permission is no obstacle.
  std::vector<start> starts{rank(0, 3), rank(1, 3), rank(2, 3)};
  starts[0].options.allow_unauthenticated = starts[2].options.allow_unauthenticated = true;
  require_success(gather(std::move(starts)));
}

TEST_CASE("an own address that is not loopback works with permission", "[comm]") {
  std::string own;
  for (const auto& i : detail::interface_addresses()) {
    if (!i.address.is_loopback() && i.address.is_v4()) own = i.address.to_string();
  }
  if (own.empty()) {
    WARN("this machine has no address but loopback: not checked");
    return;
  }
  std::vector<start> starts{rank(0, 3), rank(1, 3), rank(2, 3)};
  for (start& s : starts) {
    s.options.host = own;
    s.options.allow_unauthenticated = true;
  }
  SECTION("for all") {}
  SECTION("beside loopback") { starts[1].options.host = "127.0.0.1"; }
  SECTION("beside loopback of the other family") { starts[2].options.host = "::1"; }
  require_success(gather(std::move(starts)));
}

TEST_CASE("a rank that hides from others is named on every rank", "[comm]") {
  std::string own;
  for (const auto& i : detail::interface_addresses()) {
    if (!i.address.is_loopback() && i.address.is_v4()) own = i.address.to_string();
  }
  if (own.empty()) {
    WARN("this machine has no address but loopback: not checked");
    return;
  }
  std::vector<start> starts{rank(0, 3), rank(1, 3), rank(2, 3)};
  for (start& s : starts) s.options.allow_unauthenticated = true;
  starts[1].options.allow_unauthenticated = false;
  starts[2].options.host = own;
  require_failure(gather(std::move(starts)), errc::unauthenticated,
                  {"rank 1 accepts connections of its own host only, and rank 2 comes from " + own});
}
