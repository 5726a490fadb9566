// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <hetero/core/hash.hpp>
#include <hetero/data/concepts.hpp>
#include <hetero/data/sampler.hpp>

namespace hetero {

/// How a data set is cut into steps.
struct batch_options {
  std::uint64_t global_batch = 0;  ///< samples per step over all ranks; required
  std::uint64_t seed = 0;          ///< of the order
  bool shuffle = true;
  bool drop_last = false;  ///< skip a last, smaller step of an epoch
};

/// A data set cut into steps: the thing a trainer iterates. Copies share the data, so they are cheap.
template <dataset Dataset> class batches {
 public:
  /// Takes the data set; give a shared_ptr instead where copying it is dear.
  /// @throws error invalid_argument for a global batch of 0
  batches(Dataset data, const batch_options& options)
      : batches{std::make_shared<const Dataset>(std::move(data)), options} {}

  /// @throws error invalid_argument for a global batch of 0 or a missing data set
  batches(std::shared_ptr<const Dataset> data, const batch_options& options)
      : data_{std::move(data)}, options_{options} {
    require(data_ != nullptr, errc::invalid_argument, "batches of no data set");
    require(options.global_batch > 0, errc::invalid_argument,
            "the global batch is 0; set .global_batch to the samples per step over all ranks");
  }

  [[nodiscard]] const Dataset& data() const noexcept { return *data_; }
  [[nodiscard]] const batch_options& options() const noexcept { return options_; }

  /// The order of samples as a value.
  [[nodiscard]] epoch_sampler sampler() const {
    return {.samples = data_->size(),
            .global_batch = options_.global_batch,
            .seed = options_.seed,
            .shuffle = options_.shuffle,
            .drop_last = options_.drop_last};
  }

  [[nodiscard]] std::uint64_t global_batch() const noexcept { return options_.global_batch; }
  /// @throws error invalid_argument when the data set is empty
  [[nodiscard]] std::uint64_t steps_per_epoch() const { return sampler().steps_per_epoch(); }
  /// Global ids of one step.
  /// @throws error invalid_argument when the data set is empty
  [[nodiscard]] std::vector<std::uint64_t> sample_ids(std::uint64_t step) const { return sampler().ids(step); }

  /// These samples in this order; blocking, thread-safe.
  [[nodiscard]] batch load(std::span<const std::uint64_t> ids) const {
    batch out;
    data_->load(ids, out);
    return out;
  }
  /// The same into `out`, whose storage is used again.
  void load(std::span<const std::uint64_t> ids, batch& out) const { data_->load(ids, out); }

  /// Equal where content, order and batch size are equal; ranks compare it, and a resumed run does.
  [[nodiscard]] std::uint64_t fingerprint() const {
    return stable_hash{}.add(data_->fingerprint()).add(sampler().fingerprint()).value();
  }

  /// The same steps over windows of `context`, where the data set was left without one; a context that was chosen
  /// stays. The trainer calls it with the context of its model.
  [[nodiscard]] batches with_context(std::uint64_t context) const requires requires(const Dataset& d) {
    { d.with_context(context) } -> std::same_as<Dataset>;
  }
  { return batches{data_->with_context(context), options_}; }

 private:
  std::shared_ptr<const Dataset> data_;
  batch_options options_;
};

}  // namespace hetero
