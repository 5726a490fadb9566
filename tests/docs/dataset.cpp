// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <hetero/core/hash.hpp>
#include <hetero/data/batches.hpp>

// [dataset]
struct parity {
  std::uint64_t size() const { return 1024; }
  hetero::shape input_shape() const { return {10}; }
  hetero::shape target_shape() const { return {}; }
  hetero::dtype input_type() const { return hetero::dtype::f32; }
  hetero::dtype target_type() const { return hetero::dtype::i32; }
  std::uint64_t fingerprint() const { return hetero::stable_hash{}.add("parity of 10 bits").value(); }

  void load(std::span<const std::uint64_t> ids, hetero::batch& out) const {
    out.prepare(ids, input_type(), input_shape(), target_type(), target_shape());
    const auto inputs = out.inputs.elements<float>();
    const auto targets = out.targets.elements<std::int32_t>();
    for (std::size_t row = 0; row < ids.size(); ++row) {
      hetero::require(ids[row] < size(), hetero::errc::invalid_argument, "parity has 1024 samples");
      for (std::size_t bit = 0; bit < 10; ++bit) inputs[10 * row + bit] = (ids[row] >> bit & 1U) != 0 ? 1.0F : -1.0F;
      targets[row] = std::popcount(ids[row]) % 2;
    }
  }
};
static_assert(hetero::dataset<parity>);
// [dataset]

int main() {
  const hetero::batches steps{parity{}, {.global_batch = 100}};
  std::int64_t odd = 0;
  std::uint64_t samples = 0;
  for (std::uint64_t step = 0; step < steps.steps_per_epoch(); ++step) {
    const hetero::batch loaded = steps.load(steps.sample_ids(step));
    const auto targets = loaded.targets.elements<std::int32_t>();
    odd += std::accumulate(targets.begin(), targets.end(), std::int64_t{0});
    samples += loaded.size();
  }
  return samples == 1024 && odd == 512 ? 0 : 1;
}
