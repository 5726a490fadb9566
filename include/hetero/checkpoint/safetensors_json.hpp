// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hetero/checkpoint/safetensors.hpp>
#include <hetero/checkpoint/safetensors_header_json.hpp>
#include <hetero/checkpoint/stored_type.hpp>
#include <hetero/core/error.hpp>
#include <hetero/core/tensor_view.hpp>

/// @file
/// Reading safetensors files of any writer. A file is checked whole when it is opened, and trusted in nothing before.
namespace hetero {

/// An open safetensors file. Elements are read on demand, straight into the caller's memory. `load_tensor` and `verify`
/// are thread-safe.
class safetensors_file {
 public:
  /// The largest header that is read, in bytes; the format's own limit.
  static constexpr std::uint64_t max_header_bytes = 100'000'000;

  /// Opens a file and checks its header against its size: every offset, shape and type, no overlap, no hole. Blocking.
  /// @throws error io when the file cannot be read; bad_file when it is cut off, damaged or of another format;
  ///         unsupported for a tensor of more than six dimensions
  explicit safetensors_file(const std::string& path) : path_{path} {
    file_.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    require(file_.fd >= 0, errc::io, [&] { return "cannot open '" + path_ + "': " + std::strerror(errno); });
    struct stat info {};
    require(::fstat(file_.fd, &info) == 0 && S_ISREG(info.st_mode), errc::io,
            [&] { return "'" + path_ + "' is not a regular file; name a safetensors file"; });
    size_ = static_cast<std::uint64_t>(info.st_size);
    read_header();
  }
  safetensors_file(const safetensors_file&) = delete;
  safetensors_file& operator=(const safetensors_file&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// All tensors, sorted by name.
  [[nodiscard]] std::span<const stored_tensor> tensors() const noexcept { return tensors_; }
  [[nodiscard]] const file_metadata& metadata() const noexcept { return metadata_; }
  /// All names, sorted.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> list;
    for (const stored_tensor& tensor : tensors_) list.push_back(tensor.name);
    return list;
  }

  [[nodiscard]] bool contains(std::string_view name) const noexcept { return find(name) != nullptr; }

  /// The tensor of that name.
  /// @throws error mismatch when the file has none
  [[nodiscard]] const stored_tensor& tensor(std::string_view name) const {
    const stored_tensor* found = find(name);
    require(found != nullptr, errc::mismatch, [&] {
      std::string text =
          "'" + path_ + "' has no tensor '" + std::string{name} + "'; it has " + std::to_string(tensors_.size());
      constexpr std::size_t shown = 6;
      for (std::size_t i = 0; i < std::min(shown, tensors_.size()); ++i)
        text += (i == 0 ? ": '" : ", '") + tensors_[i].name + "'";
      return text + (tensors_.size() > shown ? ", ..." : "");
    });
    return *found;
  }

  /// Reads a tensor into host memory of the same shape. Other element types are taken where no value can change, such
  /// as f16 into f32 or u16 into i32. Checks the CRC when the file has one. Blocking; after a throw `to` is undefined.
  /// @throws error mismatch for a missing tensor or another shape; unsupported for types that would change values;
  ///         bad_file when bytes are damaged or missing; io when reading fails
  void load_tensor(std::string_view name, tensor_view to) const {
    const stored_tensor& source = tensor(name);
    require(source.extents == to.extents(), errc::mismatch, [&] {
      return "tensor '" + source.name + "' of '" + path_ + "' is " + to_string(source.extents) + " and " +
             to_string(to.extents()) + " was asked for; is it a checkpoint of another model?";
    });
    require(to.contiguous() && to.device().kind == device_kind::cpu, errc::invalid_shape,
            "a tensor is read into contiguous host memory; copy it on from there");
    const std::optional<dtype> native = native_dtype(source.type);
    if (native && *native == to.type()) {
      const std::span bytes{static_cast<std::byte*>(to.data()), to.size_bytes()};
      read_at(source.begin, bytes, source.name);
      check_sum(source, crc32c{}.add(bytes));
      return;
    }
    require(widens(source.type, to.type()), errc::unsupported, [&] {
      return "tensor '" + source.name + "' of '" + path_ + "' is " + std::string{to_string(source.type)} +
             " and cannot become " + to_string(to.type()) + " without changing values; read it as " +
             suggested_type(source.type);
    });
    auto* out = static_cast<std::byte*>(to.data());
    crc32c sum;
    for_pieces(source, [&](std::span<const std::byte> piece) {
      sum.add(piece);
      const std::size_t count = piece.size() / size_of(source.type);
      widen(source.type, piece, to.type(), out);
      out += count * size_of(to.type());
    });
    check_sum(source, sum);
  }

  /// Reads every tensor that has a CRC and compares; returns how many had one. Blocking.
  /// @throws error bad_file when bytes are damaged or missing
  std::size_t verify() const {
    std::size_t checked = 0;
    for (const stored_tensor& source : tensors_) {
      if (!metadata_.contains(detail::checksum_key(source.name))) continue;
      crc32c sum;
      for_pieces(source, [&](std::span<const std::byte> piece) { sum.add(piece); });
      check_sum(source, sum);
      ++checked;
    }
    return checked;
  }

 private:
  struct closing_fd {
    int fd = -1;
    ~closing_fd() {
      if (fd >= 0) ::close(fd);
    }
  };

  void read_at(std::uint64_t offset, std::span<std::byte> to, std::string_view what) const {
    while (!to.empty()) {
      const std::size_t most = std::min(to.size(), std::size_t{1} << 30U);
      const ssize_t got = ::pread(file_.fd, to.data(), most, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        throw error{errc::io,
                    "reading '" + path_ + "' at byte " + std::to_string(offset) + " failed: " + std::strerror(errno)};
      }
      if (got == 0)
        throw detail::bad_safetensors(path_,
                                      "it ends at byte " + std::to_string(offset) + ", inside " + std::string{what});
      offset += static_cast<std::uint64_t>(got);
      to = to.subspan(static_cast<std::size_t>(got));
    }
  }

  void read_header() {
    if (size_ < 8)
      throw detail::bad_safetensors(path_,
                                    "it has " + std::to_string(size_) + " bytes and the header length alone has 8");
    std::array<std::byte, 8> raw{};
    read_at(0, raw, "the header length");
    std::uint64_t length = 0;
    std::memcpy(&length, raw.data(), 8);
    if (length > max_header_bytes) {
      throw detail::bad_safetensors(path_, "its first 8 bytes announce a header of " + std::to_string(length) +
                                               " bytes; at most " + std::to_string(max_header_bytes) + " are accepted");
    }
    if (length > size_ - 8) {
      throw detail::bad_safetensors(path_, "it is cut off: a header of " + std::to_string(length) +
                                               " bytes is announced and " + std::to_string(size_ - 8) +
                                               " bytes follow");
    }
    std::string text(static_cast<std::size_t>(length), '\0');
    read_at(8, std::as_writable_bytes(std::span{text}), "the header");
    auto content = detail::safetensors_header_parser{path_, text, 8 + length, size_ - 8 - length}.take();
    tensors_ = std::move(content.tensors);
    metadata_ = std::move(content.metadata);
  }

  [[nodiscard]] const stored_tensor* find(std::string_view name) const noexcept {
    const auto place =
        std::lower_bound(tensors_.begin(), tensors_.end(), name,
                         [](const stored_tensor& tensor, std::string_view key) { return tensor.name < key; });
    return place != tensors_.end() && place->name == name ? &*place : nullptr;
  }

  template <class Visit> void for_pieces(const stored_tensor& source, const Visit& visit) const {
    constexpr std::size_t piece_bytes = std::size_t{1} << 18U;  // fits the cache; a multiple of every element size
    std::vector<std::byte> piece(
        static_cast<std::size_t>(std::min<std::uint64_t>(piece_bytes, source.end - source.begin)));
    for (std::uint64_t at = source.begin; at < source.end; at += piece.size()) {
      piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), source.end - at)));
      read_at(at, piece, "tensor '" + source.name + "'");
      visit(std::span<const std::byte>{piece});
    }
  }

  void check_sum(const stored_tensor& source, const crc32c& sum) const {
    const auto recorded = metadata_.find(detail::checksum_key(source.name));
    if (recorded == metadata_.end() || recorded->second == detail::hex32(sum.value())) return;
    throw detail::bad_safetensors(path_, "tensor '" + source.name + "' (bytes " + std::to_string(source.begin) +
                                             " to " + std::to_string(source.end) + ") is damaged: its CRC-32C is " +
                                             detail::hex32(sum.value()) + " and " + recorded->second + " was recorded");
  }

  std::string path_;
  closing_fd file_;
  std::uint64_t size_ = 0;
  std::vector<stored_tensor> tensors_;
  file_metadata metadata_;
};

}  // namespace hetero
