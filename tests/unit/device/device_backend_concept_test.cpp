// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <memory>

#include <hetero/device/any_device.hpp>

using namespace hetero;

namespace {

/// The least that models device_backend.
struct archetype {
  device_id id() const noexcept { return {}; }
  std::size_t threads() const noexcept { return 1; }
  device_counters counters() const { return {}; }
  std::size_t budget_bytes() const noexcept { return 0; }
  stream_id create_stream() { return stream_id{1}; }
  void destroy_stream(stream_id) noexcept {}
  void* allocate(std::size_t, stream_id) { return nullptr; }
  void deallocate(void*, std::size_t, stream_id) noexcept {}
  void copy(tensor_view, tensor_view, stream_id) {}
  void launch(const device_op&, stream_id) {}
  void order(stream_id, stream_id) {}
  void synchronize(stream_id) {}
};

// Each of these is broken in one way.
struct throwing_deallocate : archetype {
  void deallocate(void*, std::size_t, stream_id) {}
};
struct throwing_destroy_stream : archetype {
  void destroy_stream(stream_id) {}
};
struct integer_stream : archetype {
  int create_stream() { return 1; }
};
struct no_order : archetype {
  void order(stream_id, stream_id) = delete;
};
struct launch_that_returns : archetype {
  bool launch(const device_op&, stream_id) { return true; }
};
struct launch_of_one_op : archetype {
  void launch(const op::fill&, stream_id) {}
};
struct non_const_counters : archetype {
  device_counters counters() { return {}; }
};
struct typed_allocate : archetype {
  float* allocate(std::size_t, stream_id) { return nullptr; }
};
struct immovable : archetype {
  immovable() = default;
  immovable(immovable&&) = delete;
};
struct move_only : archetype {
  std::unique_ptr<int> owned;
};

static_assert(device_backend<archetype>);
static_assert(device_backend<move_only>);
static_assert(device_backend<any_device>);
static_assert(!device_backend<throwing_deallocate>);
static_assert(!device_backend<throwing_destroy_stream>);
static_assert(!device_backend<integer_stream>);
static_assert(!device_backend<no_order>);
static_assert(!device_backend<launch_that_returns>);
static_assert(!device_backend<launch_of_one_op>);
static_assert(!device_backend<non_const_counters>);
static_assert(!device_backend<typed_allocate>);
static_assert(!device_backend<immovable>);
static_assert(!device_backend<int>);
static_assert(!std::is_constructible_v<any_device, no_order>);

}  // namespace

TEST_CASE("any_device erases the least that models the concept, movable or copyable") {
  any_device erased{archetype{}};
  CHECK(erased.create_stream() == stream_id{1});
  CHECK(any_device{move_only{}}.threads() == 1);
  const any_device copy = erased;  // shares the device
  CHECK(copy.counters() == device_counters{});
}
