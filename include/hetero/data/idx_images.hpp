// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include <hetero/core/error.hpp>
#include <hetero/core/hash.hpp>
#include <hetero/data/concepts.hpp>
#include <hetero/data/gzip_file.hpp>

/// @file
/// Images and labels in the IDX format of MNIST and Fashion-MNIST, plain or gzipped. Needs zlib.
namespace hetero {

/// Unsigned bytes with a shape, as an IDX file holds them.
struct idx_array {
  std::vector<std::size_t> extents;
  std::vector<std::uint8_t> values;
};

/// Reads one IDX file of unsigned bytes, plain or gzipped. Blocking.
/// @throws error io when the file cannot be read; bad_file when it is cut off, damaged, of another format or longer
///         than its header says
[[nodiscard]] inline idx_array read_idx(const std::string& path) {
  gzip_file file{path};
  std::array<std::uint8_t, 4> magic{};
  file.read_exactly(std::as_writable_bytes(std::span{magic}), "IDX header");
  require(magic[0] == 0 && magic[1] == 0 && magic[3] >= 1 && magic[3] <= 4, errc::bad_file, [&] {
    return "'" + path + "' is not an IDX file: it starts with bytes " + std::to_string(magic[0]) + " " +
           std::to_string(magic[1]) + " " + std::to_string(magic[2]) + " " + std::to_string(magic[3]) +
           " where 0 0 8 and a dimension count belong";
  });
  require(magic[2] == 0x08, errc::bad_file, [&] {
    return "'" + path + "' is IDX of element type " + std::to_string(magic[2]) +
           "; only unsigned bytes (8) are images or labels";
  });
  idx_array array;
  std::size_t count = 1;
  for (std::uint8_t dim = 0; dim < magic[3]; ++dim) {
    std::array<std::uint8_t, 4> bytes{};
    file.read_exactly(std::as_writable_bytes(std::span{bytes}), "IDX header");
    const std::size_t extent = (std::size_t{bytes[0]} << 24U) | (std::size_t{bytes[1]} << 16U) |
                               (std::size_t{bytes[2]} << 8U) | std::size_t{bytes[3]};
    require(extent > 0 && count <= (std::size_t{1} << 40U) / extent, errc::bad_file, [&] {
      return "'" + path + "' claims an impossible extent of " + std::to_string(extent) + " in its header";
    });
    count *= extent;
    array.extents.push_back(extent);
  }
  // In pieces, so that a header that lies about its size costs no more memory than the file is worth.
  constexpr std::size_t piece = std::size_t{1} << 24U;
  while (array.values.size() < count) {
    const std::size_t have = array.values.size();
    array.values.resize(have + std::min(piece, count - have));
    file.read_exactly(std::as_writable_bytes(std::span{array.values}.subspan(have)), "pixels or labels");
  }
  std::byte beyond{};
  require(file.read({&beyond, 1}) == 0, errc::bad_file, [&] {
    return "'" + path + "' goes on after the " + std::to_string(count) + " elements its header announces";
  });
  return array;
}

/// How pixels become numbers: (pixel / 255 - mean) / deviation.
struct image_options {
  float mean = 0;
  float deviation = 1;
  bool flatten = true;  ///< samples are [pixels]; otherwise [1, height, width]
};

/// Labelled images. Inputs are f32, targets i32 without dimensions. Copies share the images; thread-safe.
class idx_images {
 public:
  /// Which half of a data set in MNIST's naming.
  enum class part : std::uint8_t { train, test };

  /// Images from one or several files, one after the other, and their labels likewise. Blocking.
  /// @throws error io, bad_file as `read_idx`; bad_file also when images and labels do not belong together;
  ///         invalid_argument for a deviation of 0
  idx_images(std::span<const std::string> image_files, std::span<const std::string> label_files,
             const image_options& options = {})
      : options_{options} {
    require(std::isfinite(options.mean) && std::isfinite(options.deviation) && options.deviation != 0,
            errc::invalid_argument,
            "the deviation of pixels must be a finite number other than 0, their mean a finite number");
    require(!image_files.empty() && !label_files.empty(), errc::invalid_argument,
            "images need at least one file of each kind");
    auto data = std::make_shared<storage>();
    for (const std::string& path : image_files) {
      const idx_array images = read_idx(path);
      require(images.extents.size() == 3, errc::bad_file, [&] {
        return "'" + path + "' has " + std::to_string(images.extents.size()) +
               " dimensions; a file of images has three: images, rows, columns";
      });
      if (data->pixels.empty()) {
        data->height = images.extents[1];
        data->width = images.extents[2];
      }
      require(images.extents[1] == data->height && images.extents[2] == data->width, errc::bad_file, [&] {
        return "'" + path + "' holds images of " + std::to_string(images.extents[1]) + " x " +
               std::to_string(images.extents[2]) + " and the files before it of " + std::to_string(data->height) +
               " x " + std::to_string(data->width);
      });
      data->pixels.insert(data->pixels.end(), images.values.begin(), images.values.end());
    }
    for (const std::string& path : label_files) {
      const idx_array labels = read_idx(path);
      require(labels.extents.size() == 1, errc::bad_file, [&] {
        return "'" + path + "' has " + std::to_string(labels.extents.size()) + " dimensions; a file of labels has one";
      });
      data->labels.insert(data->labels.end(), labels.values.begin(), labels.values.end());
    }
    const std::size_t count = data->pixels.size() / (data->height * data->width);
    require(count == data->labels.size(), errc::bad_file, [&] {
      return std::to_string(count) + " images ('" + image_files.front() + "', ...) and " +
             std::to_string(data->labels.size()) + " labels ('" + label_files.front() +
             "', ...) do not belong together";
    });
    data->content_hash = stable_hash{}.add(as_text(data->pixels)).add(as_text(data->labels)).add(data->width).value();
    data->classes = std::size_t{*std::max_element(data->labels.begin(), data->labels.end())} + 1;
    data_ = std::move(data);
  }

  /// Finds the files of MNIST or Fashion-MNIST in a folder: train- or t10k-images-idx3-ubyte and -labels-idx1-ubyte,
  /// with or without .gz, the images in one file or as part1ofN to partNofN. Blocking.
  /// @throws error io when the folder lacks them; else as the constructor
  [[nodiscard]] static idx_images from_folder(const std::string& folder, part which,
                                              const image_options& options = {}) {
    const std::string stem = folder + (which == part::train ? "/train-" : "/t10k-");
    const std::vector<std::string> labels = find(stem + "labels", "-idx1-ubyte");
    const std::vector<std::string> images = find(stem + "images", "-idx3-ubyte");
    return idx_images{images, labels, options};
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return data_->labels.size(); }
  /// Largest label + 1.
  [[nodiscard]] std::size_t classes() const noexcept { return data_->classes; }
  [[nodiscard]] std::size_t height() const noexcept { return data_->height; }
  [[nodiscard]] std::size_t width() const noexcept { return data_->width; }
  [[nodiscard]] shape input_shape() const {
    return options_.flatten ? shape{height() * width()} : shape{1, height(), width()};
  }
  [[nodiscard]] shape target_shape() const { return {}; }
  [[nodiscard]] dtype input_type() const noexcept { return dtype::f32; }
  [[nodiscard]] dtype target_type() const noexcept { return dtype::i32; }

  /// The images `ids`, in that order.
  /// @throws error invalid_argument for an id past the images
  void load(std::span<const std::uint64_t> ids, batch& out) const {
    out.prepare(ids, dtype::f32, input_shape(), dtype::i32, target_shape());
    const std::span inputs = out.inputs.elements<float>();
    const std::span targets = out.targets.elements<std::int32_t>();
    const std::size_t pixels = height() * width();
    for (std::size_t row = 0; row < ids.size(); ++row) {
      require(ids[row] < size(), errc::invalid_argument, [&] {
        return "sample " + std::to_string(ids[row]) + " of a set of " + std::to_string(size()) + " images";
      });
      const auto image = std::span{data_->pixels}.subspan(static_cast<std::size_t>(ids[row]) * pixels, pixels);
      for (std::size_t i = 0; i < pixels; ++i) {
        inputs[row * pixels + i] = (static_cast<float>(image[i]) / 255.0F - options_.mean) / options_.deviation;
      }
      targets[row] = data_->labels[static_cast<std::size_t>(ids[row])];
    }
  }

  [[nodiscard]] std::uint64_t fingerprint() const noexcept {
    return stable_hash{}
        .add("idx_images")
        .add(data_->content_hash)
        .add(std::uint64_t{std::bit_cast<std::uint32_t>(options_.mean)})
        .add(std::uint64_t{std::bit_cast<std::uint32_t>(options_.deviation)})
        .add(std::uint64_t{options_.flatten})
        .value();
  }

 private:
  struct storage {
    std::vector<std::uint8_t> pixels;
    std::vector<std::uint8_t> labels;
    std::size_t height = 0;
    std::size_t width = 0;
    std::size_t classes = 0;
    std::uint64_t content_hash = 0;
  };

  [[nodiscard]] static std::string_view as_text(const std::vector<std::uint8_t>& bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  [[nodiscard]] static std::vector<std::string> find(const std::string& stem, const std::string& ending) {
    const auto either = [](const std::string& name) {
      for (const std::string& path : {name, name + ".gz"}) {
        if (::access(path.c_str(), F_OK) == 0) return path;
      }
      return std::string{};
    };
    if (const std::string whole = either(stem + ending); !whole.empty()) return {whole};
    constexpr int most_parts = 64;
    for (int parts = 2; parts <= most_parts; ++parts) {
      const auto name = [&](int i) {
        return stem + "-part" + std::to_string(i) + "of" + std::to_string(parts) + ending;
      };
      if (either(name(1)).empty()) continue;
      std::vector<std::string> files;
      for (int i = 1; i <= parts; ++i) {
        files.push_back(either(name(i)));
        require(!files.back().empty(), errc::io,
                [&] { return "'" + name(i) + "' (or .gz) is missing, though part 1 is there"; });
      }
      return files;
    }
    throw error{errc::io, "found no '" + stem + ending +
                              "', with or without .gz, in one file or in parts; name a folder "
                              "with the files of MNIST or Fashion-MNIST (Debian's dataset-fashion-mnist puts them in "
                              "/usr/share/datasets/fashion-mnist)"};
  }

  std::shared_ptr<const storage> data_;
  image_options options_;
};

static_assert(dataset<idx_images>, "labelled images must be a dataset");

}  // namespace hetero
