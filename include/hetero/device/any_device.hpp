// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <hetero/device/concepts.hpp>

namespace hetero {

/// A device of any backend: the one place where backends are erased. Copies share the device; a moved-from one may only
/// be assigned or destroyed. Costs one indirect call per launch.
class any_device {
 public:
  template <class D>
    requires(!std::same_as<std::remove_cvref_t<D>, any_device>) && device_backend<D>
  any_device(D device) : self_{std::make_shared<model<D>>(std::move(device))} {}

  /// Identity and index, as in plans and error texts.
  [[nodiscard]] device_id id() const noexcept { return self_->id(); }
  /// Host threads the device computes with; 1 for a device that is not the host.
  [[nodiscard]] std::size_t threads() const noexcept { return self_->threads(); }
  [[nodiscard]] device_counters counters() const { return self_->counters(); }
  /// Bytes the device may hold; allocations beyond it are refused.
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return self_->budget_bytes(); }

  [[nodiscard]] stream_id create_stream() { return self_->create_stream(); }
  void destroy_stream(stream_id s) noexcept { self_->destroy_stream(s); }

  /// 64-byte aligned memory. @throws error out_of_memory beyond the budget or what the device has
  [[nodiscard]] void* allocate(std::size_t bytes, stream_id s) { return self_->allocate(bytes, s); }
  void deallocate(void* p, std::size_t bytes, stream_id s) noexcept { self_->deallocate(p, bytes, s); }

  /// Copies equal counts and types; either side may be host memory. Stream-ordered.
  /// @throws error invalid_shape when the two sides differ
  void copy(tensor_view to, tensor_view from, stream_id s) { self_->copy(to, from, s); }

  /// Runs one op. Stream-ordered.
  /// @throws error invalid_shape, unsupported
  void launch(const device_op& op, stream_id s) { self_->launch(op, s); }

  /// Makes `later` wait for what `earlier` was given so far. Does not block the host.
  void order(stream_id earlier, stream_id later) { self_->order(earlier, later); }

  /// Blocks the host until the stream is empty. @throws error device_lost when earlier work failed
  void synchronize(stream_id s) { self_->synchronize(s); }

 private:
  struct iface {
    iface() = default;
    iface(const iface&) = delete;
    iface& operator=(const iface&) = delete;
    virtual ~iface() = default;
    virtual device_id id() const noexcept = 0;
    virtual std::size_t threads() const noexcept = 0;
    virtual device_counters counters() const = 0;
    virtual std::size_t budget_bytes() const noexcept = 0;
    virtual stream_id create_stream() = 0;
    virtual void destroy_stream(stream_id) noexcept = 0;
    virtual void* allocate(std::size_t, stream_id) = 0;
    virtual void deallocate(void*, std::size_t, stream_id) noexcept = 0;
    virtual void copy(tensor_view, tensor_view, stream_id) = 0;
    virtual void launch(const device_op&, stream_id) = 0;
    virtual void order(stream_id, stream_id) = 0;
    virtual void synchronize(stream_id) = 0;
  };

  template <device_backend D>
  struct model final : iface {
    explicit model(D d) : device{std::move(d)} {}
    device_id id() const noexcept override { return device.id(); }
    std::size_t threads() const noexcept override { return device.threads(); }
    device_counters counters() const override { return device.counters(); }
    std::size_t budget_bytes() const noexcept override { return device.budget_bytes(); }
    stream_id create_stream() override { return device.create_stream(); }
    void destroy_stream(stream_id s) noexcept override { device.destroy_stream(s); }
    void* allocate(std::size_t n, stream_id s) override { return device.allocate(n, s); }
    void deallocate(void* p, std::size_t n, stream_id s) noexcept override { device.deallocate(p, n, s); }
    void copy(tensor_view to, tensor_view from, stream_id s) override { device.copy(to, from, s); }
    void launch(const device_op& o, stream_id s) override { device.launch(o, s); }
    void order(stream_id earlier, stream_id later) override { device.order(earlier, later); }
    void synchronize(stream_id s) override { device.synchronize(s); }
    D device;
  };

  std::shared_ptr<iface> self_;
};

static_assert(device_backend<any_device>, "the erased device must model its own concept");

}  // namespace hetero
