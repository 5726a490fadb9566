// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <pthread.h>
#include <time.h>

#include <hetero/core/error.hpp>

/// @file
/// The threads of one CPU device. They start once and sleep between kernels.
namespace hetero {

namespace detail {

/// CPU seconds the calling thread has used; unlike a wall clock it does not run while other jobs hold the core.
[[nodiscard]] inline double thread_cpu_s() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline void relax_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// A contiguous part of an index space.
struct index_range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Part `part` of [0, count) cut into `parts` pieces that differ by at most one.
[[nodiscard]] constexpr index_range even_part(std::size_t count, std::size_t parts, std::size_t part) noexcept {
  const std::size_t base = count / parts;
  const std::size_t rest = count % parts;
  const std::size_t begin = part * base + (part < rest ? part : rest);
  return {begin, begin + base + (part < rest ? 1 : 0)};
}

}  // namespace detail

/// How a `thread_team` behaves between kernels.
struct thread_team_options {
  std::string name = "hetero";  ///< threads are called name.1, name.2, ...; the system keeps 15 characters
  /// How long a waiting thread polls before it sleeps. Kernels of one layer follow each other within microseconds, a
  /// wake-up costs 5 to 50; longer polling steals time from other processes on the same cores.
  std::chrono::nanoseconds spin = std::chrono::microseconds{30};
};

/// A fixed number of threads that share loops; the calling thread is worker 0.
///
/// The partition depends on (count, grain, size) alone, so a sum of per-range sums has the same bits in every run.
/// Calls from several threads are legal: while the workers are taken, or inside a parallel loop, a caller runs all
/// ranges of its own loop itself, with the same partition.
class thread_team {
 public:
  /// Starts `threads - 1` workers.
  /// @throws error invalid_argument for 0 threads
  explicit thread_team(std::size_t threads, thread_team_options options = {}) : options_{std::move(options)} {
    require(threads > 0, errc::invalid_argument, "a CPU device needs at least one thread");
    if (threads > 1) shared_ = std::make_unique<shared_state>(threads);
    workers_.reserve(threads - 1);
    try {
      for (std::size_t worker = 1; worker < threads; ++worker) {
        workers_.emplace_back([this, worker] { work(worker); });
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  thread_team(const thread_team&) = delete;
  thread_team& operator=(const thread_team&) = delete;
  ~thread_team() { stop(); }

  [[nodiscard]] std::size_t size() const noexcept { return workers_.size() + 1; }

  /// Into how many ranges `parallel` cuts [0, count): as many as threads, fewer when a range would be below `grain`.
  [[nodiscard]] std::size_t ranges(std::size_t count, std::size_t grain) const noexcept {
    const std::size_t most = grain == 0 ? count : count / grain;
    return most < 2 ? 1 : (most < size() ? most : size());
  }

  /// Calls f(begin, end, worker) on disjoint contiguous ranges that cover [0, count), each at least `grain` long unless
  /// there is one only; worker < ranges(count, grain) names the range, so it can index per-range results. Blocking.
  /// An exception of f is rethrown here after all ranges ended; of several, that of the lowest range.
  template <class F> void parallel(std::size_t count, std::size_t grain, F&& f) {
    const std::size_t parts = ranges(count, grain);
    if (parts == 1) {
      if (count > 0) f(std::size_t{0}, count, std::size_t{0});
      return;
    }
    if (shared_->taken.exchange(true, std::memory_order_acquire)) {
      for (std::size_t part = 0; part < parts; ++part) {
        const auto [begin, end] = detail::even_part(count, parts, part);
        f(begin, end, part);
      }
      return;
    }
    using function = std::remove_reference_t<F>;
    run_shared({count, parts, const_cast<void*>(static_cast<const void*>(std::addressof(f))),
                [](void* context, std::size_t begin, std::size_t end, std::size_t worker) {
                  (*static_cast<function*>(context))(begin, end, worker);
                }});
  }

  /// CPU seconds by which the busiest worker exceeded the caller, over the parallel loops since the last call. With the
  /// caller's own CPU time it gives the time the device needed.
  [[nodiscard]] double take_excess_s() noexcept {
    return shared_ ? shared_->excess_s.exchange(0.0, std::memory_order_relaxed) : 0.0;
  }

 private:
  using clock = std::chrono::steady_clock;

  struct job {
    std::size_t count = 0;
    std::size_t parts = 0;
    void* context = nullptr;
    void (*call)(void*, std::size_t, std::size_t, std::size_t) = nullptr;

    void run(std::size_t part) const {
      const auto [begin, end] = detail::even_part(count, parts, part);
      call(context, begin, end, part);
    }
  };

  struct alignas(64) slot {
    std::exception_ptr failure;
    double cpu_s = 0;
  };

  struct shared_state {
    explicit shared_state(std::size_t threads) : slots(threads) {}
    alignas(64) std::atomic<std::uint32_t> round{0};  ///< a new value announces a job; workers wait on it
    alignas(64) std::atomic<std::uint32_t> running{0};
    std::atomic<bool> taken{false};
    std::atomic<bool> stopping{false};
    std::atomic<double> excess_s{0};
    job current;
    std::vector<slot> slots;
  };

  /// Returns once `value` differs from `old`: polls for `options_.spin`, then sleeps.
  void await_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) const {
    for (int i = 0; i < 64; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      detail::relax_cpu();
    }
    const auto give_up = clock::now() + options_.spin;
    while (clock::now() < give_up) {
      for (int i = 0; i < 16; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        detail::relax_cpu();
      }
    }
    value.wait(old, std::memory_order_acquire);
  }

  void run_shared(const job& work) {
    shared_state& s = *shared_;
    s.current = work;
    s.running.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
    s.round.fetch_add(1, std::memory_order_release);
    s.round.notify_all();

    const double start_s = detail::thread_cpu_s();
    try {
      work.run(0);
    } catch (...) {
      s.slots[0].failure = std::current_exception();
    }
    const double own_s = detail::thread_cpu_s() - start_s;

    for (std::uint32_t left = s.running.load(std::memory_order_acquire); left != 0;
         left = s.running.load(std::memory_order_acquire)) {
      await_change(s.running, left);
    }
    double most_s = own_s;
    std::exception_ptr failure;
    for (slot& each : s.slots) {
      if (each.cpu_s > most_s) most_s = each.cpu_s;
      if (each.failure && !failure) failure = each.failure;
      each = {};
    }
    s.excess_s.store(s.excess_s.load(std::memory_order_relaxed) + (most_s - own_s), std::memory_order_relaxed);
    s.taken.store(false, std::memory_order_release);
    if (failure) std::rethrow_exception(failure);
  }

  void work(std::size_t worker) {
    ::pthread_setname_np(::pthread_self(), (options_.name + '.' + std::to_string(worker)).substr(0, 15).c_str());
    shared_state& s = *shared_;
    for (std::uint32_t seen = 0;;) {
      await_change(s.round, seen);
      ++seen;  // the caller waits for every worker, so no round is skipped
      if (s.stopping.load(std::memory_order_relaxed)) return;
      if (worker < s.current.parts) {
        const double start_s = detail::thread_cpu_s();
        try {
          s.current.run(worker);
        } catch (...) {
          s.slots[worker].failure = std::current_exception();
        }
        s.slots[worker].cpu_s = detail::thread_cpu_s() - start_s;
      }
      if (s.running.fetch_sub(1, std::memory_order_acq_rel) == 1) s.running.notify_one();
    }
  }

  void stop() noexcept {
    if (!shared_) return;
    shared_->stopping.store(true, std::memory_order_relaxed);
    shared_->round.fetch_add(1, std::memory_order_release);
    shared_->round.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  thread_team_options options_;
  std::unique_ptr<shared_state> shared_;
  std::vector<std::thread> workers_;
};

}  // namespace hetero
