# SPDX-License-Identifier: Apache-2.0
# Defaults that only hold when hetero itself is being built: a project that adds us keeps its own.

get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(NOT multi_config AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# Every program lies in one folder, so that ones which start each other find each other.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  find_program(HETERO_CCACHE ccache)
  mark_as_advanced(HETERO_CCACHE)
  if(HETERO_CCACHE)
    # base_dir and hash_dir: a fresh clone in another folder (what CI builds) hits what was compiled here before.
    # The sloppiness is what ccache asks for before it will cache a file that uses a precompiled header.
    set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env
      "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
      "${HETERO_CCACHE}")
  endif()
endif()
