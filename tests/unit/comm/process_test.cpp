// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include "conformance/communicator.hpp"

#include <hetero/comm/join.hpp>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

using namespace hetero;

extern char** environ;

namespace {

constexpr const char* child_test = "one rank of a job of processes";

/// A process that runs this executable's hidden test, or another command. Killed when the object goes.
class child {
 public:
  child(std::vector<std::string> arguments, const std::vector<std::string>& variables) {
    std::vector<std::string> environment = variables;
    for (char** v = environ; *v != nullptr; ++v) environment.emplace_back(*v);
    std::vector<char*> argv;
    std::vector<char*> envp;
    for (std::string& a : arguments) argv.push_back(a.data());
    for (std::string& v : environment) envp.push_back(v.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    REQUIRE(::posix_spawnp(&pid_, arguments[0].c_str(), nullptr, nullptr, argv.data(), envp.data()) == 0);
  }
  child(child&& other) noexcept : pid_{std::exchange(other.pid_, 0)} {}
  ~child() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  /// The exit status; negative for the signal that ended it.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t pid_ = 0;
};

std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

child start_rank(std::uint32_t rank, std::uint32_t ranks, std::uint16_t port, const std::string& role) {
  return child{{this_program(), child_test},
               {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(ranks), "MASTER_ADDR=127.0.0.1",
                "MASTER_PORT=" + std::to_string(port), "HETERO_TEST_ROLE=" + role}};
}

void sums(world& w, std::size_t count) {
  std::vector<float> values(count, static_cast<float>(conformance::number_of(w) + 1));
  w.all_reduce(tensor_view{std::span{values}}, reduce_op::sum);
  const auto n = static_cast<float>(w.world_size());
  for (const float v : values) conformance::expect(v == n * (n + 1) / 2, "sum over processes");
}

/// What every rank of a job does; rank 1 plays the part.
void play(world& w, const std::string& role) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{500000}}) sums(w, count);
  if (role == "sum") return;
  if (w.rank() == rank_id{1}) {
    if (role == "die") ::raise(SIGKILL);
    if (role == "leave") return;
    if (role == "wrong count") return sums(w, 7);
  }
  for (int i = 0; i < 1000000; ++i) sums(w, 100000);
}

/// Rank 0 is this process, the others are children. What rank 0 met, and after how long.
struct job_result {
  std::optional<error> met;
  double seconds = 0;
  std::vector<int> exits;
};

job_result run_job(std::uint32_t ranks, const std::string& role) {
  job_result result;
  std::vector<child> children;
  rendezvous_options options;
  options.world_size = ranks;
  options.ports = {0};
  options.on_listening = [&](std::uint16_t port) {
    for (std::uint32_t r = 1; r < ranks; ++r) children.push_back(start_rank(r, ranks, port, role));
  };
  {
    world w{tcp_rendezvous(options)};
    const auto start = std::chrono::steady_clock::now();
    try {
      play(w, role);
    } catch (const error& e) {
      result.met.emplace(e);
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  for (child& c : children) result.exits.push_back(c.wait());
  return result;
}

}  // namespace

TEST_CASE("one rank of a job of processes", "[.child]") {
  const char* const role = std::getenv("HETERO_TEST_ROLE");
  if (role == nullptr) return;           // chosen by a tag, not started by run_job
  world w = join({.self_test = false});  // rank 0 does not come through join
  const std::string part = role;
  if (part == "sum") {
    REQUIRE_NOTHROW(play(w, part));
    return;
  }
  try {
    play(w, part);
  } catch (const error& e) {
    INFO(e.what());
    REQUIRE(e.code() == (part == "wrong count" ? errc::mismatch : errc::peer_lost));
    REQUIRE_THAT(e.what(), ContainsSubstring("rank 1 "));
  }
}

TEST_CASE("processes form a world", "[comm]") {
  const job_result job = run_job(3, "sum");
  REQUIRE_FALSE(job.met.has_value());
  REQUIRE(job.exits == std::vector{0, 0});
}

TEST_CASE("a killed process is seen by all others, soon and by name", "[comm]") {
  const job_result job = run_job(3, "die");
  REQUIRE(job.met.has_value());
  INFO(job.met->what());
  REQUIRE(job.met->code() == errc::peer_lost);
  REQUIRE_THAT(job.met->what(), ContainsSubstring("rank 1 ") && ContainsSubstring("in all_reduce(sum) of 100000 f32"));
  REQUIRE(job.seconds < conformance::patience);
  REQUIRE(job.exits == std::vector{-SIGKILL, 0});
}

TEST_CASE("a process that leaves in good order is told from one that died", "[comm]") {
  const job_result job = run_job(3, "leave");
  REQUIRE(job.met.has_value());
  REQUIRE(job.met->code() == errc::peer_lost);
  REQUIRE_THAT(job.met->what(), ContainsSubstring("rank 1 left the world"));
  REQUIRE(job.exits == std::vector{0, 0});
}

TEST_CASE("a process that reduces another count stops all of them", "[comm]") {
  const job_result job = run_job(3, "wrong count");
  REQUIRE(job.met.has_value());
  REQUIRE(job.met->code() == errc::mismatch);
  REQUIRE_THAT(job.met->what(), ContainsSubstring("of 7 f32") && ContainsSubstring("of 100000 f32"));
  REQUIRE(job.exits == std::vector{0, 0});
}

TEST_CASE("mpirun starts a world without further settings", "[comm]") {
  if (std::system("command -v mpirun > /dev/null 2>&1") != 0) {
    WARN("mpirun is not installed: not checked");
    return;
  }
  child launcher{{"mpirun", "-n", "3", "--oversubscribe", this_program(), child_test},
                 {"HETERO_TEST_ROLE=sum", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}};
  REQUIRE(launcher.wait() == 0);
}

TEST_CASE("nobody said anything: alone", "[comm]") {
  world w = join();
  REQUIRE(w.world_size() == 1);
}
