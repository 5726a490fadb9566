// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace hetero {

namespace detail {

/// One queued operation and how it ended.
struct async_task {
  std::function<void()> work;
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
  std::exception_ptr error;

  void run() noexcept {
    std::exception_ptr caught;
    try {
      work();
    } catch (...) {
      caught = std::current_exception();
    }
    work = nullptr;
    const std::lock_guard lock{mutex};
    error = std::move(caught);
    done = true;
    finished.notify_all();
  }

  void wait() {
    std::unique_lock lock{mutex};
    finished.wait(lock, [&] { return done; });
  }
};

/// A thread that runs tasks in the order in which they came. The destructor finishes them all.
class progress_thread {
 public:
  progress_thread() : thread_{[this] { loop(); }} {}
  progress_thread(const progress_thread&) = delete;
  progress_thread& operator=(const progress_thread&) = delete;
  ~progress_thread() {
    {
      const std::lock_guard lock{mutex_};
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void submit(std::shared_ptr<async_task> task) {
    {
      const std::lock_guard lock{mutex_};
      queue_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void loop() {
    std::unique_lock lock{mutex_};
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::shared_ptr<async_task> task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task->run();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<async_task>> queue_;
  bool stopping_ = false;
  std::thread thread_;  // last: it starts with everything above in place
};

}  // namespace detail

/// An asynchronous operation. Its memory belongs to the operation until `wait` returned; the destructor waits too and
/// drops an error, which the world's next operation reports again.
class pending {
 public:
  pending() = default;
  explicit pending(std::shared_ptr<detail::async_task> task) noexcept : task_{std::move(task)} {}
  pending(pending&&) noexcept = default;
  pending& operator=(pending&& other) noexcept {
    settle();
    task_ = std::move(other.task_);
    return *this;
  }
  pending(const pending&) = delete;
  pending& operator=(const pending&) = delete;
  ~pending() { settle(); }

  /// Blocks until the operation ended, which its own deadline bounds. A second call returns at once.
  /// @throws error what the operation threw
  void wait() {
    const auto task = std::exchange(task_, nullptr);
    if (!task) return;
    task->wait();
    // Taken out, so that the exception ends with its reader and not whenever the thread lets go of the task.
    if (const std::exception_ptr error = std::exchange(task->error, nullptr)) std::rethrow_exception(error);
  }

  /// True when `wait` would not block. Never blocks.
  [[nodiscard]] bool ready() const {
    if (!task_) return true;
    const std::lock_guard lock{task_->mutex};
    return task_->done;
  }

 private:
  void settle() noexcept {
    if (!task_) return;
    task_->wait();
    task_->error = nullptr;
    task_.reset();
  }
  std::shared_ptr<detail::async_task> task_;
};

}  // namespace hetero
