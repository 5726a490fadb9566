// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hetero/checkpoint/atomic_file.hpp>
#include <hetero/checkpoint/crc32c.hpp>
#include <hetero/core/error.hpp>
#include <hetero/core/named_tensor.hpp>
#include <hetero/core/tensor_view.hpp>

/// @file
/// Writing safetensors files (an 8-byte length, a JSON header, the elements); reading them is in safetensors_json.hpp.
namespace hetero {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian, and written as memory is");

/// Name, type and shape of a tensor in a file.
struct tensor_entry {
  std::string name;
  dtype type = dtype::f32;
  shape extents;
};

/// Strings beside the tensors, such as the model's hash or the step.
using file_metadata = std::map<std::string, std::string>;

namespace detail {

/// Metadata key of a tensor's CRC-32C, written as eight hexadecimal digits.
[[nodiscard]] inline std::string checksum_key(std::string_view tensor) { return "crc32c:" + std::string{tensor}; }

[[nodiscard]] inline std::string hex32(std::uint32_t value) {
  std::string text(8, '0');
  for (std::size_t i = 8; i-- > 0; value >>= 4U) text[i] = "0123456789abcdef"[value & 15U];
  return text;
}

[[nodiscard]] constexpr std::string_view safetensors_name(dtype type) noexcept {
  constexpr std::string_view names[] = {"F64", "F32", "BF16", "F16", "I64", "I32", "I8", "U8"};
  return names[static_cast<std::size_t>(type)];
}

/// Appends `text` as a JSON string.
/// @throws error invalid_argument when it is not plain UTF-8
inline void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    if (byte == '"' || byte == '\\') {
      out += '\\';
      out += text[i];
    } else if (byte < 0x20) {
      out += "\\u00";
      out += "0123456789abcdef"[byte >> 4U];
      out += "0123456789abcdef"[byte & 15U];
    } else {
      // Only the shape of a sequence is checked here; a reader refuses what is left, such as surrogates.
      const std::size_t more = byte < 0x80   ? 0
                               : byte < 0xc2 ? 9
                               : byte < 0xe0 ? 1
                               : byte < 0xf0 ? 2
                               : byte < 0xf5 ? 3
                                             : 9;
      bool good = more < 9 && i + more < text.size();
      for (std::size_t k = 1; good && k <= more; ++k) good = (static_cast<std::uint8_t>(text[i + k]) & 0xc0U) == 0x80U;
      require(good, errc::invalid_argument, "names and metadata of a safetensors file must be UTF-8");
      out += text.substr(i, more + 1);
      i += more;
    }
  }
  out += '"';
}

}  // namespace detail

/// Writes one safetensors file tensor by tensor, so that a tensor may come from a device or another rank in pieces and
/// memory never holds a second copy of the model. The file appears on `commit`, whole. Blocking; one thread.
///
/// Tensors lie by falling element size, then by name, so each is aligned to its elements without holes. The metadata
/// gets a CRC-32C per tensor, which our reader checks and others ignore.
class safetensors_writer {
 public:
  /// Opens the file and writes its header.
  /// @throws error invalid_argument for two tensors of one name or a reserved or non-UTF-8 name; io as `atomic_file`
  safetensors_writer(const std::string& path, std::vector<tensor_entry> entries, const file_metadata& metadata = {})
      : entries_{std::move(entries)}, file_{path} {
    std::sort(entries_.begin(), entries_.end(), [](const tensor_entry& a, const tensor_entry& b) {
      const std::size_t a_bytes = size_of(a.type);
      const std::size_t b_bytes = size_of(b.type);
      return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
    });
    write_header(metadata);
  }

  /// The order in which `write` expects the tensors.
  [[nodiscard]] std::span<const tensor_entry> entries() const noexcept { return entries_; }

  /// Appends bytes of the tensor that is due, a whole one or the next piece of it.
  /// @throws error invalid_argument when `name` is not due or the bytes pass its end; io when the disk is full
  void write(std::string_view name, std::span<const std::byte> bytes) {
    require(next_ < entries_.size() && entries_[next_].name == name, errc::invalid_argument, [&] {
      return "tensor '" + std::string{name} + "' was written where " +
             (next_ < entries_.size() ? "'" + entries_[next_].name + "' is due" : std::string{"no tensor is due"}) +
             "; follow the order of entries()";
    });
    require(bytes.size() <= left_, errc::invalid_argument, [&] {
      return "tensor '" + std::string{name} + "' got " + std::to_string(bytes.size()) + " bytes and only " +
             std::to_string(left_) + " were due";
    });
    file_.write(bytes);
    checksum_.add(bytes);
    left_ -= bytes.size();
    while (next_ < entries_.size() && left_ == 0) finish_tensor();
  }

  /// Completes the file and puts it in its place.
  /// @throws error invalid_argument when tensors are missing; io when the disk is full
  void commit() {
    require(next_ == entries_.size(), errc::invalid_argument,
            [&] { return "the file is not complete: tensor '" + entries_[next_].name + "' is due"; });
    file_.rewrite(std::as_bytes(std::span{header_}), 0);  // the checksums are known now
    file_.commit();
  }

 private:
  void write_header(const file_metadata& metadata) {
    std::vector<std::string_view> names;
    for (const tensor_entry& entry : entries_) names.emplace_back(entry.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    require(twice == names.end(), errc::invalid_argument,
            [&] { return "two tensors are named '" + std::string{*twice} + "'; names must differ"; });
    require(!std::binary_search(names.begin(), names.end(), std::string_view{"__metadata__"}), errc::invalid_argument,
            "'__metadata__' is reserved and cannot name a tensor");

    header_.assign(8, '\0');
    header_ += "{\"__metadata__\":{";
    std::string separator;
    for (const auto& [key, value] : metadata) {
      require(key.rfind("crc32c:", 0) != 0, errc::invalid_argument,
              "metadata keys that start with crc32c: are reserved");
      header_ += std::exchange(separator, ",");
      detail::append_json_string(header_, key);
      header_ += ':';
      detail::append_json_string(header_, value);
    }
    for (const tensor_entry& entry : entries_) {
      header_ += std::exchange(separator, ",");
      detail::append_json_string(header_, detail::checksum_key(entry.name));
      checksum_places_.push_back(header_.size() + 2);
      header_ += ":\"00000000\"";
    }
    header_ += '}';
    std::uint64_t offset = 0;
    for (const tensor_entry& entry : entries_) {
      const std::uint64_t end = offset + bytes_of(entry);
      header_ += ',';
      detail::append_json_string(header_, entry.name);
      header_ += ":{\"dtype\":\"" + std::string{detail::safetensors_name(entry.type)} + "\",\"shape\":[";
      for (std::size_t i = 0; i < entry.extents.dims(); ++i)
        header_ += (i == 0 ? "" : ",") + std::to_string(entry.extents[i]);
      header_ += "],\"data_offsets\":[" + std::to_string(offset) + ',' + std::to_string(end) + "]}";
      offset = end;
    }
    header_ += '}';
    header_.resize((header_.size() + 7) / 8 * 8, ' ');
    std::uint64_t length = header_.size() - 8;
    for (std::size_t i = 0; i < 8; ++i, length >>= 8U)
      header_[i] = static_cast<char>(static_cast<std::uint8_t>(length & 255U));
    file_.write(header_);
    left_ = entries_.empty() ? 0 : bytes_of(entries_.front());
    while (next_ < entries_.size() && left_ == 0) finish_tensor();
  }

  void finish_tensor() {
    header_.replace(checksum_places_[next_], 8, detail::hex32(checksum_.value()));
    checksum_ = {};
    ++next_;
    left_ = next_ < entries_.size() ? bytes_of(entries_[next_]) : 0;
  }

  [[nodiscard]] static std::uint64_t bytes_of(const tensor_entry& entry) noexcept {
    return std::uint64_t{entry.extents.count()} * size_of(entry.type);
  }

  std::vector<tensor_entry> entries_;
  atomic_file file_;
  std::string header_;
  std::vector<std::size_t> checksum_places_;
  crc32c checksum_;
  std::size_t next_ = 0;
  std::uint64_t left_ = 0;
};

/// Saves tensors that are in host memory. The file appears whole or not at all. Blocking.
/// @throws error invalid_shape for a view with gaps; unsupported for one on another device; else as
/// `safetensors_writer`
inline void save_safetensors(const std::string& path, std::span<const named_tensor> tensors,
                             const file_metadata& metadata = {}) {
  std::vector<tensor_entry> entries;
  std::map<std::string_view, tensor_view> views;
  for (const auto& [name, view] : tensors) {
    require(view.contiguous(), errc::invalid_shape,
            [&] { return "tensor '" + name + "' has gaps; save a contiguous copy"; });
    require(view.device().kind == device_kind::cpu, errc::unsupported, [&] {
      return "tensor '" + name + "' is on " + to_string(view.device()) +
             "; copy it to the host, or feed a safetensors_writer";
    });
    entries.push_back({name, view.type(), view.extents()});
    views.emplace(name, view);
  }
  safetensors_writer writer{path, std::move(entries), metadata};
  for (const tensor_entry& entry : writer.entries()) {
    const tensor_view view = views.at(entry.name);
    if (view.count() == 0) continue;  // an empty tensor is complete as it is
    writer.write(entry.name, {static_cast<const std::byte*>(view.data()), view.size_bytes()});
  }
  writer.commit();
}

}  // namespace hetero
