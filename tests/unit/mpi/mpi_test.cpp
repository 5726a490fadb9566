// SPDX-License-Identifier: Apache-2.0
// ctest: mpi=3 serial
// Runs as every rank of an MPI job: `mpirun -n 3 test_mpi`. Each test case is collective.
#include "support/catch.hpp"

#include "conformance/collective_failures.hpp"
#include "conformance/collectives.hpp"
#include "conformance/communicator.hpp"

#include <hetero/mpi/mpi_communicator.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

using namespace hetero;
using conformance::expect;

namespace {

std::uint32_t job_size() {
  static const mpi_session session;
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return static_cast<std::uint32_t>(size);
}

/// The first `ranks` processes of the job run the body, each on a world of its own making.
void run(std::uint32_t ranks, const std::function<void(world&)>& body) {
  expect(ranks <= job_size(), "the job has that many ranks");
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const bool takes_part = static_cast<std::uint32_t>(rank) < ranks;
  MPI_Comm members = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, takes_part ? 0 : MPI_UNDEFINED, rank, &members);
  if (takes_part) {
    world w = mpi_communicator({.ranks = members});
    try {
      body(w);
    } catch (const std::exception& e) {
      w.abort(e.what());
      MPI_Comm_free(&members);
      throw;
    }
    MPI_Comm_free(&members);
  }
}

}  // namespace

TEST_CASE("ranks of an MPI job behave as a communicator", "[mpi]") {
  for (std::uint32_t ranks = 1; ranks <= job_size(); ++ranks) {
    CAPTURE(ranks);
    REQUIRE_NOTHROW(conformance::check_results<world>(run, ranks));
  }
}

TEST_CASE("collectives over parts in an MPI job", "[mpi]") {
  for (std::uint32_t ranks = 1; ranks <= job_size(); ++ranks) {
    CAPTURE(ranks);
    REQUIRE_NOTHROW(conformance::check_parts<world>(run, ranks));
  }
}

TEST_CASE("failures in an MPI job reach every rank", "[mpi]") {
  for (std::uint32_t ranks = 2; ranks <= job_size(); ++ranks) {
    CAPTURE(ranks);
    REQUIRE_NOTHROW(conformance::check_failures<world>(run, ranks));
    REQUIRE_NOTHROW(conformance::check_part_failures<world>(run, ranks));
  }
}

TEST_CASE("messages of several pieces arrive whole, early ones and ones that are combined too", "[mpi]") {
  const std::uint32_t ranks = job_size();
  if (ranks < 2) return;
  REQUIRE_NOTHROW(run(2, [](world& w) {
    for (const std::size_t count :
         {detail::mpi_piece_bytes / 8 - 1, detail::mpi_piece_bytes / 8, 5 * detail::mpi_piece_bytes / 8 + 3}) {
      std::vector<double> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(i % 1009);
      if (w.rank() == rank_id{0}) {
        w.send(tensor_view{std::span{values}}, rank_id{1});
        int done = 1;
        w.channel("other").send(tensor_view{std::span{&done, 1}}, rank_id{1});
      } else {
        int done = 0;
        w.channel("other").recv(tensor_view{std::span{&done, 1}}, rank_id{0});  // the long one came before it
        std::vector<double> got(count);
        w.recv(tensor_view{std::span{got}}, rank_id{0});
        expect(got == values, "an early message");
      }
      std::vector<double> sum = values;
      w.reduce(tensor_view{std::span{sum}}, reduce_op::sum, rank_id{1});
      if (w.rank() == rank_id{1}) {
        for (std::size_t i = 0; i < count; ++i) expect(sum[i] == 2 * values[i], "a combined message");
      }
    }
  }));
}

TEST_CASE("a session beside a running MPI leaves it running", "[mpi]") {
  (void)job_size();
  { const mpi_session again; }
  int ended = 1;
  MPI_Finalized(&ended);
  REQUIRE(ended == 0);
}

TEST_CASE("joining without the others ends at the deadline", "[mpi]") {
  if (job_size() < 2) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm alone = MPI_COMM_NULL;  // so that the others may come late without harm to later tests
  MPI_Comm_dup(MPI_COMM_WORLD, &alone);
  if (rank == 0) {
    try {
      (void)mpi_communicator({.ranks = alone, .timeout = std::chrono::milliseconds{100}});
      FAIL("must not join");
    } catch (const error& e) {
      REQUIRE(e.code() == errc::timeout);
      REQUIRE_THAT(e.what(), ContainsSubstring("not every rank"));
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}
