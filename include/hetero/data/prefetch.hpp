// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/data/concepts.hpp>

namespace hetero {

/// Which samples of a step this rank works on: from the step and all of its global ids to those to load, in order. None
/// is legal. Runs on the prefetching thread.
using share_selector =
    std::function<std::vector<std::uint64_t>(std::uint64_t step, std::span<const std::uint64_t> ids)>;

struct prefetch_options {
  std::uint64_t first_step = 0;
  std::size_t depth = 2;                      ///< steps loaded ahead, at most; 0 counts as 1
  std::chrono::milliseconds timeout{60'000};  ///< longest wait for one step
};

/// One step as it was loaded.
struct prefetched {
  std::uint64_t step = 0;
  std::uint64_t step_samples = 0;  ///< samples of the step over all ranks
  batch share{};                   ///< the samples this rank selected
};

/// Loads the coming steps' share on a background thread, a bounded number of steps ahead, in step order.
///
/// One consumer thread calls `next` and `reseek`. The destructor stops the thread; it waits only for a load in
/// progress.
template <batch_source Source> class prefetch {
 public:
  /// Starts loading at once.
  /// @throws error invalid_argument without a selector
  prefetch(Source source, share_selector select, const prefetch_options& options = {})
      : source_{std::move(source)}, options_{options}, select_{std::move(select)}, next_load_{options.first_step} {
    require(select_ != nullptr, errc::invalid_argument, "prefetching needs a selector of this rank's share");
    if (options_.depth == 0) options_.depth = 1;
    worker_ = std::thread{[this] { work(); }};
  }
  prefetch(const prefetch&) = delete;
  prefetch& operator=(const prefetch&) = delete;
  ~prefetch() {
    {
      const std::lock_guard lock{mutex_};
      stopping_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  /// The next step in order; blocks until it is loaded.
  /// @throws whatever loading that step threw, each time until `reseek`; error timeout when loading takes longer than
  ///         the timeout
  [[nodiscard]] prefetched next() {
    std::unique_lock lock{mutex_};
    const bool arrived =
        changed_.wait_for(lock, options_.timeout, [&] { return !ready_.empty() || failure_ != nullptr; });
    if (!arrived) {
      throw error{errc::timeout,
                  "loading step " + std::to_string(next_load_) + " took longer than " +
                      std::to_string(options_.timeout.count()) +
                      " ms; is the data on a stalled disk or network? A larger timeout would wait longer"};
    }
    if (ready_.empty()) std::rethrow_exception(failure_);
    prefetched item = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return item;
  }

  /// Drops what was loaded and goes on at `step` with another selection, for example after the shares changed.
  /// @throws error invalid_argument without a selector
  void reseek(std::uint64_t step, share_selector select) {
    require(select != nullptr, errc::invalid_argument, "prefetching needs a selector of this rank's share");
    {
      const std::lock_guard lock{mutex_};
      ++generation_;
      ready_.clear();
      failure_ = nullptr;
      next_load_ = step;
      select_ = std::move(select);
    }
    changed_.notify_all();
  }

 private:
  void work() {
    std::unique_lock lock{mutex_};
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || (ready_.size() < options_.depth && failure_ == nullptr); });
      if (stopping_) return;
      const std::uint64_t generation = generation_;
      const share_selector select = select_;
      prefetched item{.step = next_load_, .step_samples = 0, .share = {}};
      std::exception_ptr failure;
      lock.unlock();
      try {
        const std::vector<std::uint64_t> ids = source_.sample_ids(item.step);
        item.step_samples = ids.size();
        item.share = source_.load(select(item.step, ids));
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (generation != generation_) continue;  // a reseek came meanwhile: this load answers an old question
      if (failure != nullptr) {
        failure_ = failure;
      } else {
        ready_.push_back(std::move(item));
        ++next_load_;
      }
      changed_.notify_all();
    }
  }

  const Source source_;
  prefetch_options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<prefetched> ready_;  // in step order: one thread loads
  std::exception_ptr failure_;
  share_selector select_;
  std::uint64_t next_load_;
  std::uint64_t generation_ = 0;
  bool stopping_ = false;
  std::thread worker_;
};

}  // namespace hetero
