// SPDX-License-Identifier: Apache-2.0
// Where tests find the project's sources, its other programs and real data sets, however they were started.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <system_error>

namespace hetero::test {

/// The folder this test program lies in; other programs of the build (train_gpt, ...) lie there too.
[[nodiscard]] inline std::filesystem::path program_dir() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

/// The project's source folder: $HETERO_SOURCE_DIR (ctest sets it), else the nearest folder above this program or above
/// the current folder that holds include/hetero. @throws std::runtime_error if there is none.
[[nodiscard]] inline std::filesystem::path source_dir() {
  if (const char* named = std::getenv("HETERO_SOURCE_DIR"); named != nullptr && *named != '\0') return named;
  for (std::filesystem::path start : {program_dir(), std::filesystem::current_path()}) {
    for (; start.has_relative_path(); start = start.parent_path()) {
      std::error_code ignored;
      if (std::filesystem::is_directory(start / "include" / "hetero", ignored)) return start;
    }
  }
  throw std::runtime_error("cannot find the sources of hetero: set HETERO_SOURCE_DIR");
}

/// A file or folder of the data collection, such as `test_data("tinyshakespeare/input.txt")`. The collection is
/// $HETERO_TEST_DATA, else ../shared/data beside the sources. Empty if it is not there: the test then says so with
/// WARN and returns, since a clone of the project alone has no data.
[[nodiscard]] inline std::optional<std::filesystem::path> test_data(const std::filesystem::path& name) {
  const char* named = std::getenv("HETERO_TEST_DATA");
  const std::filesystem::path root = named != nullptr && *named != '\0'
                                         ? std::filesystem::path(named)
                                         : source_dir().parent_path() / "shared" / "data";
  std::error_code ignored;
  if (!std::filesystem::exists(root / name, ignored)) return std::nullopt;
  return root / name;
}

}  // namespace hetero::test
