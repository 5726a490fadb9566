// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <hetero/model/concepts.hpp>

/// @file
/// What a layer may say about itself beyond the concept, so that whoever runs it keeps fewer tensors and asks less
/// often.
namespace hetero {

namespace detail {
template <class L> consteval bool says_reads_input() {
  if constexpr (requires { L::reads_input; }) {
    return L::reads_input;
  } else {
    return true;
  }
}
template <class L> consteval bool says_reads_output() {
  if constexpr (requires { L::reads_output; }) {
    return L::reads_output;
  } else {
    return true;
  }
}
}  // namespace detail

/// Whether the backward pass of `L` reads `saved_state::input`. A layer that does not says so with
/// `static constexpr bool reads_input = false`; the view may then have a shape but no memory.
template <class L> inline constexpr bool reads_input = detail::says_reads_input<L>();

/// Whether the backward pass of `L` reads `saved_state::output`; `static constexpr bool reads_output = false` denies
/// it.
template <class L> inline constexpr bool reads_output = detail::says_reads_output<L>();

/// A context in which all of `Layers` can run; a composed layer asks for it, so that what its parts need shows in its own
/// concept.
template <class Context, class... Layers>
concept context_for = (layer<Layers, Context> && ...);

/// Number of entries in `parameters()`, without building their names where the layer offers `parameter_count()`.
template <class L> [[nodiscard]] std::size_t parameter_count(const L& l) {
  if constexpr (requires {
                  { l.parameter_count() } -> std::convertible_to<std::size_t>;
                }) {
    return l.parameter_count();
  } else {
    return l.parameters().size();
  }
}

namespace detail {

/// A view as a matrix whose rows are its last dimension.
[[nodiscard]] inline tensor_view as_rows(const tensor_view& v) {
  const std::size_t width = v.extents().last();
  std::size_t rows = 1;
  for (std::size_t i = 0; i + 1 < v.dims(); ++i) rows *= v.extent(i);
  return v.reshape({rows, width});
}

/// A view as a vector.
[[nodiscard]] inline tensor_view as_vector(const tensor_view& v) { return v.reshape({v.count()}); }

/// `extents` without its last dimension.
[[nodiscard]] inline shape without_last(const shape& extents) {
  return shape{std::span{extents.begin(), extents.dims() == 0 ? 0 : extents.dims() - 1}};
}

}  // namespace detail

}  // namespace hetero
