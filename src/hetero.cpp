// SPDX-License-Identifier: Apache-2.0
// The costly functions of the library, compiled once for programs that link hetero::compiled.
#include <hetero/comm/rendezvous.hpp>
#include <hetero/device/cpu/kernels.hpp>
