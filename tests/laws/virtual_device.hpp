// SPDX-License-Identifier: Apache-2.0
// A CPU device that counts virtual seconds: each sample it trains or scores costs a fixed time at its speed, with noise
// on request. What depends on speeds can be tested without a clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <variant>

#include <hetero/core/rng.hpp>
#include <hetero/device/cpu_device.hpp>

namespace hetero::test {

/// Copies share the device.
class virtual_device {
 public:
  explicit virtual_device(double samples_per_second, double noise = 0, std::uint64_t seed = 1)
      : self_{std::make_shared<state>()} {
    self_->speed = samples_per_second;
    self_->noise = noise;
    self_->seed = seed;
  }

  /// Samples per second from now on. Any thread.
  void set_speed(double samples_per_second) { self_->speed.store(samples_per_second); }

  [[nodiscard]] device_id id() const noexcept { return self_->inner.id(); }
  [[nodiscard]] std::size_t threads() const noexcept { return 1; }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return self_->inner.budget_bytes(); }
  [[nodiscard]] device_counters counters() const {
    device_counters counters = self_->inner.counters();
    const std::scoped_lock lock{self_->mutex};
    counters.busy_s = self_->busy_s;
    return counters;
  }
  [[nodiscard]] stream_id create_stream() { return self_->inner.create_stream(); }
  void destroy_stream(stream_id s) noexcept { self_->inner.destroy_stream(s); }
  [[nodiscard]] void* allocate(std::size_t bytes, stream_id s) { return self_->inner.allocate(bytes, s); }
  void deallocate(void* p, std::size_t bytes, stream_id s) noexcept { self_->inner.deallocate(p, bytes, s); }
  void copy(tensor_view to, tensor_view from, stream_id s) { self_->inner.copy(to, from, s); }
  void order(stream_id earlier, stream_id later) { self_->inner.order(earlier, later); }
  void synchronize(stream_id s) { self_->inner.synchronize(s); }

  /// The loss is the one op that runs once per micro-batch and sees all of its samples.
  void launch(const device_op& op, stream_id s) {
    self_->inner.launch(op, s);
    const auto* const loss = std::get_if<op::cross_entropy>(&op);
    if (loss == nullptr) return;
    const std::scoped_lock lock{self_->mutex};
    const counter_rng rng{self_->seed, rng_purpose::shuffle, 0};
    const double deviation = 2 * static_cast<double>(counter_rng::to_unit(rng.block(self_->calls++)[0])) - 1;
    self_->busy_s += static_cast<double>(loss->targets.count()) / self_->speed.load() * (1 + self_->noise * deviation);
  }

 private:
  struct state {
    cpu_device inner;
    std::atomic<double> speed{1};
    double noise = 0;
    std::uint64_t seed = 1;
    mutable std::mutex mutex;
    double busy_s = 0;
    std::uint64_t calls = 0;
  };
  std::shared_ptr<state> self_;
};
static_assert(device_backend<virtual_device>);

}  // namespace hetero::test
