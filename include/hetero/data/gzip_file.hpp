// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <zlib.h>

#include <hetero/core/error.hpp>
#include <hetero/data/read_file.hpp>

/// @file
/// Needs zlib; only this header and idx_images.hpp do.
namespace hetero {

/// Reads a file from front to back, unpacking it when it is gzip and as it is when it is not.
class gzip_file {
 public:
  /// @throws error io when the file is missing, a folder or unreadable
  explicit gzip_file(std::string path) : path_{std::move(path)} {
    detail::owned_fd fd{detail::open_to_read(path_)};
    file_.reset(::gzdopen(fd.get(), "rb"));
    require(file_ != nullptr, errc::out_of_memory, "zlib found no memory to read '" + path_ + "'");
    (void)fd.release();  // gzclose closes it
    ::gzbuffer(file_.get(), 1U << 17U);
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Unpacked bytes read so far.
  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }

  /// Fills as much of `to` as the file still holds; returns the bytes read. Blocking.
  /// @throws error bad_file when the gzip data is damaged or cut off; io when reading fails
  std::size_t read(std::span<std::byte> to) {
    std::size_t done = 0;
    while (done < to.size()) {
      const auto want = static_cast<unsigned>(std::min<std::size_t>(to.size() - done, 1U << 30U));
      const int got = ::gzread(file_.get(), to.data() + done, want);
      int code = Z_OK;
      if (got <= 0) ::gzerror(file_.get(), &code);
      if (code == Z_ERRNO) {
        throw error{errc::io, "reading '" + path_ + "' failed: " + std::strerror(errno)};
      }
      if (got < 0 || code != Z_OK) {
        throw error{errc::bad_file, "'" + path_ + "' is damaged or cut off: its gzip data ends or breaks after " +
                                        std::to_string(position_) + " unpacked bytes; fetch the file again"};
      }
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
      position_ += static_cast<std::uint64_t>(got);
    }
    return done;
  }

  /// Fills `to` completely.
  /// @throws error bad_file when the file ends first; `what` names the missing part
  void read_exactly(std::span<std::byte> to, const char* what) {
    const std::size_t got = read(to);
    require(got == to.size(), errc::bad_file, [&] {
      return "'" + path_ + "' ends at byte " + std::to_string(position_) + ", inside its " + what + ": " +
             std::to_string(to.size() - got) + " bytes are missing; fetch the file again";
    });
  }

 private:
  struct close {
    void operator()(gzFile_s* file) const noexcept { ::gzclose_r(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, close> file_;
  std::uint64_t position_ = 0;
};

}  // namespace hetero
