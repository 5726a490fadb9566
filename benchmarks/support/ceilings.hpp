// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/// What the cores and the memory of this machine can do at best. Each function blocks, takes a fraction of a second up
/// to a few seconds, and returns the best of several passes: a ceiling is what nothing on the machine exceeds.
namespace hetero::bench {

namespace detail {

/// Runs `work(index)` on `threads` threads that start together; returns seconds from the start to the end of the last.
template <class Work> [[nodiscard]] double run_together(unsigned threads, Work work) {
  using clock = std::chrono::steady_clock;
  std::atomic<unsigned> waiting{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> others;
  for (unsigned index = 1; index < threads; ++index)
    others.emplace_back([&, index] {
      waiting.fetch_add(1);
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      work(index);
    });
  while (waiting.load() + 1 < threads) std::this_thread::yield();
  const auto start = clock::now();
  go.store(true, std::memory_order_release);
  work(0U);
  for (auto& other : others) other.join();
  return std::chrono::duration<double>(clock::now() - start).count();
}

template <class Work> [[nodiscard]] double best_of(int passes, unsigned threads, Work work) {
  double best = run_together(threads, work);
  for (int pass = 1; pass < passes; ++pass) best = std::min(best, run_together(threads, work));
  return best;
}

/// Floats in fresh pages, huge ones where the kernel grants them, touched before use.
class float_array {
 public:
  explicit float_array(std::size_t count, float value) : count_{count} {
    void* const pages = ::mmap(nullptr, size_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc{};
    ::madvise(pages, size_bytes(), MADV_HUGEPAGE);
    data_ = static_cast<float*>(pages);
    std::fill_n(data_, count_, value);
  }
  float_array(float_array&& other) noexcept : data_{std::exchange(other.data_, nullptr)}, count_{other.count_} {}
  float_array& operator=(float_array&&) = delete;
  ~float_array() {
    if (data_ != nullptr) ::munmap(data_, size_bytes());
  }

  /// Share `index` of `shares`, cut at multiples of 16 floats.
  [[nodiscard]] std::span<float> share(unsigned index, unsigned shares) const noexcept {
    const auto cut = [&](std::size_t i) { return i == shares ? count_ : count_ * i / shares / 16 * 16; };
    return {data_ + cut(index), cut(index + 1) - cut(index)};
  }

 private:
  [[nodiscard]] std::size_t size_bytes() const noexcept { return count_ * sizeof(float); }
  float* data_ = nullptr;
  std::size_t count_ = 0;
};

inline constexpr long fma_rounds = 200'000;
inline constexpr int fma_chains = 12;  // independent: latency 4 to 5, two units, so 8 to 10 are needed

#if defined(__x86_64__)
[[gnu::target("avx512f")]] inline void fma_burst_512() noexcept {
  __m512 factor = _mm512_set1_ps(0.9999F), term = _mm512_set1_ps(1e-4F), sums[fma_chains];
  for (auto& sum : sums) sum = _mm512_set1_ps(1.0F);
  asm volatile("" : "+v"(factor), "+v"(term));  // opaque, or the compiler folds the chain
  for (long round = 0; round < fma_rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < fma_chains; ++i) sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
  }
  for (auto& sum : sums) asm volatile("" : : "v"(sum));
}

[[gnu::target("avx2,fma")]] inline void fma_burst_256() noexcept {
  __m256 factor = _mm256_set1_ps(0.9999F), term = _mm256_set1_ps(1e-4F), sums[fma_chains];
  for (auto& sum : sums) sum = _mm256_set1_ps(1.0F);
  asm volatile("" : "+x"(factor), "+x"(term));
  for (long round = 0; round < fma_rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < fma_chains; ++i) sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
  }
  for (auto& sum : sums) asm volatile("" : : "x"(sum));
}

/// One AdamW update at beta1 = 0.9, beta2 = 0.95, no bias correction beyond a factor: the memory traffic and the
/// arithmetic of the real one in as few instructions as it takes.
[[gnu::target("avx512f")]] inline void adamw_pass_512(std::span<float> p, const float* g, float* m, float* v) noexcept {
  const __m512 b1 = _mm512_set1_ps(0.9F), c1 = _mm512_set1_ps(0.1F), b2 = _mm512_set1_ps(0.95F),
               c2 = _mm512_set1_ps(0.05F), rate = _mm512_set1_ps(1e-3F), decay = _mm512_set1_ps(0.9999F),
               epsilon = _mm512_set1_ps(1e-8F);
  for (std::size_t i = 0; i + 16 <= p.size(); i += 16) {
    const __m512 grad = _mm512_loadu_ps(g + i);
    const __m512 m1 = _mm512_fmadd_ps(b1, _mm512_loadu_ps(m + i), _mm512_mul_ps(c1, grad));
    const __m512 m2 = _mm512_fmadd_ps(b2, _mm512_loadu_ps(v + i), _mm512_mul_ps(c2, _mm512_mul_ps(grad, grad)));
    const __m512 update =
        _mm512_div_ps(_mm512_mul_ps(rate, m1), _mm512_add_ps(_mm512_maskz_sqrt_ps(0xFFFF, m2), epsilon));
    _mm512_storeu_ps(m + i, m1);
    _mm512_storeu_ps(v + i, m2);
    _mm512_storeu_ps(p.data() + i, _mm512_fmsub_ps(decay, _mm512_loadu_ps(p.data() + i), update));
  }
}

[[gnu::target("avx2,fma")]] inline void adamw_pass_256(std::span<float> p, const float* g, float* m,
                                                       float* v) noexcept {
  const __m256 b1 = _mm256_set1_ps(0.9F), c1 = _mm256_set1_ps(0.1F), b2 = _mm256_set1_ps(0.95F),
               c2 = _mm256_set1_ps(0.05F), rate = _mm256_set1_ps(1e-3F), decay = _mm256_set1_ps(0.9999F),
               epsilon = _mm256_set1_ps(1e-8F);
  for (std::size_t i = 0; i + 8 <= p.size(); i += 8) {
    const __m256 grad = _mm256_loadu_ps(g + i);
    const __m256 m1 = _mm256_fmadd_ps(b1, _mm256_loadu_ps(m + i), _mm256_mul_ps(c1, grad));
    const __m256 m2 = _mm256_fmadd_ps(b2, _mm256_loadu_ps(v + i), _mm256_mul_ps(c2, _mm256_mul_ps(grad, grad)));
    const __m256 update = _mm256_div_ps(_mm256_mul_ps(rate, m1), _mm256_add_ps(_mm256_sqrt_ps(m2), epsilon));
    _mm256_storeu_ps(m + i, m1);
    _mm256_storeu_ps(v + i, m2);
    _mm256_storeu_ps(p.data() + i, _mm256_fmsub_ps(decay, _mm256_loadu_ps(p.data() + i), update));
  }
}
#endif

inline void adamw_pass(std::span<float> p, const float* g, float* m, float* v) noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return adamw_pass_512(p, g, m, v);
  if (__builtin_cpu_supports("avx2")) return adamw_pass_256(p, g, m, v);
#endif
  for (std::size_t i = 0; i < p.size(); ++i) {
    m[i] = 0.9F * m[i] + 0.1F * g[i];
    v[i] = 0.95F * v[i] + 0.05F * g[i] * g[i];
    p[i] = 0.9999F * p[i] - 1e-3F * m[i] / (std::sqrt(v[i]) + 1e-8F);
  }
}

/// Runs the widest multiply-add chain this CPU has; returns the floating-point operations of one call.
inline double fma_burst() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return fma_burst_512(), 2.0 * 16 * fma_chains * fma_rounds;
  if (__builtin_cpu_supports("avx2")) return fma_burst_256(), 2.0 * 8 * fma_chains * fma_rounds;
#endif
  using lanes = float __attribute__((vector_size(16)));
  lanes factor = lanes{} + 0.9999F, term = lanes{} + 1e-4F, sums[fma_chains] = {};
  asm volatile("" : "+m"(factor), "+m"(term));
  for (long round = 0; round < fma_rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < fma_chains; ++i) sums[i] = sums[i] * factor + term;
  }
  for (auto& sum : sums) asm volatile("" : : "m"(sum));
  return 2.0 * 4 * fma_chains * fma_rounds;
}

}  // namespace detail

/// fp32 multiply-add peak of `threads` cores at once in GFLOP/s (a multiply-add counts as two), in bursts of
/// milliseconds.
[[nodiscard]] inline double fma_peak_gflops(unsigned threads) {
  const double flops = detail::fma_burst() * threads;
  return flops / detail::best_of(60, threads, [](unsigned) { detail::fma_burst(); }) / 1e9;
}

/// Memory traffic in GB/s, counted as 12 bytes an element, of `a[i] += b[i]` over `working_set_bytes` in all.
[[nodiscard]] inline double add_stream_gb_s(unsigned threads, std::size_t working_set_bytes, int passes = 7) {
  const std::size_t count = working_set_bytes / (2 * sizeof(float));
  const detail::float_array a{count, 1.0F}, b{count, 2.0F};
  const double seconds = detail::best_of(passes, threads, [&](unsigned index) {
    const auto into = a.share(index, threads), from = b.share(index, threads);
    using lanes [[gnu::aligned(4), gnu::may_alias]] = float __attribute__((vector_size(64)));
    std::size_t i = 0;
    for (; i + 16 <= into.size(); i += 16)
      *reinterpret_cast<lanes*>(&into[i]) += *reinterpret_cast<const lanes*>(&from[i]);
    for (; i < into.size(); ++i) into[i] += from[i];
  });
  return 12.0 * static_cast<double>(count) / seconds / 1e9;
}

/// Memory traffic in GB/s, counted as 2 bytes for each byte copied, of `std::memcpy` over `working_set_bytes` in all.
[[nodiscard]] inline double memcpy_gb_s(unsigned threads, std::size_t working_set_bytes, int passes = 7) {
  const std::size_t count = working_set_bytes / (2 * sizeof(float));
  const detail::float_array a{count, 1.0F}, b{count, 2.0F};
  const double seconds = detail::best_of(passes, threads, [&](unsigned index) {
    std::memcpy(a.share(index, threads).data(), b.share(index, threads).data(), b.share(index, threads).size_bytes());
  });
  return 8.0 * static_cast<double>(count) / seconds / 1e9;
}

/// Memory traffic in GB/s, counted as 28 bytes a parameter (reads p, g, m, v; writes p, m, v), of a plain fused AdamW
/// loop over `parameters` parameters.
[[nodiscard]] inline double adamw_loop_gb_s(unsigned threads, std::size_t parameters, int passes = 7) {
  const detail::float_array p{parameters, 1.0F}, g{parameters, 1e-2F}, m{parameters, 1e-2F}, v{parameters, 1e-4F};
  const double seconds = detail::best_of(passes, threads, [&](unsigned index) {
    detail::adamw_pass(p.share(index, threads), g.share(index, threads).data(), m.share(index, threads).data(),
                       v.share(index, threads).data());
  });
  return 28.0 * static_cast<double>(parameters) / seconds / 1e9;
}

}  // namespace hetero::bench
