// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/core/hash.hpp>
#include <hetero/data/batches.hpp>
#include <hetero/data/concepts.hpp>
#include <hetero/data/read_file.hpp>
#include <hetero/data/vocabulary.hpp>

/// @file
/// Text as training data: a sample is a window of tokens, its targets are the tokens that follow.
namespace hetero {

/// Target value that counts for nothing: neither loss nor weight.
inline constexpr std::int32_t ignored_target = -1;

struct text_options {
  text_unit unit = text_unit::characters;
};

/// How a corpus is cut into steps of windows.
struct text_batch_options {
  std::uint64_t global_batch = 0;  ///< windows per step over all ranks; required
  std::uint64_t context = 0;       ///< tokens per window; 0 leaves it to the model
  std::uint64_t seed = 0;          ///< of the order
  bool shuffle = true;
  bool drop_last = false;  ///< skip a last, smaller step of an epoch
};

namespace detail {
/// The tokens of a whole text, shared by its parts; narrow where the vocabulary allows, since a text is mostly tokens.
struct text_storage {
  text_storage(std::string_view text, text_unit unit, std::string source)
      : name{std::move(source)}, words{text, unit, name}, content_hash{stable_hash{}.add(text).value()} {
    if (unit == text_unit::bytes) {
      narrow.assign(text.begin(), text.end());
      return;
    }
    const std::vector<std::int32_t> ids = words.encode(text);
    if (words.size() <= 256) {
      narrow.reserve(ids.size());
      for (const std::int32_t id : ids) narrow.push_back(static_cast<std::uint8_t>(id));
    } else {
      wide = ids;
    }
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return narrow.empty() ? wide.size() : narrow.size(); }
  void copy(std::uint64_t begin, std::span<std::int32_t> to) const noexcept {
    if (narrow.empty()) {
      std::copy_n(wide.begin() + static_cast<std::ptrdiff_t>(begin), to.size(), to.begin());
    } else {
      std::copy_n(narrow.begin() + static_cast<std::ptrdiff_t>(begin), to.size(), to.begin());
    }
  }

  std::string name;
  vocabulary words;
  std::uint64_t content_hash;
  std::vector<std::uint8_t> narrow;
  std::vector<std::int32_t> wide;
};
}  // namespace detail

/// Consecutive windows over a text: sample i starts at token i * context. Inputs are i32 [context]; targets, i32
/// [context], are the tokens one further. The last window may run past the text: its missing targets are
/// `ignored_target`, so an epoch predicts every token but the first exactly once. Copies share the text. Thread-safe.
class text_windows {
 public:
  /// Windows of `context` tokens over tokens [begin, end) of a text; a context of 0 is left to `with_context`.
  /// @throws error invalid_argument when the context is longer than the text
  text_windows(std::shared_ptr<const detail::text_storage> text, std::uint64_t begin, std::uint64_t end,
               std::uint64_t context)
      : text_{std::move(text)}, begin_{begin}, end_{end}, context_{context} {
    require(context < end - begin, errc::invalid_argument, [&] {
      return "a context of " + std::to_string(context) + " needs at least " + std::to_string(context + 1) +
             " tokens and " + text_->name + " has " + std::to_string(end - begin) + "; use a context of at most " +
             std::to_string(end - begin - 1) + ", or a longer text";
    });
  }

  /// Windows in the text.
  /// @throws error invalid_argument while there is no context
  [[nodiscard]] std::uint64_t size() const {
    require(context_ > 0, errc::invalid_argument,
            "the windows of this text have no context yet; set .context, or hand them to a trainer, which uses its "
            "model's");
    return (end_ - begin_ - 1 + context_ - 1) / context_;
  }
  [[nodiscard]] std::uint64_t context() const noexcept { return context_; }
  [[nodiscard]] shape input_shape() const { return {static_cast<std::size_t>(context_)}; }
  [[nodiscard]] shape target_shape() const { return input_shape(); }
  [[nodiscard]] dtype input_type() const noexcept { return dtype::i32; }
  [[nodiscard]] dtype target_type() const noexcept { return dtype::i32; }

  /// The windows `ids`, in that order.
  /// @throws error invalid_argument for an id past the text
  void load(std::span<const std::uint64_t> ids, batch& out) const {
    const std::uint64_t count = size();
    out.prepare(ids, dtype::i32, input_shape(), dtype::i32, target_shape());
    const std::span inputs = out.inputs.elements<std::int32_t>();
    const std::span targets = out.targets.elements<std::int32_t>();
    const auto width = static_cast<std::size_t>(context_);
    for (std::size_t row = 0; row < ids.size(); ++row) {
      require(ids[row] < count, errc::invalid_argument, [&] {
        return "sample " + std::to_string(ids[row]) + " of " + text_->name + ", which has " + std::to_string(count) +
               " windows of " + std::to_string(context_);
      });
      const std::uint64_t first = begin_ + ids[row] * context_;
      const auto present = static_cast<std::size_t>(std::min<std::uint64_t>(context_, end_ - 1 - first));
      const auto input = inputs.subspan(row * width, width);
      const auto target = targets.subspan(row * width, width);
      text_->copy(first, input.first(present));
      text_->copy(first + 1, target.first(present));
      std::fill(input.begin() + static_cast<std::ptrdiff_t>(present), input.end(), 0);
      std::fill(target.begin() + static_cast<std::ptrdiff_t>(present), target.end(), ignored_target);
    }
  }

  [[nodiscard]] std::uint64_t fingerprint() const noexcept {
    return stable_hash{}
        .add("text_windows")
        .add(text_->content_hash)
        .add(static_cast<std::uint64_t>(text_->words.unit()))
        .add(begin_)
        .add(end_)
        .add(context_)
        .value();
  }

  /// These windows with a context of `context`, unless they have one already.
  /// @throws error invalid_argument when the context is longer than the text
  [[nodiscard]] text_windows with_context(std::uint64_t context) const {
    return context_ > 0 ? *this : text_windows{text_, begin_, end_, context};
  }

 private:
  std::shared_ptr<const detail::text_storage> text_;
  std::uint64_t begin_;
  std::uint64_t end_;
  std::uint64_t context_;
};

static_assert(dataset<text_windows>, "windows over a text must be a dataset");
static_assert(batch_source<batches<text_windows>>, "batches of a dataset must be a batch source");

/// A text as tokens, with its vocabulary. Copies and parts share the text; all members are thread-safe.
class text_corpus {
 public:
  struct parts;  ///< what `split` gives

  /// Reads a UTF-8 text, or any file with `text_unit::bytes`. Blocking.
  /// @throws error io when the file is missing, a folder or unreadable; bad_file when it is not UTF-8; invalid_argument
  ///         when it holds fewer than two tokens
  explicit text_corpus(const std::string& path, const text_options& options = {})
      : text_corpus{detail::read_file(path), "'" + path + "'", options} {}

  /// Several files, one after the other, as one text. Blocking.
  /// @throws error as for one file, and invalid_argument for no file
  [[nodiscard]] static text_corpus from_files(std::span<const std::string> paths, const text_options& options = {}) {
    require(!paths.empty(), errc::invalid_argument, "a corpus of no files; name at least one");
    std::string text;
    for (const std::string& path : paths) text += detail::read_file(path);
    std::string name = "'" + paths.front() + "'";
    if (paths.size() > 1) name += " and " + std::to_string(paths.size() - 1) + " more";
    return text_corpus{text, std::move(name), options};
  }

  /// A text that is already in memory.
  /// @throws error bad_file when it is not UTF-8; invalid_argument when it holds fewer than two tokens
  [[nodiscard]] static text_corpus from_string(std::string_view text, const text_options& options = {}) {
    return text_corpus{text, "the given text", options};
  }

  /// Different tokens, the width of a model's output.
  [[nodiscard]] std::size_t vocabulary() const noexcept { return text_->words.size(); }
  /// Tokens in this corpus or part.
  [[nodiscard]] std::uint64_t size() const noexcept { return end_ - begin_; }

  /// Token numbers of `text`.
  /// @throws error invalid_argument for a character that the corpus lacks
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const { return text_->words.encode(text); }
  /// The text of token numbers.
  /// @throws error invalid_argument for a number outside the vocabulary
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const { return text_->words.decode(ids); }

  /// The data set of consecutive windows of `context` tokens.
  /// @throws error invalid_argument when the context is 0 or longer than the text
  [[nodiscard]] text_windows windows(std::uint64_t context) const {
    require(context > 0, errc::invalid_argument, "a context of 0 predicts nothing; use at least 1");
    return {text_, begin_, end_, context};
  }

  /// Windows cut into steps.
  /// @throws error invalid_argument when the context is longer than the text or the global batch is 0
  [[nodiscard]] hetero::batches<text_windows> batches(const text_batch_options& options) const {
    return {text_windows{text_, begin_, end_, options.context},
            {.global_batch = options.global_batch,
             .seed = options.seed,
             .shuffle = options.shuffle,
             .drop_last = options.drop_last}};
  }

  /// The first `fraction` of the tokens and the rest, under one vocabulary.
  /// @throws error invalid_argument when a part would hold fewer than two tokens
  [[nodiscard]] parts split(double fraction) const;

 private:
  text_corpus(std::string_view text, std::string name, const text_options& options) {
    require(!text.empty(), errc::invalid_argument,
            [&] { return name + " is empty; a text needs at least two tokens"; });
    text_ = std::make_shared<const detail::text_storage>(text, options.unit, name);
    end_ = text_->size();
    require(end_ >= 2, errc::invalid_argument,
            [&] { return name + " holds a single token, so there is nothing to predict; it needs at least two"; });
  }
  text_corpus(std::shared_ptr<const detail::text_storage> text, std::uint64_t begin, std::uint64_t end)
      : text_{std::move(text)}, begin_{begin}, end_{end} {}

  std::shared_ptr<const detail::text_storage> text_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

struct text_corpus::parts {
  text_corpus train;
  text_corpus validation;
};

inline text_corpus::parts text_corpus::split(double fraction) const {
  require(fraction > 0 && fraction < 1, errc::invalid_argument, [&] {
    return "a split at " + std::to_string(fraction) + "; the fraction must be between 0 and 1, such as 0.9";
  });
  const std::uint64_t middle = begin_ + static_cast<std::uint64_t>(static_cast<double>(size()) * fraction);
  require(middle - begin_ >= 2 && end_ - middle >= 2, errc::invalid_argument, [&] {
    return "a split of " + text_->name + " at " + std::to_string(fraction) + " leaves parts of " +
           std::to_string(middle - begin_) + " and " + std::to_string(end_ - middle) +
           " tokens; each needs at least two, so use a longer text";
  });
  return {text_corpus{text_, begin_, middle}, text_corpus{text_, middle, end_}};
}

}  // namespace hetero
