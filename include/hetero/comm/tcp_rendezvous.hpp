// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hetero/core/config.hpp>

#if defined(HETERO_COMPILED)
#include <memory>

#include <hetero/comm/rendezvous_options.hpp>
#include <hetero/comm/transport.hpp>

namespace hetero {
std::shared_ptr<transport> tcp_rendezvous(const rendezvous_options& options);  // compiled once, in src/hetero.cpp
}  // namespace hetero
#else
#include <hetero/comm/rendezvous.hpp>
#endif
