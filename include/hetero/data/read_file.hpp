// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hetero/core/error.hpp>

namespace hetero::detail {

/// A file descriptor that closes itself.
class owned_fd {
 public:
  explicit owned_fd(int fd = -1) noexcept : fd_{fd} {}
  owned_fd(const owned_fd&) = delete;
  owned_fd& operator=(const owned_fd&) = delete;
  ~owned_fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] int release() noexcept {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

/// Opens a regular file (or a pipe) for reading.
/// @throws error io when it is missing, a folder or unreadable
inline int open_to_read(const std::string& path) {
  owned_fd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  const int why = errno;
  if (fd.get() < 0) {
    std::string text = "cannot open '" + path + "': " + std::strerror(why);
    if (why == ENOENT) {
      char folder[4096];
      if (!path.empty() && path.front() != '/' && ::getcwd(folder, sizeof folder) != nullptr) {
        text += std::string{" (looked in "} + folder + "); give a path from there, or an absolute one";
      } else {
        text += "; check the path";
      }
    } else if (why == EACCES) {
      text += "; this user may not read it";
    }
    throw error{errc::io, std::move(text)};
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) == 0 && S_ISDIR(info.st_mode)) {
    throw error{errc::io, "'" + path + "' is a folder; name a file in it"};
  }
  return fd.release();
}

/// The whole content of a file. Blocking.
/// @throws error io when it is missing, a folder or unreadable
inline std::string read_file(const std::string& path) {
  const owned_fd fd{open_to_read(path)};
  std::string content;
  struct stat info {};
  if (::fstat(fd.get(), &info) == 0 && info.st_size > 0) content.reserve(static_cast<std::size_t>(info.st_size) + 1);
  std::size_t used = 0;
  for (;;) {  // until the end is seen: a pipe has no size, and a file may still grow
    content.resize(std::max(content.capacity(), used + 65536));
    const ssize_t got = ::read(fd.get(), content.data() + used, content.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw error{errc::io,
                  "reading '" + path + "' failed at byte " + std::to_string(used) + ": " + std::strerror(errno)};
    }
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  content.resize(used);
  return content;
}

}  // namespace hetero::detail
