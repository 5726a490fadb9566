// SPDX-License-Identifier: Apache-2.0
// Hosts of their own, each a network namespace: what ranks of one machine cannot show.
#include "support/catch.hpp"

#include "support/network_namespaces.hpp"
#include "support/program.hpp"
#include "support/temp_dir.hpp"

#include <hetero/comm/join.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

using namespace hetero;

namespace {

constexpr const char* child_test = "one rank of a world of several hosts";
constexpr const char* port = "29871";  // namespaces have their ports for themselves

/// Ranks behind ports of a network, and what they said.
class hosts {
 public:
  explicit hosts(std::size_t count) : network_{std::vector<double>(count, 0.0)} {}
  ~hosts() {
    std::error_code ignored;
    for (const auto& folder : name_files_) std::filesystem::remove_all(folder, ignored);
    std::filesystem::remove("/etc/netns", ignored);  // only when nobody else has anything there
  }

  [[nodiscard]] const test::network_namespaces& network() const { return network_; }
  [[nodiscard]] std::string address(std::size_t host) const { return network_.address(host); }
  [[nodiscard]] std::string address6(std::size_t host) const { return '[' + network_.address6(host) + ']'; }

  /// Names that programs behind a port know.
  void know(std::size_t host, const std::string& lines) {
    const std::filesystem::path folder = "/etc/netns/" + network_.name(host);
    std::error_code ec;
    do {
      std::filesystem::create_directories(folder, ec);  // another test may remove its parent just now
    } while (ec == std::errc::no_such_file_or_directory);
    name_files_.push_back(folder);
    std::ofstream{folder / "hosts"} << lines;
  }
  /// Runs a shell command behind a port.
  void run(std::size_t host, const std::string& command) const {
    REQUIRE(std::system(("ip netns exec " + network_.name(host) + " sh -c '" + command + "'").c_str()) == 0);
  }

  /// Starts the next rank.
  void start(std::size_t host, std::uint32_t ranks, const std::string& master,
             test::program::environment variables = {}) {
    variables.insert({{"RANK", std::to_string(ranks_.size())},
                      {"WORLD_SIZE", std::to_string(ranks)},
                      {"MASTER_ADDR", master},
                      {"MASTER_PORT", port},
                      {"HETERO_TEST_ROLE", "open"}});
    std::vector<std::string> command = network_.exec(host);
    command.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
    command.emplace_back(child_test);
    ranks_.push_back(std::make_unique<test::program>(command, folder_.path(), variables));
  }

  /// What each rank said at its end.
  std::vector<std::string> outcomes() {
    std::vector<std::string> all;
    for (const auto& rank : ranks_) {
      rank->wait(std::chrono::seconds{30});
      const std::string said = rank->out();
      const std::size_t at = said.find("outcome: ");
      all.push_back(at == std::string::npos ? "nothing; " + said + rank->err()
                                            : said.substr(at, said.find('\n', at) - at));
    }
    return all;
  }
  void require_success() {
    for (const std::string& o : outcomes()) REQUIRE_THAT(o, ContainsSubstring("outcome: sum"));
  }

 private:
  test::temp_dir folder_;
  test::network_namespaces network_;
  std::vector<std::filesystem::path> name_files_;
  std::vector<std::unique_ptr<test::program>> ranks_;
};

/// True when the test cannot run here; it then says why.
bool skipped() {
  const auto why = test::network_namespaces::unavailable();
  if (why) WARN("not checked: " << *why);
  return why.has_value();
}

void require_all(const std::string& text, const std::vector<std::string>& words) {
  for (const auto& word : words) REQUIRE_THAT(text, ContainsSubstring(word));
}

}  // namespace

TEST_CASE("one rank of a world of several hosts", "[.child]") {
  const char* const role = std::getenv("HETERO_TEST_ROLE");
  if (role == nullptr) return;  // chosen by a tag, not started by a test
  const char* const timeout = std::getenv("HETERO_TEST_TIMEOUT_MS");
  try {
    world w = join({.timeout = std::chrono::milliseconds{timeout == nullptr ? 20'000 : std::atoi(timeout)},
                    .allow_unauthenticated = std::string_view{role} == "open"});
    std::vector<float> values(1000, static_cast<float>(index_of(w.rank()) + 1));
    w.all_reduce(tensor_view{std::span{values}}, reduce_op::sum);
    const auto n = static_cast<float>(w.world_size());
    REQUIRE(values.back() == n * (n + 1) / 2);
    std::cout << "\noutcome: sum" << std::endl;
  } catch (const error& e) {
    std::cout << "\noutcome: " << e.what() << std::endl;
  }
}

TEST_CASE("ranks of two hosts meet by address and by name", "[comm]") {
  if (skipped()) return;
  hosts h{2};
  std::string master;
  SECTION("over IPv4") { master = h.address(0); }
  SECTION("over IPv6, in brackets") { master = h.address6(0); }
  SECTION("over IPv6, without brackets") { master = h.network().address6(0); }
  SECTION("by a name that is loopback where rank 0 runs") {
    master = "head";
    h.know(0, "127.0.0.1 localhost\n127.0.1.1 head\n");
    h.know(1, h.address(0) + " head\n");
  }
  SECTION("by a name of two families that rank 0 knows by one") {
    master = "head";
    h.know(0, h.address(0) + " head\n");
    h.know(1, h.network().address6(0) + " head\n");
  }
  SECTION("by a name whose first addresses lead nowhere") {
    master = "head";
    h.know(0, h.address(0) + " head\n");
    h.know(1, "192.0.2.1 head\n10.213.0.99 head\n" + h.address(0) + " head\n");
  }
  for (const std::size_t host : {0U, 1U, 1U}) h.start(host, 3, master);
  h.require_success();
}

TEST_CASE("a rank that found rank 0 over loopback is found by ranks of other hosts", "[comm]") {
  if (skipped()) return;
  hosts h{3};
  const std::string loopback = GENERATE(std::string{"127.0.0.1"}, std::string{"::1"}, std::string{"localhost"});
  h.start(0, 5, h.address(0));
  h.start(0, 5, loopback);
  h.start(1, 5, h.address(0));
  h.start(0, 5, loopback);
  h.start(2, 5, h.address6(0));  // and families may differ
  h.require_success();
}

TEST_CASE("a host without IPv6 uses IPv4 where a name has both", "[comm]") {
  if (skipped()) return;
  hosts h{2};
  const std::size_t without = GENERATE(0U, 1U);
  h.run(without, "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6");
  for (const std::size_t host : {0U, 1U}) {
    h.know(host, h.network().address6(0) + " head\n" + h.address(0) + " head\n");
  }
  h.start(0, 2, "head");
  h.start(1, 2, "head");
  h.require_success();
}

TEST_CASE("IPv6 alone on a host without it is an error that says so", "[comm]") {
  if (skipped()) return;
  hosts h{2};
  for (const std::size_t host : {0U, 1U}) h.run(host, "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6");
  for (const std::size_t host : {0U, 1U}) h.start(host, 2, h.address6(0));
  for (const std::string& o : h.outcomes()) {
    require_all(o, {"outcome: network", h.network().address6(0), "IPv6 is switched off on this host", "IPv4"});
  }
}

TEST_CASE("a wrong port is an error on both sides", "[comm]") {
  if (skipped()) return;
  hosts h{2};
  h.start(0, 2, h.address(0), {{"HETERO_TEST_TIMEOUT_MS", "1000"}});
  h.start(1, 2, h.address(0), {{"HETERO_TEST_TIMEOUT_MS", "1000"}, {"MASTER_PORT", "29870"}});
  const auto o = h.outcomes();
  require_all(o[0], {"outcome: rendezvous", "after 1000 ms rank 1 of 2 has not come"});
  require_all(o[1], {"outcome: rendezvous", h.address(0) + ":29870: Connection refused",
                     "from " + h.address(1) + " on port", "correct MASTER_ADDR and MASTER_PORT"});
}

TEST_CASE("an address that cannot be reached is an error within the deadline", "[comm]") {
  if (skipped()) return;
  hosts h{2};
  std::string nobody;
  std::string how;
  SECTION("in a network that this host is part of") {
    nobody = "10.213.0.99";
    how = "from " + h.address(1) + " on port";
  }
  SECTION("in a network without a route") {
    nobody = "192.0.2.1";
    how = "this host has no route there";
  }
  for (const std::size_t host : {0U, 1U}) h.start(host, 2, nobody, {{"HETERO_TEST_TIMEOUT_MS", "1000"}});
  const auto start = std::chrono::steady_clock::now();
  const auto o = h.outcomes();
  REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds{6});
  require_all(o[0], {"outcome: rendezvous", "is " + nobody + ", which no interface of rank 0's host has"});
  require_all(o[1], {"outcome: rendezvous", "rank 1 did not find rank 0 within 1000 ms", nobody + ":29871: ", how});
}

TEST_CASE("ranks that cannot reach each other are named on every rank", "[comm]") {
  if (skipped()) return;
  hosts h{3};
  h.run(2, "ip route add blackhole " + h.address(1) + "/32");
  for (const std::size_t host : {0U, 1U, 2U}) h.start(host, 3, h.address(0));
  for (const std::string& o : h.outcomes()) {
    require_all(o, {"outcome: network", "rank 2 cannot connect to rank 1 at " + h.address(1), "no route"});
  }
}

TEST_CASE("another host needs permission on every rank", "[comm]") {
  if (skipped()) return;
  hosts h{2};
  const test::program::environment hurried{{"HETERO_TEST_TIMEOUT_MS", "2000"}};
  h.start(0, 3, h.address(0), hurried);
  h.start(1, 3, h.address(0), hurried);
  SECTION("the one that asks for another host") {
    h.start(1, 3, h.address(0), {{"HETERO_TEST_ROLE", "closed"}});
    require_all(h.outcomes()[2], {"outcome: unauthenticated", h.address(0), "allow_unauthenticated"});
  }
  SECTION("the one that stays on its host") {
    h.start(0, 3, "127.0.0.1", {{"HETERO_TEST_ROLE", "closed"}});
    for (const std::string& o : h.outcomes()) {
      require_all(o, {"outcome: unauthenticated", "rank 2 accepts connections of its own host only",
                      "rank 1 comes from " + h.address(1)});
    }
  }
}

TEST_CASE("a port file leads from one host to another", "[comm]") {
  if (skipped()) return;
  hosts h{2};
  const test::temp_dir folder;
  const test::program::environment file{{"HETERO_PORT_FILE", (folder / "port").string()}, {"MASTER_PORT", "0"}};
  // Nobody says where rank 0 is: it writes all its addresses.
  for (const std::size_t host : {0U, 1U, 0U}) h.start(host, 3, "127.0.0.1", file);
  h.require_success();
  REQUIRE(std::filesystem::is_empty(folder.path()));
}
