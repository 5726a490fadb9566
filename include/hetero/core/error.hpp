// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <hetero/core/ids.hpp>

/// @file
/// The one exception type of the library. Its text names code, rank, device and place.
namespace hetero {

/// What went wrong, as a value that programs can test.
enum class errc : std::uint8_t {
  invalid_argument,  ///< a value outside what the function accepts
  invalid_shape,     ///< tensors whose shapes or types do not fit together
  out_of_memory,     ///< an allocation failed or would pass the device's budget
  unsupported,       ///< the backend or policy lacks the operation; the text says what would work
  device_lost,       ///< a device failed while it worked
  peer_lost,         ///< a peer died, left or stopped answering
  timeout,           ///< a deadline passed
  aborted,           ///< another rank ended the operation
  mismatch,          ///< ranks disagree; the text names both values
  rendezvous,        ///< ranks could not find each other
  network,           ///< an address or a socket is unusable
  unauthenticated,   ///< a connection that must not be made without a key
  io,                ///< a file could not be read or written
  bad_file,          ///< a file was read and is not what it claims to be
  plan_does_not_fit, ///< no legal plan, or one that a device cannot carry
};

/// Name of the code, as printed at the start of every error text.
[[nodiscard]] constexpr std::string_view to_string(errc code) noexcept {
  constexpr std::string_view names[] = {
      "invalid_argument", "invalid_shape", "out_of_memory", "unsupported", "device_lost",
      "peer_lost", "timeout", "aborted", "mismatch", "rendezvous",
      "network", "unauthenticated", "io", "bad_file", "plan_does_not_fit"};
  return names[static_cast<std::size_t>(code)];
}

/// Where an error happened in the job: which rank, on which device; either may be unknown.
struct error_context {
  std::optional<rank_id> rank;
  std::optional<device_id> device;
};

/// A failure with its code, rank, device and source location.
class error : public std::exception {
 public:
  error(errc code, std::string message, error_context context = {},
        std::source_location location = std::source_location::current())
      : code_{code}, context_{context}, message_{std::move(message)}, location_{location} {
    compose();
  }

  [[nodiscard]] errc code() const noexcept { return code_; }
  /// The message alone, without code, rank and place.
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  [[nodiscard]] const error_context& context() const noexcept { return context_; }
  [[nodiscard]] const std::source_location& location() const noexcept { return location_; }

  /// "peer_lost: rank 2 closed its connection ... [rank 0] [cpu:0] (ring.hpp:42)".
  [[nodiscard]] const char* what() const noexcept override { return what_.c_str(); }

  /// The same error with rank and device filled in where they were unknown.
  [[nodiscard]] error with(error_context context) const {
    error copy = *this;
    if (!copy.context_.rank) copy.context_.rank = context.rank;
    if (!copy.context_.device) copy.context_.device = context.device;
    copy.compose();
    return copy;
  }

 private:
  void compose() {
    what_ = std::string{to_string(code_)} + ": " + message_;
    if (context_.rank) what_ += " [rank " + std::to_string(index_of(*context_.rank)) + ']';
    if (context_.device) what_ += " [" + to_string(*context_.device) + ']';
    std::string_view file = location_.file_name();
    if (const auto slash = file.find_last_of('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
    what_ += " (" + std::string{file} + ':' + std::to_string(location_.line()) + ')';
  }

  errc code_;
  error_context context_;
  std::string message_;
  std::source_location location_;
  std::string what_;
};

/// Throws `error{code, message}` unless `condition` holds. The message is a callable, so a passing check builds no text.
/// @throws error with the given code
template <class Message>
constexpr void require(bool condition, errc code, Message&& message,
                       std::source_location location = std::source_location::current()) {
  if (!condition) [[unlikely]] {
    if constexpr (std::is_invocable_v<Message>) {
      throw error{code, std::string{std::forward<Message>(message)()}, {}, location};
    } else {
      throw error{code, std::string{std::forward<Message>(message)}, {}, location};
    }
  }
}

}  // namespace hetero
