// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hetero/core/config.hpp>

#if defined(HETERO_COMPILED)
#include <hetero/device/cpu/thread_team.hpp>
#include <hetero/device/op/op.hpp>

namespace hetero::detail::cpu {
double compute(const device_op& op, thread_team& team);  // compiled once, in src/hetero.cpp
}  // namespace hetero::detail::cpu
#else
#include <hetero/device/cpu/kernels.hpp>
#endif
