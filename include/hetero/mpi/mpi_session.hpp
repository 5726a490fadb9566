// SPDX-License-Identifier: Apache-2.0
#pragma once

// The C++ interface that old MPI headers bring is not used.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <string>

#include <hetero/core/error.hpp>

namespace hetero {

namespace detail {

/// @throws error network, with MPI's own words
inline void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  if (MPI_Error_string(result, text.data(), &length) != MPI_SUCCESS) length = 0;
  text.resize(static_cast<std::size_t>(length));
  throw error{errc::network, std::string{call} + " failed: " + text};
}

[[nodiscard]] inline bool mpi_is_up() noexcept {
  int begun = 0;
  int ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  return begun != 0 && ended == 0;
}

}  // namespace detail

/// Keeps MPI initialised while it lives, for programs that do not do it themselves. Where somebody has initialised MPI
/// already it does nothing, now and at its end. Must outlive every `mpi_communicator`.
class mpi_session {
 public:
  /// @throws error network when MPI cannot start; unsupported when it was started and ended before
  mpi_session() {
    int begun = 0;
    int ended = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    require(ended == 0, errc::unsupported, "MPI was finalised and cannot start again in this process");
    if (begun != 0) return;
    int provided = MPI_THREAD_SINGLE;
    detail::check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    owns_ = true;
  }
  ~mpi_session() {
    if (owns_ && detail::mpi_is_up()) MPI_Finalize();
  }
  mpi_session(const mpi_session&) = delete;
  mpi_session& operator=(const mpi_session&) = delete;

 private:
  bool owns_ = false;
};

}  // namespace hetero
