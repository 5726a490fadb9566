// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include <hetero/device/concepts.hpp>
#include <hetero/device/cpu/accounting.hpp>
#include <hetero/device/cpu/compute.hpp>
#include <hetero/device/cpu/convert.hpp>
#include <hetero/device/cpu/memory.hpp>
#include <hetero/device/cpu/stopwatch.hpp>
#include <hetero/device/cpu/stream_table.hpp>

namespace hetero {

struct cpu_device_options {
  std::size_t threads = 1;
  std::uint16_t ordinal = 0;     ///< index among the CPU devices of this process
  std::size_t budget_bytes = 0;  ///< 0: the machine's physical memory
  thread_team_options team{};
};

/// Some threads of this machine as a device. Work is done before a call returns, so streams are ordered by
/// construction; their ids are checked all the same, so that a program that is right here is right on a device that
/// runs later.
///
/// Copies share the device. BLAS is kept to one thread in the whole process, and the device's threads share each
/// product. `counters().busy_s` is CPU time (see detail::cpu::stopwatch): waiting for other jobs does not count.
class cpu_device {
 public:
  /// Starts the threads beyond the caller's.
  /// @throws error invalid_argument for 0 threads
  explicit cpu_device(cpu_device_options options = {}) : self_{std::make_shared<state>(std::move(options))} {}

  [[nodiscard]] device_id id() const noexcept { return self_->id; }
  [[nodiscard]] std::size_t threads() const noexcept { return self_->team.size(); }
  [[nodiscard]] device_counters counters() const noexcept { return self_->count.counters(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return self_->count.budget_bytes(); }

  /// @throws error out_of_memory beyond 1024 live streams
  [[nodiscard]] stream_id create_stream() { return self_->streams.create(); }
  void destroy_stream(stream_id s) noexcept { self_->streams.destroy(s); }

  /// 64-byte aligned memory, large blocks on huge pages where the system grants them. The contents are undefined.
  /// @throws error out_of_memory, invalid_argument for a stream that is not alive here
  [[nodiscard]] void* allocate(std::size_t bytes, stream_id s) {
    self_->streams.expect_alive(s, id(), "allocate");
    self_->count.reserve(bytes, id());
    void* const memory = detail::cpu::allocate_memory(bytes);
    if (memory == nullptr) {
      self_->count.release(bytes);
      throw error{errc::out_of_memory,
                  "the system has no " + std::to_string(bytes) + " bytes left",
                  {.rank = {}, .device = id()}};
    }
    self_->count.count_allocation(bytes);
    return memory;
  }

  /// `bytes` must be what was asked for.
  void deallocate(void* memory, std::size_t bytes, stream_id) noexcept {
    if (memory == nullptr) return;
    std::free(memory);
    self_->count.release(bytes);
  }

  /// Copies equal counts and types; the two must not overlap.
  /// @throws error invalid_shape, invalid_argument for a stream that is not alive here
  void copy(tensor_view to, tensor_view from, stream_id s) {
    self_->streams.expect_alive(s, id(), "copy");
    const detail::cpu::stopwatch watch{to.count()};
    detail::cpu::copy(to, from, self_->team);
    self_->count.count_copy(to.size_bytes(), watch.elapsed_s(self_->team));
  }

  /// Computes one op before it returns.
  /// @throws error invalid_shape, invalid_argument, unsupported; what a custom op's launcher throws
  void launch(const device_op& op, stream_id s) {
    self_->streams.expect_alive(s, id(), "launch");
    self_->count.count_launch(detail::cpu::compute(op, self_->team));
  }

  /// Both streams are in order already. @throws error invalid_argument for one that is not alive here
  void order(stream_id earlier, stream_id later) {
    self_->streams.expect_alive(earlier, id(), "order");
    self_->streams.expect_alive(later, id(), "order");
  }

  /// Returns at once. @throws error invalid_argument for a stream that is not alive here
  void synchronize(stream_id s) { self_->streams.expect_alive(s, id(), "synchronize"); }

 private:
  struct state {
    explicit state(cpu_device_options options)
        : id{device_kind::cpu, options.ordinal},
          count{options.budget_bytes == 0 ? detail::cpu::physical_memory_bytes() : options.budget_bytes},
          team{options.threads, named(std::move(options))} {}

    static thread_team_options named(cpu_device_options options) {
      if (options.team.name == thread_team_options{}.name) options.team.name = "cpu" + std::to_string(options.ordinal);
      return options.team;
    }

    device_id id;
    detail::cpu::stream_table streams;
    detail::cpu::accounting count;
    thread_team team;
  };

  std::shared_ptr<state> self_;
};

static_assert(device_backend<cpu_device>, "cpu_device must model device_backend");

}  // namespace hetero
