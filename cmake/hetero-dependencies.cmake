# SPDX-License-Identifier: Apache-2.0
# What a program that includes hetero needs, in one place: the build reads this file, and so does the installed
# package. Nothing here is downloaded.
#
# Sets hetero_MISSING to a list of sentences, one per dependency that was not found and how to get it; empty means all
# were found. Creates the imported target hetero::cblas (a BLAS library together with the directory of its C header).

set(hetero_MISSING "")

# find_package(... GLOBAL) is new in CMake 3.24; it lets a parent project of add_subdirectory(hetero) see the targets.
find_package(Threads QUIET GLOBAL)
if(NOT TARGET Threads::Threads)
  list(APPEND hetero_MISSING "threads: this toolchain has none that CMake can find")
endif()

if(NOT TARGET Boost::headers)
  # Boost 1.70 and newer bring their own package file; FindBoost, which CMake removed, is the way for older trees.
  find_package(Boost 1.74 QUIET CONFIG GLOBAL)
  if(NOT TARGET Boost::headers)
    find_package(Boost 1.74 QUIET GLOBAL)
  endif()
endif()
if(NOT TARGET Boost::headers)
  list(APPEND hetero_MISSING "Boost headers 1.74 or newer (Asio, Interprocess): apt install libboost-dev, or set Boost_ROOT")
endif()

if(NOT TARGET fmt::fmt)
  find_package(fmt QUIET CONFIG GLOBAL)
endif()
if(NOT TARGET fmt::fmt)
  list(APPEND hetero_MISSING "{fmt}: apt install libfmt-dev, or set fmt_ROOT")
endif()

if(NOT TARGET nlohmann_json::nlohmann_json)
  find_package(nlohmann_json QUIET CONFIG GLOBAL)
endif()
if(NOT TARGET nlohmann_json::nlohmann_json)
  list(APPEND hetero_MISSING "nlohmann-json: apt install nlohmann-json3-dev, or set nlohmann_json_ROOT")
endif()

if(NOT TARGET hetero::cblas)
  # OpenBLAS unless the user named another (BLA_VENDOR), and whatever BLAS there is if OpenBLAS is absent. The variable
  # is put back: FindBLAS reads it, and another find_package(BLAS) of the including project must not see our choice.
  set(_hetero_bla_vendor "${BLA_VENDOR}")
  if(NOT BLA_VENDOR)
    set(BLA_VENDOR OpenBLAS)
    find_package(BLAS QUIET)
    if(NOT BLAS_FOUND)
      set(BLA_VENDOR All)
    endif()
  endif()
  if(NOT BLAS_FOUND)
    find_package(BLAS QUIET)
  endif()
  if(_hetero_bla_vendor STREQUAL "")
    unset(BLA_VENDOR)
  else()
    set(BLA_VENDOR "${_hetero_bla_vendor}")
  endif()
  unset(_hetero_bla_vendor)

  find_path(HETERO_CBLAS_INCLUDE_DIR NAMES cblas.h
    PATH_SUFFIXES openblas openblas-pthread flexiblas blis mkl
    DOC "Directory of cblas.h")
  mark_as_advanced(HETERO_CBLAS_INCLUDE_DIR)

  if(BLAS_FOUND AND HETERO_CBLAS_INCLUDE_DIR)
    include(CheckCXXSourceCompiles)
    include(CMakePushCheckState)
    cmake_push_check_state(RESET)
    set(CMAKE_REQUIRED_QUIET ON)
    set(CMAKE_REQUIRED_INCLUDES "${HETERO_CBLAS_INCLUDE_DIR}")
    set(CMAKE_REQUIRED_LIBRARIES BLAS::BLAS Threads::Threads)
    set(_hetero_cblas_source "#include <cblas.h>\nint main() { return static_cast<int>(cblas_sasum(0, nullptr, 1)); }")
    check_cxx_source_compiles("${_hetero_cblas_source}" HETERO_BLAS_HAS_CBLAS)
    set(_hetero_cblas_libraries BLAS::BLAS)
    if(NOT HETERO_BLAS_HAS_CBLAS)
      # The reference BLAS keeps its C interface in a library of its own.
      find_library(HETERO_CBLAS_LIBRARY NAMES cblas)
      mark_as_advanced(HETERO_CBLAS_LIBRARY)
      if(HETERO_CBLAS_LIBRARY)
        set(CMAKE_REQUIRED_LIBRARIES "${HETERO_CBLAS_LIBRARY}" BLAS::BLAS Threads::Threads)
        check_cxx_source_compiles("${_hetero_cblas_source}" HETERO_SEPARATE_CBLAS_WORKS)
        list(PREPEND _hetero_cblas_libraries "${HETERO_CBLAS_LIBRARY}")
      endif()
    endif()
    cmake_pop_check_state()
    unset(_hetero_cblas_source)
    if(HETERO_BLAS_HAS_CBLAS OR HETERO_SEPARATE_CBLAS_WORKS)
      add_library(hetero::cblas INTERFACE IMPORTED GLOBAL)
      set_target_properties(hetero::cblas PROPERTIES
        INTERFACE_LINK_LIBRARIES "${_hetero_cblas_libraries}"
        INTERFACE_INCLUDE_DIRECTORIES "${HETERO_CBLAS_INCLUDE_DIR}")
      # FindBLAS has no GLOBAL of its own in 3.25: its target is promoted so that a parent project can link ours.
      get_target_property(_hetero_blas_is_global BLAS::BLAS IMPORTED_GLOBAL)
      if(NOT _hetero_blas_is_global)
        set_target_properties(BLAS::BLAS PROPERTIES IMPORTED_GLOBAL TRUE)
      endif()
      unset(_hetero_blas_is_global)
    endif()
    unset(_hetero_cblas_libraries)
  endif()
endif()
if(NOT TARGET hetero::cblas)
  list(APPEND hetero_MISSING
    "CBLAS (a BLAS library and cblas.h): apt install libopenblas-dev, or set BLA_VENDOR and HETERO_CBLAS_INCLUDE_DIR")
endif()

# --- optional: each behind a target of its own, so that nobody pays for what he does not use -----------------------------

# hetero::zlib, for <hetero/data/idx_images.hpp> and <hetero/data/gzip_file.hpp>: reads compressed data sets.
if(NOT TARGET hetero::zlib)
  find_package(ZLIB QUIET GLOBAL)
  if(TARGET ZLIB::ZLIB)
    add_library(hetero::zlib INTERFACE IMPORTED GLOBAL)
    set_target_properties(hetero::zlib PROPERTIES INTERFACE_LINK_LIBRARIES ZLIB::ZLIB)
  endif()
endif()

# hetero::onednn: programs that link it multiply f32 matrices through oneDNN instead of CBLAS. The headers refer to it
# weakly, so the linker must be told to keep the library.
if(NOT TARGET hetero::onednn)
  find_package(dnnl QUIET CONFIG GLOBAL)
  if(TARGET DNNL::dnnl)
    add_library(hetero::onednn INTERFACE IMPORTED GLOBAL)
    set_target_properties(hetero::onednn PROPERTIES
      INTERFACE_LINK_LIBRARIES "-Wl,--push-state,--no-as-needed;DNNL::dnnl;-Wl,--pop-state")
  endif()
endif()
