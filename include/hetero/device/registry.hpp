// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <hetero/core/error.hpp>
#include <hetero/core/usable_cores.hpp>
#include <hetero/device/any_device.hpp>
#include <hetero/device/cpu_device.hpp>
#include <hetero/device/device_spec.hpp>
#include <hetero/device/throttled_device.hpp>

namespace hetero {

/// How devices of one kind are found and made.
struct device_factory {
  device_kind kind = device_kind::cpu;
  /// Makes the device; the speed of the spec is not its concern. May throw unsupported when there is none.
  std::function<any_device(const device_spec&, const device_options&)> make;
  /// The devices this machine has; empty when there is no driver. Must not throw.
  std::function<std::vector<device_spec>()> available;
};

/// The device kinds a program can make. The CPU is always there; a leaf's source unit adds its own to the registry of
/// the process before main(). Adding runs no factory: a vendor's driver is not touched before the first query.
/// Thread-safe.
class device_registry {
 public:
  /// One that knows the CPU only. Programs use `instance()`.
  device_registry();

  /// The registry of the process.
  [[nodiscard]] static device_registry& instance() {
    static device_registry registry;
    return registry;
  }

  /// Adds a kind; a second factory of one kind is ignored, since a leaf may be linked twice.
  /// @returns whether it was added
  bool add(device_factory factory) {
    const std::scoped_lock lock{mutex_};
    for (const device_factory& known : factories_) {
      if (known.kind == factory.kind) return false;
    }
    factories_.push_back(std::move(factory));
    return true;
  }

  /// Makes one device. A speed below 1, or a throttle handle, wraps it in a `throttled_device`.
  /// @throws error unsupported when the kind's backend is not linked, naming those that are; invalid_argument for a
  /// speed outside (0, 1] or 0 threads; what the backend throws
  [[nodiscard]] any_device make(const device_spec& spec, const device_options& options = {}) const {
    std::string kinds;
    for (const device_factory& factory : factories()) {
      if (factory.kind == spec.kind) {
        if (options.throttle) return throttled_device{factory.make(spec, options), *options.throttle};
        if (spec.speed == 1) return factory.make(spec, options);
        const throttle_control control{spec.speed};  // refuses a bad speed before a device exists
        return throttled_device{factory.make(spec, options), control};
      }
      kinds += (kinds.empty() ? "" : ", ") + std::string{to_string(factory.kind)};
    }
    throw error{errc::unsupported, "no backend for " + to_string(spec) + " is linked into this program, which has: " +
                                       kinds + "; link hetero::" + to_string(spec.kind)};
  }

  /// Every device that the backends find, in the order in which they were added.
  [[nodiscard]] std::vector<device_spec> available() const {
    std::vector<device_spec> found;
    for (const device_factory& factory : factories()) {
      for (const device_spec& spec : factory.available()) found.push_back(spec);
    }
    return found;
  }

 private:
  [[nodiscard]] std::vector<device_factory> factories() const {  // a copy: a factory may take long, or add others
    const std::scoped_lock lock{mutex_};
    return factories_;
  }

  mutable std::mutex mutex_;
  std::vector<device_factory> factories_;
};

namespace detail {

[[nodiscard]] inline any_device make_cpu_device(const device_spec& spec, const device_options& options) {
  return cpu_device{
      {.threads = spec.index_or_threads, .ordinal = options.ordinal, .budget_bytes = options.budget_bytes, .team = {}}};
}

[[nodiscard]] inline std::vector<device_spec> available_cpu() {
  return {{.kind = device_kind::cpu, .index_or_threads = usable_cores(), .speed = 1}};
}

}  // namespace detail

inline device_registry::device_registry() {
  factories_.push_back({.kind = device_kind::cpu, .make = detail::make_cpu_device, .available = detail::available_cpu});
}

/// `device_registry::make` of the process's registry.
[[nodiscard]] inline any_device make_device(const device_spec& spec, const device_options& options = {}) {
  return device_registry::instance().make(spec, options);
}

/// Every device that the linked backends find, in the order of the registry.
[[nodiscard]] inline std::vector<device_spec> available_devices() { return device_registry::instance().available(); }

}  // namespace hetero
