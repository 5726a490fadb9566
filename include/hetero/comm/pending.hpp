// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace hetero {

namespace detail {

/// How an operation on another thread ended.
struct async_task {
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
  std::exception_ptr error;

  void finish(std::exception_ptr why) noexcept {
    const std::lock_guard lock{mutex};
    error = std::move(why);
    done = true;
    finished.notify_all();
  }

  void wait() {
    std::unique_lock lock{mutex};
    finished.wait(lock, [&] { return done; });
  }
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
