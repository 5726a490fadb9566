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

TEST_CASE("torchrun's agent keeps MASTER_PORT for itself", "[comm]") {
  std::map<std::string, std::string> variables{{"RANK", "3"},
                                               {"WORLD_SIZE", "4"},
                                               {"LOCAL_RANK", "1"},
                                               {"LOCAL_WORLD_SIZE", "2"},
                                               {"MASTER_ADDR", "head"},
                                               {"MASTER_PORT", "4000"},
                                               {"GROUP_RANK", "1"},
                                               {"TORCHELASTIC_RUN_ID", "none"},
                                               {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  REQUIRE(place(variables)->ports == std::vector<std::uint16_t>{4001});
  REQUIRE(place(variables)->local_world_size == 2);
  REQUIRE(place(variables)->host == "head");
  REQUIRE(place(variables)->job.empty());
  variables["TORCHELASTIC_RUN_ID"] = "run 7";
  REQUIRE(place(variables)->job == "torchrun run 7");
  variables["MASTER_PORT"] = "65535";
  REQUIRE_THROWS_WITH(place(variables), ContainsSubstring("MASTER_PORT='65535' is not a whole number from 1 to 65534"));
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";  // control: the port is rank 0's
  REQUIRE(place(variables)->ports == std::vector<std::uint16_t>{65535});
  // All ranks on one host need no name that other hosts know.
  variables["LOCAL_WORLD_SIZE"] = "4";
  REQUIRE(place(variables)->host == "127.0.0.1");
}

TEST_CASE("the variables of MPICH's mpiexec", "[comm]") {
  std::map<std::string, std::string> variables{
      {"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}, {"PMI_FD", "8"}};
  const auto p = place(variables);
  REQUIRE(p->rank == 2);
  REQUIRE(p->world_size == 3);
  REQUIRE(p->local_rank == 2);
  REQUIRE(p->local_world_size == 3);
  REQUIRE(p->host == "127.0.0.1");
  REQUIRE(p->ports == std::vector{default_master_port});
  variables["PMI_SIZE"] = "6";
  REQUIRE_THROWS_WITH(place(variables), ContainsSubstring("6 ranks and only 3 on this host; set MASTER_ADDR"));
  variables["MASTER_ADDR"] = "head";
  REQUIRE(place(variables)->host == "head");
  variables["MPI_LOCALRANKID"] = "3";
  REQUIRE_THROWS_WITH(place(variables), ContainsSubstring("MPI_LOCALRANKID='3' is not below MPI_LOCALNRANKS='3'"));
}

TEST_CASE("Slurm's variables", "[comm]") {
  std::map<std::string, std::string> step{{"SLURM_JOB_ID", "77"},
                                          {"SLURM_STEP_ID", "1"},
                                          {"SLURM_PROCID", "4"},
                                          {"SLURM_NTASKS", "5"},
                                          {"SLURM_LOCALID", "0"},
                                          {"SLURM_NODEID", "2"},
                                          {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                                          {"SLURM_STEP_NODELIST", "node[003-004],gpu-1"},
                                          {"SLURM_JOB_NODELIST", "node[001-009],gpu-1"}};
  const auto p = place(step);
  REQUIRE(p->rank == 4);
  REQUIRE(p->world_size == 5);
  REQUIRE(p->local_rank == 0);
  REQUIRE(p->local_world_size == 1);
  REQUIRE(p->host == "node003");
  REQUIRE(p->job == "slurm 77.1");
  auto other = step;
  SECTION("another step has other ports") {
    other["SLURM_STEP_ID"] = "2";
    REQUIRE(place(other)->ports != p->ports);
    other["MASTER_PORT"] = "1234";
    REQUIRE(place(other)->ports == std::vector<std::uint16_t>{1234});
  }
  SECTION("one host needs no name") {
    other["SLURM_STEP_NODELIST"] = "node007";
    REQUIRE(place(other)->host == "127.0.0.1");
  }
  SECTION("the size of the step goes before that of the allocation") {
    other["SLURM_STEP_NUM_TASKS"] = "6";
    REQUIRE(place(other)->world_size == 6);
  }
  SECTION("an allocation without a step is one process") {
    for (const char* absent : {"SLURM_STEP_ID", "SLURM_PROCID"}) {
      auto shell = step;
      shell.erase(absent);
      REQUIRE_FALSE(place(shell).has_value());
    }
    for (const char* special : {"4294967291", "4294967290"}) {  // a batch script, an interactive shell
      other["SLURM_STEP_ID"] = special;
      REQUIRE_FALSE(place(other).has_value());
    }
  }
  SECTION("MPI's launchers run inside a step of their own and know better") {
    other.insert({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
    REQUIRE(place(other)->world_size == 2);
    other = step;
    other.insert({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}});
    REQUIRE(place(other)->world_size == 5);  // Slurm's own PMI
    other.insert({{"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "3"}});
    REQUIRE(place(other)->world_size == 3);  // Hydra
    other.insert({{"RANK", "0"}, {"WORLD_SIZE", "7"}});
    REQUIRE(place(other)->world_size == 7);
  }
  SECTION("what makes no sense is named") {
    other["SLURM_STEP_NODELIST"] = "node[3-1]";
    REQUIRE_THROWS_WITH(place(other), ContainsSubstring("SLURM_STEP_NODELIST='node[3-1]' is no list of hosts"));
    other = step;
    other["SLURM_PROCID"] = "-1";
    REQUIRE_THROWS_WITH(place(other), ContainsSubstring("SLURM_PROCID='-1' is not a whole number from 0"));
    other = step;
    other.erase("SLURM_NTASKS");
    REQUIRE_THROWS_WITH(place(other), ContainsSubstring("SLURM_NTASKS is not; start the tasks with srun -n"));
  }
}

TEST_CASE("Slurm's short lists of hosts and tasks", "[comm]") {
  const auto hosts = [](const char* list) { return detail::expand_host_list("LIST", list); };
  using names = std::vector<std::string>;
  REQUIRE(hosts("alone") == names{"alone"});
  REQUIRE(hosts("node[003-005,012],gpu-1") == names{"node003", "node004", "node005", "node012", "gpu-1"});
  REQUIRE(hosts("a[8-11]") == names{"a8", "a9", "a10", "a11"});
  REQUIRE(hosts("r[1-2]n[01-02]-ib,x") == names{"r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib", "x"});
  for (const char* bad : {"", ",", "a,,b", "a[", "a[]", "a]", "a[1-", "a[x]", "a[2-1]", "a[0-99999999]",
                          "a[1-9999][1-9999]", "a[-1]", "a[1-12345678901]"}) {
    INFO(bad);
    REQUIRE_THROWS_WITH(hosts(bad), ContainsSubstring("is no list of hosts") && ContainsSubstring("set MASTER_ADDR"));
  }
  REQUIRE(detail::tasks_on_node("2(x3),1", 2) == 2U);
  REQUIRE(detail::tasks_on_node("2(x3),1", 3) == 1U);
  REQUIRE_FALSE(detail::tasks_on_node("2(x3),1", 4).has_value());
  REQUIRE_FALSE(detail::tasks_on_node("2(xx3)", 0).has_value());
}

TEST_CASE("a port file goes with a port that the system chooses", "[comm]") {
  std::map<std::string, std::string> variables{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"HETERO_PORT_FILE", "/shared/job.port"}};
  REQUIRE(place(variables)->port_file == "/shared/job.port");
  REQUIRE(place(variables)->ports == std::vector<std::uint16_t>{0});
  variables["MASTER_PORT"] = "0";
  REQUIRE(place(variables)->ports == std::vector<std::uint16_t>{0});
  variables["MASTER_PORT"] = "88";
  REQUIRE(place(variables)->ports == std::vector<std::uint16_t>{88});
  variables["HETERO_PORT_FILE"] = "";
  REQUIRE_THROWS_WITH(place(variables), ContainsSubstring("HETERO_PORT_FILE is empty"));
  variables.erase("HETERO_PORT_FILE");
  variables["MASTER_PORT"] = "0";
  REQUIRE_THROWS_WITH(place(variables), ContainsSubstring("MASTER_PORT='0'") && ContainsSubstring("HETERO_PORT_FILE"));
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
  REQUIRE_THROWS_WITH(place({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}}),
                      ContainsSubstring("LOCAL_WORLD_SIZE='3' is more than WORLD_SIZE='2'"));
  REQUIRE_THROWS_WITH(place({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "-1"}}),
                      ContainsSubstring("LOCAL_RANK='-1' is not a whole number"));
  REQUIRE_THROWS_WITH(place({{"PMI_RANK", "-3"}, {"PMI_SIZE", "2"}}), ContainsSubstring("PMI_RANK='-3'"));
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
