# SPDX-License-Identifier: Apache-2.0
# hetero::mpi, for <hetero/mpi/mpi_communicator.hpp>: a world whose messages an MPI library carries. The build reads this
# file when HETERO_MPI is on, the installed package when the component `mpi` is asked for; nobody else looks for MPI.
# Creates no target when there is none.

if(NOT TARGET hetero::mpi)
  if(NOT TARGET MPI::MPI_CXX)
    set(_hetero_skip_mpicxx "${MPI_CXX_SKIP_MPICXX}")
    set(MPI_CXX_SKIP_MPICXX ON)  # the C interface is all we use
    find_package(MPI QUIET GLOBAL COMPONENTS CXX)
    set(MPI_CXX_SKIP_MPICXX "${_hetero_skip_mpicxx}")
    unset(_hetero_skip_mpicxx)
  endif()
  if(TARGET MPI::MPI_CXX)
    add_library(hetero::mpi INTERFACE IMPORTED GLOBAL)
    set_target_properties(hetero::mpi PROPERTIES INTERFACE_LINK_LIBRARIES "hetero::hetero;MPI::MPI_CXX")
  endif()
endif()
