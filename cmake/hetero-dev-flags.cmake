# SPDX-License-Identifier: Apache-2.0
# hetero_dev_flags: what our own examples, benchmarks and tests are compiled with. Never exported: a program that uses
# hetero chooses its own warnings and instruction set.

add_library(hetero_dev_flags INTERFACE)
# Not under a sanitizer: oneDNN brings an OpenMP that is not instrumented.
if(TARGET hetero::onednn AND NOT HETERO_SANITIZE)
  target_link_libraries(hetero_dev_flags INTERFACE hetero::onednn)
endif()

if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options(hetero_dev_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow)
  if(HETERO_WERROR)
    target_compile_options(hetero_dev_flags INTERFACE -Werror)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(hetero_dev_flags INTERFACE -fcolor-diagnostics)
  else()
    # GCC 12 reports false positives of these three through inlined std::vector and std::string.
    target_compile_options(hetero_dev_flags INTERFACE
      -fdiagnostics-color=always -Wno-array-bounds -Wno-stringop-overflow -Wno-restrict)
  endif()
endif()

if(HETERO_SANITIZE)
  target_compile_options(hetero_dev_flags INTERFACE
    -fsanitize=${HETERO_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(hetero_dev_flags INTERFACE -fsanitize=${HETERO_SANITIZE})
endif()

# The level is detected here and named, instead of -march=native: that flag means another instruction set on another
# processor, so a compiler cache shared between machines would hand out programs that die of an illegal instruction.
if(HETERO_NATIVE AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$"
   AND NOT CMAKE_CROSSCOMPILING)
  if(NOT DEFINED HETERO_X86_64_LEVEL)
    set(probe "${PROJECT_BINARY_DIR}/CMakeFiles/hetero-x86-64-level.cpp")
    file(WRITE "${probe}" [[
#include <cstdio>
int main() {
  __builtin_cpu_init();
  int level = 1;
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("popcnt")) level = 2;
  if (level == 2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
      __builtin_cpu_supports("bmi2"))
    level = 3;
  if (level == 3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    level = 4;
  std::printf("%d", level);
}
]])
    try_run(probe_exit probe_compiled
      "${PROJECT_BINARY_DIR}/CMakeFiles/hetero-x86-64-level" "${probe}"
      RUN_OUTPUT_VARIABLE probe_level)
    if(NOT probe_compiled OR NOT probe_exit EQUAL 0)
      set(probe_level 1)
    endif()
    set(HETERO_X86_64_LEVEL "${probe_level}" CACHE STRING "x86-64 level our own programs are compiled for (1 to 4)")
    message(STATUS "hetero: this processor has x86-64 level ${HETERO_X86_64_LEVEL}")
  endif()
  if(HETERO_X86_64_LEVEL GREATER 2 AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
     AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12.3)
    # GCC 12.0 to 12.2 turn some 32-byte constants, such as the elements of std::vector<std::size_t>{1, 1, 0, 0}, into
    # a broadcast of their first 8 bytes when they copy in pieces wider than 16 bytes (fixed in 12.3).
    target_compile_options(hetero_dev_flags INTERFACE -mmove-max=128 -mstore-max=128)
  endif()
  if(HETERO_X86_64_LEVEL GREATER 1)
    target_compile_options(hetero_dev_flags INTERFACE -march=x86-64-v${HETERO_X86_64_LEVEL})
  endif()
  if(HETERO_X86_64_LEVEL EQUAL 4)
    # Compilers prefer 256-bit vectors for the sake of older processors that slow down with wider ones.
    target_compile_options(hetero_dev_flags INTERFACE -mprefer-vector-width=512)
  endif()
endif()
