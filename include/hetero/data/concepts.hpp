// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include <hetero/data/batch.hpp>

/// @file
/// What the trainer asks of data. The full tables are in docs/concepts/dataset.md.
namespace hetero {

/// A finite set of samples with ids 0 to size() - 1, each a pure function of its id.
///
/// | expression | result | meaning |
/// |---|---|---|
/// | `d.size()` | `uint64_t` | samples in one epoch |
/// | `d.input_shape()`, `d.target_shape()` | `shape` | of one sample; a scalar has no dimensions |
/// | `d.input_type()`, `d.target_type()` | `dtype` | element types |
/// | `d.load(ids, out)` | | makes `out` exactly these samples in this order; blocking |
/// | `d.fingerprint()` | `uint64_t` | equal only where content and settings are equal |
///
/// Several threads may call `load` at once with different `out`. An empty list is legal; an id outside the set throws
/// `invalid_argument`. Ranks and resumed runs compare fingerprints.
///
/// The concept cannot check purity and thread safety; the tests of a dataset must.
template <class D>
concept dataset = requires(const D& d, std::span<const std::uint64_t> ids, batch& out) {
  { d.size() } -> std::same_as<std::uint64_t>;
  { d.input_shape() } -> std::convertible_to<shape>;
  { d.target_shape() } -> std::convertible_to<shape>;
  { d.input_type() } -> std::same_as<dtype>;
  { d.target_type() } -> std::same_as<dtype>;
  { d.load(ids, out) } -> std::same_as<void>;
  { d.fingerprint() } -> std::same_as<std::uint64_t>;
};

/// An endless sequence of global batches, each a pure function of its step, so a cursor is one number and any rank can
/// load any part of any step.
///
/// | expression | result | meaning |
/// |---|---|---|
/// | `s.global_batch()` | `uint64_t` | most samples in one step over all ranks |
/// | `s.steps_per_epoch()` | `uint64_t` | |
/// | `s.sample_ids(step)` | `vector<uint64_t>` | global ids of that step; never empty |
/// | `s.load(ids)` | `batch` | blocking; thread-safe |
/// | `s.fingerprint()` | `uint64_t` | of data, order and batch size |
template <class S>
concept batch_source = std::copyable<S> &&
    requires(const S& s, std::uint64_t step, std::span<const std::uint64_t> ids) {
  { s.global_batch() } -> std::same_as<std::uint64_t>;
  { s.steps_per_epoch() } -> std::same_as<std::uint64_t>;
  { s.sample_ids(step) } -> std::same_as<std::vector<std::uint64_t>>;
  { s.load(ids) } -> std::same_as<batch>;
  { s.fingerprint() } -> std::same_as<std::uint64_t>;
};

}  // namespace hetero
