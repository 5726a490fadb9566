// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <time.h>

#include <hetero/device/concepts.hpp>

namespace hetero {

/// The speed of an emulated slow device, as a handle that other threads may turn while the device works. Copies share
/// the speed.
class throttle_control {
 public:
  /// @throws error invalid_argument unless 0 < speed <= 1
  explicit throttle_control(double speed) : speed_{std::make_shared<std::atomic<double>>(checked(speed))} {}

  /// Work that begins from now on runs at `speed` times the real device's. Thread-safe.
  /// @throws error invalid_argument unless 0 < speed <= 1
  void set_speed(double speed) { speed_->store(checked(speed), std::memory_order_relaxed); }
  [[nodiscard]] double speed() const noexcept { return speed_->load(std::memory_order_relaxed); }

 private:
  static double checked(double speed) {
    require(speed > 0 && speed <= 1, errc::invalid_argument, [&] {
      return "an emulated speed is a share of the real device's, above 0 and at most 1; got " + std::to_string(speed);
    });
    return speed;
  }
  std::shared_ptr<std::atomic<double>> speed_;
};

namespace detail {

/// What an emulated device still has to wait, and the waiting.
///
/// Sleeps are at least 2 ms, so that the system's wake-up delay stays a small part, and end at an absolute time;
/// sleeping too long is credited to the next debt, so errors do not add up. The credit is bounded: a machine that was
/// suspended must not emulate an infinitely fast device afterwards.
class throttle_debt {
 public:
  static constexpr double shortest_sleep_s = 0.002;
  static constexpr double largest_credit_s = 0.020;

  void owe(double seconds) noexcept { debt_s_ += seconds; }

  /// Blocks until what is owed is paid, if it is worth a sleep.
  void pay() noexcept {
    debt_s_ = std::max(debt_s_, -largest_credit_s);
    if (debt_s_ < shortest_sleep_s) return;
    const double start_s = now_s();
    const double until_s = start_s + debt_s_;
    timespec until{};
    until.tv_sec = static_cast<time_t>(until_s);
    until.tv_nsec = static_cast<long>((until_s - static_cast<double>(until.tv_sec)) * 1e9);
    while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {}
    debt_s_ -= now_s() - start_s;
  }

 private:
  [[nodiscard]] static double now_s() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
  double debt_s_ = 0;
};

}  // namespace detail

/// An *emulated* slow device: does the real work on `D`, then sleeps so that in all it took 1 / speed times as long.
///
/// What counts is the inner device's `busy_s` (for a CPU the CPU time of its busiest thread), so a core that another
/// job holds does not slow it further. The debt is paid in the calling thread as soon as it reaches 2 ms, during
/// `launch`, `copy` or `synchronize`; a rest below 2 ms is carried over. `counters().busy_s` includes the emulated time
/// at once.
template <device_backend D> class throttled_device {
 public:
  /// @throws error invalid_argument unless 0 < speed <= 1
  throttled_device(D inner, double speed) : throttled_device{std::move(inner), throttle_control{speed}} {}
  throttled_device(D inner, throttle_control control)
      : inner_{std::move(inner)}, control_{std::move(control)}, self_{std::make_unique<state>()} {
    self_->seen_s = inner_.counters().busy_s;
  }

  /// The handle that changes the speed during a run.
  [[nodiscard]] throttle_control control() const noexcept { return control_; }

  [[nodiscard]] device_id id() const noexcept { return inner_.id(); }
  [[nodiscard]] std::size_t threads() const noexcept { return inner_.threads(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return inner_.budget_bytes(); }
  [[nodiscard]] device_counters counters() const {
    device_counters result = inner_.counters();
    const std::scoped_lock lock{self_->mutex};
    result.busy_s += self_->emulated_s;
    return result;
  }

  [[nodiscard]] stream_id create_stream() { return inner_.create_stream(); }
  void destroy_stream(stream_id s) noexcept { inner_.destroy_stream(s); }
  [[nodiscard]] void* allocate(std::size_t bytes, stream_id s) { return inner_.allocate(bytes, s); }
  void deallocate(void* p, std::size_t bytes, stream_id s) noexcept { inner_.deallocate(p, bytes, s); }

  void copy(tensor_view to, tensor_view from, stream_id s) {
    const double speed = control_.speed();
    inner_.copy(to, from, s);
    settle(speed);
  }
  void launch(const device_op& op, stream_id s) {
    const double speed = control_.speed();
    inner_.launch(op, s);
    settle(speed);
  }
  void order(stream_id earlier, stream_id later) { inner_.order(earlier, later); }
  void synchronize(stream_id s) {
    const double speed = control_.speed();
    inner_.synchronize(s);
    settle(speed);
  }

 private:
  struct state {
    mutable std::mutex mutex;  ///< guards the two figures
    double seen_s = 0;         ///< the inner busy_s that was accounted for
    double emulated_s = 0;     ///< seconds added to it
    std::mutex turn;           ///< held while sleeping: the device is busy, so other threads' work on it waits as well
    detail::throttle_debt debt;
  };

  /// Turns what the inner device computed since the last call into debt, and pays.
  void settle(double speed) {
    double owed_s = 0;
    {
      const std::scoped_lock lock{self_->mutex};
      const double busy_s = inner_.counters().busy_s;
      owed_s = (1 / speed - 1) * (busy_s - self_->seen_s);
      self_->seen_s = busy_s;
      self_->emulated_s += owed_s;
    }
    const std::scoped_lock lock{self_->turn};
    self_->debt.owe(owed_s);
    self_->debt.pay();
  }

  D inner_;
  throttle_control control_;
  std::unique_ptr<state> self_;
};

}  // namespace hetero
