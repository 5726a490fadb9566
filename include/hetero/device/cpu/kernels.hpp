// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>

#include <hetero/core/config.hpp>
#include <hetero/device/cpu/activation.hpp>
#include <hetero/device/cpu/attention.hpp>
#include <hetero/device/cpu/cross_entropy.hpp>
#include <hetero/device/cpu/dropout.hpp>
#include <hetero/device/cpu/elementwise.hpp>
#include <hetero/device/cpu/embedding.hpp>
#include <hetero/device/cpu/matmul.hpp>
#include <hetero/device/cpu/norm.hpp>
#include <hetero/device/cpu/reduction.hpp>
#include <hetero/device/cpu/stopwatch.hpp>
#include <hetero/device/cpu/update.hpp>

/// @file
/// All CPU kernels behind one function. The costly half of the library to compile: see core/config.hpp.
namespace hetero::detail::cpu {

/// @throws error unsupported when the op brings no launcher for the CPU, naming the kinds it has
inline void run(const op::custom_op& o, thread_team& team) {
  const auto launcher = o.launchers.find(device_kind::cpu);
  if (launcher == o.launchers.end() || !launcher->second) {
    std::string kinds;
    for (const auto& [kind, unused] : o.launchers) kinds += (kinds.empty() ? "" : ", ") + std::string{to_string(kind)};
    throw error{errc::unsupported, "custom op \"" + o.name + "\" has no launcher for cpu (it has: " +
                                       (kinds.empty() ? "none" : kinds) + "); add one to its launchers"};
  }
  launcher->second({.tensors = o.tensors, .numbers = o.numbers, .native_stream = nullptr, .threads = team.size()});
}

/// Fails to compile with the name of the op that lacks a kernel, before std::visit fails with all of them.
template <class Op>
struct kernel_for {
  static_assert(requires(const Op& o, thread_team& team) { run(o, team); },
                "the CPU backend lacks a kernel for this op: write detail::cpu::run(const op::NAME&, thread_team&)");
};
template <class... Ops>
struct kernel_for<std::variant<Ops...>> : kernel_for<Ops>... {};
template struct kernel_for<device_op>;

/// Computes one op on the team's threads, blocking, and returns the CPU seconds it took.
/// @throws error as the op's kernel does
HETERO_INLINE double compute(const device_op& op, thread_team& team) {
  return std::visit(
      [&](const auto& each) {
        const stopwatch watch{work_hint(each)};
        run(each, team);
        return watch.elapsed_s(team);
      },
      op);
}

}  // namespace hetero::detail::cpu
