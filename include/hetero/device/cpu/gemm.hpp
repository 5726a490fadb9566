// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// OpenBLAS declares a global type of this name, which would make hetero::bfloat16 ambiguous after `using namespace`.
#pragma push_macro("bfloat16")
#define bfloat16 openblas_bfloat16
#include <cblas.h>
#pragma pop_macro("bfloat16")

// What the linked libraries offer beyond CBLAS. Weak: each is null unless the program links the library that has it.
extern "C" {
void openblas_set_num_threads(int) __attribute__((weak));
void bli_thread_set_num_threads(std::int64_t) __attribute__((weak));
void MKL_Set_Num_Threads(int) __attribute__((weak));
void omp_set_num_threads(int) __attribute__((weak));
int dnnl_sgemm(char transpose_a, char transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
               const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c,
               std::int64_t c_stride) __attribute__((weak));
}

namespace hetero::detail::cpu {

/// Keeps BLAS to one thread in this process: the team splits the work, so that `cpu:1` and `cpu:2` mean what they say
/// and two devices of a process do not fight over BLAS's own threads. A BLAS that is none of these must be told by its
/// environment variable. OpenMP counts per calling thread, hence the call from each.
inline void keep_blas_single_threaded() noexcept {
  [[maybe_unused]] static const bool process = [] {
    if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
    if (bli_thread_set_num_threads != nullptr) bli_thread_set_num_threads(1);
    if (MKL_Set_Num_Threads != nullptr) MKL_Set_Num_Threads(1);
    return true;
  }();
  [[maybe_unused]] static thread_local const bool thread = [] {
    if (dnnl_sgemm != nullptr && omp_set_num_threads != nullptr) omp_set_num_threads(1);
    return true;
  }();
}

/// c = a * b + beta * c on row-major matrices whose rows are `stride` elements apart.
template <class T>
struct gemm_call {
  bool transpose_a, transpose_b;
  int m, n, k;
  const T* a;
  int a_stride;
  const T* b;
  int b_stride;
  T beta;
  T* c;
  int c_stride;
};

/// Through oneDNN's generated kernels in programs that link `hetero::onednn` (a tenth to a quarter faster than OpenBLAS
/// 0.3.21 with AVX-512, see docs/performance.md), otherwise through CBLAS. On the calling thread alone.
template <class T>
inline void gemm(const gemm_call<T>& g) noexcept {
  const auto blas = [](bool transpose) { return transpose ? CblasTrans : CblasNoTrans; };
  if constexpr (sizeof(T) == sizeof(float)) {
    keep_blas_single_threaded();
    if (dnnl_sgemm != nullptr &&
        dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k, 1.0F, g.a, g.a_stride, g.b,
                   g.b_stride, g.beta, g.c, g.c_stride) == 0) {
      return;
    }
    cblas_sgemm(CblasRowMajor, blas(g.transpose_a), blas(g.transpose_b), g.m, g.n, g.k, 1.0F, g.a, g.a_stride, g.b,
                g.b_stride, g.beta, g.c, g.c_stride);
  } else {
    cblas_dgemm(CblasRowMajor, blas(g.transpose_a), blas(g.transpose_b), g.m, g.n, g.k, 1.0, g.a, g.a_stride, g.b,
                g.b_stride, g.beta, g.c, g.c_stride);
  }
}

}  // namespace hetero::detail::cpu
