// SPDX-License-Identifier: Apache-2.0
// A folder of its own for each test, removed with everything in it when the test ends.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace hetero::test {

class temp_dir {
 public:
  /// Makes a fresh, empty folder under the system's temporary folder. @throws std::system_error if that fails.
  explicit temp_dir(std::string_view name = "test") {
    std::string pattern = (std::filesystem::temp_directory_path() / ("hetero-" + std::string(name) + "-XXXXXX")).string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), "cannot make a temporary folder " + pattern);
    }
    path_ = pattern;
  }

  temp_dir(const temp_dir&) = delete;
  temp_dir& operator=(const temp_dir&) = delete;

  ~temp_dir() {
    std::error_code ignored;  // a folder that cannot be removed must not hide what the test found
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace hetero::test
