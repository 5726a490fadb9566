// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <hetero/core/error.hpp>

/// @file
/// Law 6: a file appears whole or not at all, and the previous one survives until then.
namespace hetero {

namespace detail {

/// What a failed call on `path` means and what would work instead.
[[nodiscard]] inline std::string explain_output(std::string_view what, const std::string& path, int why) {
  std::string text = std::string{what} + " '" + path + "' failed: " + std::strerror(why);
  switch (why) {
    case ENOSPC:
    case EDQUOT:
      return text + "; free some space, or write to another disk";
    case EFBIG:
      return text + "; the file would pass this process's size limit (ulimit -f)";
    case ENOENT:
    case ENOTDIR:
      return text + "; create its folder first";
    case EACCES:
    case EPERM:
    case EROFS:
      return text + "; choose a folder this user may write to";
    default:
      return text;
  }
}

[[nodiscard]] inline std::string folder_of(const std::string& path) {
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// The file that a path means: through symbolic links, so that the file behind a link is replaced and not the link.
/// @throws error io when something that is not a regular file is in the way
[[nodiscard]] inline std::string output_target(const std::string& path) {
  require(!path.empty(), errc::io, "cannot write to an empty path; name a file");
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    require(path.back() != '/', errc::io, [&] { return "'" + path + "' names a folder; name a file in it"; });
    return path;
  }
  require(!S_ISDIR(info.st_mode), errc::io, [&] { return "'" + path + "' is a folder; name a file in it"; });
  require(S_ISREG(info.st_mode), errc::io, [&] {
    return "'" + path + "' is not a regular file and cannot be replaced as a whole; name a new or regular file";
  });
  const std::unique_ptr<char, void (*)(void*)> real{::realpath(path.c_str(), nullptr), &std::free};
  return real != nullptr ? std::string{real.get()} : path;
}

}  // namespace detail

/// Writes a file under a temporary name beside its place and moves it there on `commit`. Until then, and when anything
/// fails, the old file stays as it was; a destructor without `commit` removes the temporary one. Blocking; one thread.
class atomic_file {
 public:
  /// Creates the temporary file.
  /// @throws error io when the folder is missing or not writable, or when `path` is not a regular file
  explicit atomic_file(const std::string& path) : path_{path}, target_{detail::output_target(path)} {
    static std::atomic<std::uint64_t> serial{0};
    for (int attempt = 0; fd_ < 0; ++attempt) {
      temporary_ = target_ + ".tmp-" + std::to_string(::getpid()) + '-' + std::to_string(serial.fetch_add(1));
      fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      const int why = errno;
      // A crashed run of the same process number may have left the name behind; a few are enough to get past it.
      if (fd_ < 0 && (why != EEXIST || attempt == 100))
        throw error{errc::io, detail::explain_output("writing", path_, why)};
    }
    struct stat old {};
    if (::stat(target_.c_str(), &old) == 0) (void)::fchmod(fd_, old.st_mode & 07777U);  // readers keep their access
  }
  atomic_file(const atomic_file&) = delete;
  atomic_file& operator=(const atomic_file&) = delete;
  ~atomic_file() { discard(); }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Bytes written so far.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  /// Appends bytes.
  /// @throws error io, for example when the disk is full; the temporary file is gone then and the old file unchanged
  void write(std::span<const std::byte> bytes) {
    write_at(bytes, size_);
    size_ += bytes.size();
  }
  void write(std::string_view text) { write(std::as_bytes(std::span{text})); }

  /// Overwrites bytes that were written before, at `offset`.
  /// @throws error io as `write`; invalid_argument past the end
  void rewrite(std::span<const std::byte> bytes, std::uint64_t offset) {
    require(offset <= size_ && bytes.size() <= size_ - offset, errc::invalid_argument,
            "a rewrite past the end of a file");
    write_at(bytes, offset);
  }

  /// Makes the file durable and moves it to its place.
  /// @throws error io as `write`
  void commit() {
    require(fd_ >= 0, errc::invalid_argument, [&] { return "'" + path_ + "' was committed or has failed already"; });
    if (::fsync(fd_) != 0) fail("writing", errno);
    const int closed = ::close(std::exchange(fd_, -1));
    if (closed != 0) fail("writing", errno);
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("replacing", errno);
    temporary_.clear();
    // The new name itself must survive a power cut. Some file systems cannot sync a folder; the file is in place then.
    const int folder = ::open(detail::folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
      (void)::fsync(folder);
      ::close(folder);
    }
  }

 private:
  void write_at(std::span<const std::byte> bytes, std::uint64_t offset) {
    require(fd_ >= 0, errc::invalid_argument, [&] { return "'" + path_ + "' was committed or has failed already"; });
    while (!bytes.empty()) {
      constexpr std::size_t most = std::size_t{1} << 30U;  // Linux writes at most 2 GiB per call
      const ssize_t put =
          ::pwrite(fd_, bytes.data(), bytes.size() < most ? bytes.size() : most, static_cast<off_t>(offset));
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) fail("writing", put == 0 ? ENOSPC : errno);
      bytes = bytes.subspan(static_cast<std::size_t>(put));
      offset += static_cast<std::uint64_t>(put);
    }
  }

  [[noreturn]] void fail(std::string_view what, int why) {
    const bool existed = ::access(target_.c_str(), F_OK) == 0;
    discard();
    throw error{errc::io, detail::explain_output(what, path_, why) + " (after " + std::to_string(size_) + " bytes; " +
                              (existed ? "the previous file is unchanged)" : "no file was left behind)")};
  }

  void discard() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    temporary_.clear();
  }

  std::string path_;
  std::string target_;
  std::string temporary_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

/// Checks, before a long run, that `path` could be written at its end: its folder takes a new file, nothing odd is in
/// the way, and `expected_bytes` fit beside the old file. Leaves nothing behind. Blocking.
/// @throws error io
inline void preflight_output(const std::string& path, std::uint64_t expected_bytes = 0) {
  const atomic_file probe{path};
  struct statvfs disk {};
  if (expected_bytes > 0 && ::statvfs(detail::folder_of(path).c_str(), &disk) == 0) {
    const std::uint64_t free_bytes = std::uint64_t{disk.f_bavail} * disk.f_frsize;
    require(free_bytes >= expected_bytes, errc::io, [&] {
      return "'" + path + "' will need " + std::to_string(expected_bytes) + " bytes and its disk has " +
             std::to_string(free_bytes) + " free; free some space, or write to another disk";
    });
  }
}

/// Replaces `path` by a file of these bytes, whole or not at all. Blocking.
/// @throws error io
inline void write_atomically(const std::string& path, std::span<const std::byte> bytes) {
  atomic_file file{path};
  file.write(bytes);
  file.commit();
}

}  // namespace hetero
