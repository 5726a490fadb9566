// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cxxabi.h>
#include <fmt/core.h>

#include <hetero/device/any_device.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

/// Where the time of a step goes: a device that times every op it passes on, and the table of it.
namespace hetero::bench {

/// What one op has to do at least, and a name under which equal ones are counted together.
struct op_cost {
  std::string name;
  double flops = 0;
  double bytes = 0;  ///< every operand read or written once
};

namespace detail {

template <class Op> [[nodiscard]] std::string op_name() {
  int status = 0;
  char* const text = abi::__cxa_demangle(typeid(Op).name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : typeid(Op).name();
  std::free(text);
  return name.substr(name.rfind(':') + 1);
}

/// Sums the bytes of the operands whose field names occur in the op set; those read and written count twice.
template <class Op> [[nodiscard]] double operand_bytes(const Op& o) {
  double bytes = 0;
  const auto add = [&](const tensor_view& view, double times = 1) {
    if (view) bytes += times * static_cast<double>(view.size_bytes());
  };
  if constexpr (requires { o.out; }) add(o.out);
  if constexpr (requires { o.in; }) add(o.in);
  if constexpr (requires {
                  o.a;
                  o.b;
                })
    add(o.a), add(o.b);
  if constexpr (requires { o.into; }) add(o.into, 2);
  if constexpr (requires { o.from; }) add(o.from);
  if constexpr (requires { o.values; }) add(o.values, 2);
  if constexpr (requires { o.grad_in; }) add(o.grad_in);
  if constexpr (requires { o.grad_out; }) add(o.grad_out);
  if constexpr (requires { o.param; }) add(o.param, 2);
  if constexpr (requires { o.grad; }) add(o.grad);
  if constexpr (requires { o.moment1; }) add(o.moment1, 2), add(o.moment2, 2);
  if constexpr (requires { o.momentum; }) add(o.momentum, 2);
  if constexpr (requires { o.logits; }) add(o.logits);
  if constexpr (requires { o.grad_logits; }) add(o.grad_logits);
  if constexpr (requires { o.qkv; }) add(o.qkv);
  if constexpr (requires { o.grad_qkv; }) add(o.grad_qkv);
  return bytes;
}

}  // namespace detail

[[nodiscard]] inline op_cost cost_of(const device_op& op) {
  return std::visit(
      []<class Op>(const Op& o) {
        op_cost cost{.name = detail::op_name<Op>(), .bytes = detail::operand_bytes(o)};
        if constexpr (requires { o.transpose_a; }) {
          const double columns = static_cast<double>(o.out.extents().last());
          const double rows = static_cast<double>(o.out.count()) / columns;
          const double inner = static_cast<double>(o.a.count()) / rows;
          cost.flops = 2 * rows * columns * inner;
          cost.name += fmt::format(" {}{} {:.0f} x {:.0f} x {:.0f}{}", o.transpose_a ? 'T' : 'N',
                                   o.transpose_b ? 'T' : 'N', rows, columns, inner, o.accumulate ? " +=" : "");
        } else if constexpr (requires { o.heads; }) {
          // The lower triangle only: scores and their product with V, and in the backward pass five such products.
          const double width = static_cast<double>(o.qkv.extents().last()) / 3;
          const double context = static_cast<double>(o.qkv.extent(1));
          const double triangle = static_cast<double>(o.qkv.extent(0)) * context * (context + 1) / 2 * width;
          cost.flops = (requires { o.grad_qkv; } ? 5 : 2) * 2 * triangle;
        }
        return cost;
      },
      op);
}

/// Times of ops by name. Not thread-safe: one profile for the stream of one thread.
class op_profile {
 public:
  struct row {
    std::string name;
    std::uint64_t calls = 0;
    double busy_s = 0;  ///< by the device's own account: CPU time of its busiest thread
    double wall_s = 0;
    double flops = 0;
    double bytes = 0;
  };

  void add(const op_cost& cost, double busy_s, double wall_s) {
    row& r = rows_[cost.name];
    ++r.calls;
    r.busy_s += busy_s;
    r.wall_s += wall_s;
    r.flops += cost.flops;
    r.bytes += cost.bytes;
  }
  void clear() { rows_.clear(); }

  /// All rows, dearest first.
  [[nodiscard]] std::vector<row> rows() const {
    std::vector<row> result;
    for (const auto& [name, r] : rows_) {
      result.push_back(r);
      result.back().name = name;
    }
    std::sort(result.begin(), result.end(), [](const row& a, const row& b) { return a.busy_s > b.busy_s; });
    return result;
  }

  /// Prints one line per op, for `steps` steps of `step_s` wall seconds in all, against ceilings of this machine.
  void print(int steps, double step_s, double peak_gflops, double stream_gb_s) const {
    fmt::print("{:<36} {:>7} {:>10} {:>10} {:>7} {:>9} {:>7} {:>8} {:>9}\n", "op, per step", "calls", "busy ms",
               "wall ms", "share", "GFLOP/s", "of peak", "GB/s", "of stream");
    double busy_s = 0, wall_s = 0, flops = 0;
    for (const row& r : rows()) busy_s += r.busy_s, wall_s += r.wall_s, flops += r.flops;
    const double n = steps;
    for (const row& r : rows()) {
      const double gflops = r.flops / r.busy_s / 1e9, gb_s = r.bytes / r.busy_s / 1e9;
      fmt::print("{:<36} {:>7.0f} {:>10.3f} {:>10.3f} {:>6.1f}% {:>9} {:>7} {:>8.1f} {:>8.0f}%\n", r.name,
                 static_cast<double>(r.calls) / n, 1e3 * r.busy_s / n, 1e3 * r.wall_s / n, 100 * r.busy_s / busy_s,
                 r.flops > 0 ? fmt::format("{:.0f}", gflops) : "",
                 r.flops > 0 ? fmt::format("{:.0f}%", 100 * gflops / peak_gflops) : "", gb_s, 100 * gb_s / stream_gb_s);
    }
    fmt::print("{:<36} {:>7} {:>10.3f} {:>10.3f} {:>7} {:>9.0f} {:>6.0f}%   step {:.3f} ms, outside ops {:.3f} ms\n",
               "all ops", "", 1e3 * busy_s / n, 1e3 * wall_s / n, "", flops / busy_s / 1e9,
               100 * flops / busy_s / 1e9 / peak_gflops, 1e3 * step_s / n, 1e3 * (step_s - wall_s) / n);
  }

 private:
  std::map<std::string, row> rows_;
};

/// A device that does everything on `D` and enters each op into a profile. Ops are timed where they are launched, so
/// `D` must finish its work there, as the CPU does.
template <device_backend D> class profiled_device {
 public:
  profiled_device(D inner, std::shared_ptr<op_profile> profile)
      : inner_{std::move(inner)}, profile_{std::move(profile)} {}

  [[nodiscard]] device_id id() const noexcept { return inner_.id(); }
  [[nodiscard]] std::size_t threads() const noexcept { return inner_.threads(); }
  [[nodiscard]] device_counters counters() const { return inner_.counters(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return inner_.budget_bytes(); }
  [[nodiscard]] stream_id create_stream() { return inner_.create_stream(); }
  void destroy_stream(stream_id s) noexcept { inner_.destroy_stream(s); }
  [[nodiscard]] void* allocate(std::size_t bytes, stream_id s) { return inner_.allocate(bytes, s); }
  void deallocate(void* p, std::size_t bytes, stream_id s) noexcept { inner_.deallocate(p, bytes, s); }
  void copy(tensor_view to, tensor_view from, stream_id s) {
    timed({.name = "copy", .bytes = 2.0 * static_cast<double>(to.size_bytes())}, [&] { inner_.copy(to, from, s); });
  }
  void launch(const device_op& op, stream_id s) {
    timed(cost_of(op), [&] { inner_.launch(op, s); });
  }
  void order(stream_id earlier, stream_id later) { inner_.order(earlier, later); }
  void synchronize(stream_id s) { inner_.synchronize(s); }

 private:
  template <class Work> void timed(const op_cost& cost, Work&& work) {
    const double busy_s = inner_.counters().busy_s;
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    profile_->add(cost, inner_.counters().busy_s - busy_s, wall.count());
  }

  D inner_;
  std::shared_ptr<op_profile> profile_;
};

}  // namespace hetero::bench
