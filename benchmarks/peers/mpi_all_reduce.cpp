// SPDX-License-Identifier: Apache-2.0
// One rank of MPI, for benchmarks/collectives. mpirun starts it; --control PATH is its only argument.

#include "../support/rank_server.hpp"

#include <mpi.h>

#include <cstdio>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0, length = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Get_library_version(version, &length);
  std::string label{version};
  label.resize(std::min(label.find(','), label.size()));
  int status = 1;
  try {
    if (argc != 3) throw std::runtime_error{"needs --control PATH"};
    status = hetero::bench::serve_rank(argv[2], static_cast<unsigned>(rank), static_cast<unsigned>(ranks), label,
                                       [](float* data, std::size_t count, const std::string&) {
                                         return [data, count] {
                                           MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT,
                                                         MPI_SUM, MPI_COMM_WORLD);
                                         };
                                       });
  } catch (const std::exception& reason) {
    std::fprintf(stderr, "peer_mpi: %s\n", reason.what());
  }
  MPI_Finalize();
  return status;
}
