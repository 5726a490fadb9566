// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The only macros of the library. They name what the compiler can do and change no class.

/// Marks arithmetic that is written once and runs on the host and in device kernels; empty for a host compiler.
#if defined(__CUDACC__)
#define HETERO_HOST_DEVICE __host__ __device__
#else
#define HETERO_HOST_DEVICE
#endif

/// Empty for programs that link the target `hetero::compiled`, which holds the costly functions once; `inline` for
/// header-only use. All units of a program must agree, and the target sees to that.
#if defined(HETERO_COMPILED)
#define HETERO_INLINE
#else
#define HETERO_INLINE inline
#endif
