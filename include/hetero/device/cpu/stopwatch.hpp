// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/op/op.hpp>

namespace hetero::detail::cpu {

/// Elements of the operand that dominates the work of an op; a guess that only chooses the clock.
template <class Op> [[nodiscard]] inline std::size_t work_hint(const Op& o) noexcept {
  if constexpr (requires { o.a, o.b, o.transpose_a; })
    return o.a.count() + o.b.count() + o.out.count();
  else if constexpr (requires { o.qkv; })
    return 64 * o.qkv.count();
  else if constexpr (requires { o.logits; })
    return 8 * o.logits.count();
  else if constexpr (requires { o.grad_out; })
    return o.grad_out.count();
  else if constexpr (requires { o.in; })
    return o.in.count();
  else if constexpr (requires { o.from; })
    return o.from.count();
  else if constexpr (requires { o.param; })
    return o.param.count();
  else if constexpr (requires { o.values; })
    return o.values.count();
  else if constexpr (requires { o.out; })
    return o.out.count();
  else
    return static_cast<std::size_t>(-1);
}

/// Seconds the device computed: CPU time of the calling thread, plus what the busiest worker used beyond it. Time in
/// which another job held the core does not count.
///
/// Reading the thread's CPU clock is a system call of 0.2 us. Work of a few microseconds is timed by the wall clock
/// instead, limited to what such work can take: then a launch of a small op stays below 0.2 us in all.
class stopwatch {
 public:
  explicit stopwatch(std::size_t work) noexcept
      : small_{work < 4096}, wall_{small_ ? clock::now() : clock::time_point{}}, cpu_s_{small_ ? 0 : thread_cpu_s()} {}

  [[nodiscard]] double elapsed_s(thread_team& team) const noexcept {
    constexpr double most_s = 100e-6;
    if (small_) return std::min(most_s, std::chrono::duration<double>(clock::now() - wall_).count());
    return thread_cpu_s() - cpu_s_ + team.take_excess_s();
  }

 private:
  using clock = std::chrono::steady_clock;
  bool small_;
  clock::time_point wall_;
  double cpu_s_;
};

}  // namespace hetero::detail::cpu
