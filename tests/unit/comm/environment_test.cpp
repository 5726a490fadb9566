// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <hetero/comm/environment.hpp>

#include <map>
#include <set>

using namespace hetero;

namespace {

std::optional<launch_place> place(const std::map<std::string, std::string>& variables) {
  return place_in_environment([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional{found->second};
  });
}

}  // namespace

TEST_CASE("no launcher means alone", "[comm]") {
  REQUIRE_FALSE(place({}).has_value());
  REQUIRE_FALSE(place({{"MASTER_ADDR", "somewhere"}, {"MASTER_PORT", "1"}}).has_value());
}

TEST_CASE("RANK and WORLD_SIZE", "[comm]") {
  const auto p =
      place({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "1234"}});
  REQUIRE(p->rank == 2);
  REQUIRE(p->world_size == 4);
  REQUIRE(p->local_rank == 1);
  REQUIRE(p->host == "::1");
  REQUIRE(p->ports == std::vector<std::uint16_t>{1234});
  const auto defaults = place({{"RANK", "2"}, {"WORLD_SIZE", "4"}});
  REQUIRE(defaults->host == "127.0.0.1");
  REQUIRE(defaults->ports == std::vector{default_master_port});
}

TEST_CASE("Open MPI's variables", "[comm]") {
  const std::map<std::string, std::string> one_host{{"OMPI_COMM_WORLD_RANK", "1"},
                                                    {"OMPI_COMM_WORLD_SIZE", "3"},
                                                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                                                    {"PMIX_NAMESPACE", "9001"}};
  const auto p = place(one_host);
  REQUIRE(p->rank == 1);
  REQUIRE(p->world_size == 3);
  REQUIRE(p->host == "127.0.0.1");
  REQUIRE(p->job == "mpirun 9001");
  REQUIRE(p->ports == place(one_host)->ports);
  REQUIRE(std::set<std::uint16_t>(p->ports.begin(), p->ports.end()).size() > 4);
  auto other_job = one_host;
  other_job["PMIX_NAMESPACE"] = "9002";
  REQUIRE(place(other_job)->ports != p->ports);

  auto two_hosts = one_host;
  two_hosts["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  REQUIRE_THROWS_WITH(place(two_hosts), ContainsSubstring("rendezvous") && ContainsSubstring("set MASTER_ADDR"));
  two_hosts["MASTER_ADDR"] = "10.0.0.1";
  REQUIRE(place(two_hosts)->host == "10.0.0.1");
}

TEST_CASE("a variable that makes no sense is named with its value and what would work", "[comm]") {
  const auto bad = [](const char* rank, const char* size) { return place({{"RANK", rank}, {"WORLD_SIZE", size}}); };
  for (const char* rank : {"abc", "-1", "", " 1", "1 ", "1.5", "0x1", "99999999999999999999"}) {
    REQUIRE_THROWS_WITH(bad(rank, "2"),
                        ContainsSubstring("rendezvous: RANK='" + std::string{rank} + "' is not a whole number from 0"));
  }
  for (const char* size : {"0", "-2", "two", ""}) {
    REQUIRE_THROWS_WITH(bad("0", size),
                        ContainsSubstring("WORLD_SIZE='" + std::string{size} + "' is not a whole number from 1"));
  }
  REQUIRE_THROWS_WITH(place({{"RANK", "0"}}), ContainsSubstring("RANK is set and WORLD_SIZE is not"));
  REQUIRE_THROWS_WITH(place({{"WORLD_SIZE", "2"}}), ContainsSubstring("WORLD_SIZE is set and RANK is not"));
  REQUIRE_THROWS_WITH(place({{"OMPI_COMM_WORLD_RANK", "0"}}), ContainsSubstring("OMPI_COMM_WORLD_SIZE is not"));
  for (const char* port : {"0", "65536", "http"}) {
    REQUIRE_THROWS_WITH(place({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", port}}),
                        ContainsSubstring("MASTER_PORT='"));
  }
  REQUIRE_THROWS_WITH(place({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", ""}}),
                      ContainsSubstring("MASTER_ADDR is empty"));
}
