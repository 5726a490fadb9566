// SPDX-License-Identifier: Apache-2.0
// A device that does nothing until it must: every stream is a queue, and a launch, copy or deallocation runs only when
// a synchronize needs it or an order() leads to it. New memory is full of NaNs. Code that forgets to order two streams,
// or reads before it synchronizes, computes with NaNs or stale values here, while it is right by luck on a CPU device.
#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <hetero/device/cpu_device.hpp>

namespace hetero::test {

/// Copies share the device. Errors of queued work are thrown by the synchronize that runs it.
class deferred_device {
 public:
  explicit deferred_device(cpu_device_options options = {}) : self_{std::make_shared<state>(std::move(options))} {}

  [[nodiscard]] device_id id() const noexcept { return self_->inner.id(); }
  [[nodiscard]] std::size_t threads() const noexcept { return self_->inner.threads(); }
  [[nodiscard]] device_counters counters() const { return self_->inner.counters(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return self_->inner.budget_bytes(); }

  [[nodiscard]] stream_id create_stream() {
    const std::scoped_lock lock{self_->mutex};
    const stream_id s = self_->inner.create_stream();
    self_->queues[s];
    return s;
  }
  /// Runs what is left on the stream; a failure of it is lost, as there is nobody to tell.
  void destroy_stream(stream_id s) noexcept {
    const std::scoped_lock lock{self_->mutex};
    if (self_->queues.contains(s)) self_->run_out(s);
    self_->queues.erase(s);
    self_->inner.destroy_stream(s);
  }

  [[nodiscard]] void* allocate(std::size_t bytes, stream_id s) {
    const std::scoped_lock lock{self_->mutex};
    void* const memory = self_->inner.allocate(bytes, s);
    std::memset(memory, 0xff, bytes);
    return memory;
  }
  /// The memory stays until the stream gets there, and is filled with NaNs first.
  void deallocate(void* memory, std::size_t bytes, stream_id s) noexcept {
    const std::scoped_lock lock{self_->mutex};
    const auto release = [self = self_.get(), memory, bytes, s] {
      std::memset(memory, 0xff, bytes);
      self->inner.deallocate(memory, bytes, s);
    };
    if (self_->queues.contains(s)) {
      self_->push(s, release);
    } else {
      release();
    }
  }

  void copy(tensor_view to, tensor_view from, stream_id s) {
    const std::scoped_lock lock{self_->mutex};
    self_->expect_alive(s);
    self_->push(s, [self = self_.get(), to, from, s] { self->inner.copy(to, from, s); });
  }
  void launch(const device_op& op, stream_id s) {
    const std::scoped_lock lock{self_->mutex};
    self_->expect_alive(s);
    self_->push(s, [self = self_.get(), op, s] { self->inner.launch(op, s); });
  }
  void order(stream_id earlier, stream_id later) {
    const std::scoped_lock lock{self_->mutex};
    self_->expect_alive(earlier);
    self_->expect_alive(later);
    self_->push(later, [self = self_.get(), earlier, until = self_->queues[earlier].issued] {
      if (self->queues.contains(earlier)) self->run(earlier, until);
    });
  }
  void synchronize(stream_id s) {
    const std::scoped_lock lock{self_->mutex};
    self_->expect_alive(s);
    self_->run(s, self_->queues[s].issued);
  }

  /// Pieces of work that wait on a stream: for tests of the tests.
  [[nodiscard]] std::size_t pending(stream_id s) const {
    const std::scoped_lock lock{self_->mutex};
    return self_->queues.at(s).waiting.size();
  }

 private:
  struct queue {
    std::deque<std::function<void()>> waiting;
    std::size_t issued = 0;  ///< pieces ever queued
    std::size_t begun = 0;   ///< pieces ever taken out
  };

  struct state {
    explicit state(cpu_device_options options) : inner{std::move(options)} {}
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() {
      for (auto& [s, unused] : queues) run_out(s);  // deallocations may wait there
    }

    void expect_alive(stream_id s) { inner.synchronize(s); }  // its own check names the stream
    void push(stream_id s, std::function<void()> work) {
      queues[s].waiting.push_back(std::move(work));
      ++queues[s].issued;
    }
    void run(stream_id s, std::size_t until) {
      queue& q = queues[s];
      while (q.begun < until) {
        const std::function<void()> work = std::move(q.waiting.front());
        q.waiting.pop_front();
        ++q.begun;
        work();
      }
    }

    void run_out(stream_id s) noexcept {
      while (queues[s].begun < queues[s].issued) {
        try {
          run(s, queues[s].issued);
        } catch (const std::exception&) {  // the piece that failed is out of the queue
        }
      }
    }

    mutable std::recursive_mutex mutex;
    cpu_device inner;
    std::map<stream_id, queue> queues;
  };

  std::shared_ptr<state> self_;
};

static_assert(device_backend<deferred_device>, "the test double must model device_backend");

}  // namespace hetero::test
