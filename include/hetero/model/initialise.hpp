// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <hetero/core/hash.hpp>
#include <hetero/core/rng.hpp>
#include <hetero/model/parameter.hpp>

/// @file
/// Where parameters start. A value is a function of (seed, parameter name, element number), so every rank draws exactly
/// the elements it holds and all of them fit together.
namespace hetero {

namespace detail {

/// Calls `put(i, value)` for elements [begin, end) of one parameter, in order.
template <class Put>
void draw(const parameter_spec& spec, std::uint64_t seed, std::size_t begin, std::size_t end, Put&& put) {
  if (spec.init.how == initializer::kind::constant) {
    for (std::size_t i = begin; i < end; ++i) put(i, static_cast<float>(spec.init.value));
    return;
  }
  const std::uint64_t hash = stable_hash{}.add(spec.name).value();
  const counter_rng rng{seed, rng_purpose::initialise, static_cast<std::uint32_t>(hash ^ (hash >> 32U))};
  const auto scale = static_cast<float>(spec.init.value);
  const bool uniform = spec.init.how == initializer::kind::uniform;
  for (std::size_t i = begin; i < end;) {  // a block of the generator at a time
    const auto words = rng.block(i / 4);
    std::array<float, 4> values{};
    if (uniform) {
      for (std::size_t j = 0; j < 4; ++j) values[j] = 2 * counter_rng::to_unit(words[j]) - 1;
    } else {  // the two pairs of counter_rng::normal, each with one logarithm
      for (std::size_t j = 0; j < 4; j += 2) {
        const double angle = 6.283185307179586 * (static_cast<double>(words[j + 1]) * 0x1p-32);
        const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(words[j]) + 1.0) * 0x1p-32));
        values[j] = static_cast<float>(radius * std::cos(angle));
        values[j + 1] = static_cast<float>(radius * std::sin(angle));
      }
    }
    for (const std::size_t stop = std::min(end, (i / 4 + 1) * 4); i < stop; ++i) put(i, scale * values[i % 4]);
  }
}

}  // namespace detail

/// Writes the first values of elements [begin, end) of a parameter (numbered in row-major order of its global shape) to
/// `out`, which holds end - begin elements in host memory. Pure and thread-safe: ranges may be drawn in any order and
/// by any number of threads.
/// @throws error invalid_shape when the range or `out` does not fit, or `out` is not floating point
inline void initialise(const parameter_spec& spec, std::uint64_t seed, tensor_view out, std::size_t begin,
                       std::size_t end) {
  require(begin <= end && end <= spec.extents.count() && out.count() == end - begin && out.contiguous() &&
              is_floating(out.type()),
          errc::invalid_shape, [&] {
            return "cannot draw elements [" + std::to_string(begin) + ", " + std::to_string(end) + ") of '" +
                   spec.name + "' " + to_string(spec.extents) + " into " + to_string(out.extents()) + " of " +
                   to_string(out.type());
          });
  const auto into = [&](auto* values) {
    using element = std::remove_pointer_t<decltype(values)>;
    detail::draw(spec, seed, begin, end, [&](std::size_t i, float v) { values[i - begin] = static_cast<element>(v); });
  };
  switch (out.type()) {
    case dtype::f64:
      into(out.as<double>());
      break;
    case dtype::bf16:
      into(out.as<bfloat16>());
      break;
    case dtype::f16:
      into(out.as<float16>());
      break;
    default:
      into(out.as<float>());
      break;
  }
}

/// The whole parameter.
/// @throws error invalid_shape when `out` does not fit
inline void initialise(const parameter_spec& spec, std::uint64_t seed, tensor_view out) {
  initialise(spec, seed, out, 0, spec.extents.count());
}

}  // namespace hetero
