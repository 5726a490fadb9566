// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include <hetero/device/cpu/dispatch.hpp>
#include <hetero/device/cpu/thread_team.hpp>

/// @file
/// Memory of a CPU device: aligned allocation and copies.
namespace hetero::detail::cpu {

/// 64 bytes: a cache line and the widest vector register, so no vector of an aligned tensor straddles two lines.
inline constexpr std::size_t memory_alignment = 64;

/// Size of a transparent huge page, and from where on asking for them pays: a step touches all parameters, and with
/// 4 KiB pages the address translation alone costs tens of percent.
inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20U;

[[nodiscard]] inline std::size_t physical_memory_bytes() noexcept {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes) : 0;
}

/// At least `bytes` bytes, 64-byte aligned; null when the system refuses. Free it with std::free.
[[nodiscard]] inline void* allocate_memory(std::size_t bytes) noexcept {
  const std::size_t alignment = bytes >= 2 * huge_page_bytes ? huge_page_bytes : memory_alignment;
  if (bytes > static_cast<std::size_t>(-1) / 2) return nullptr;
  const std::size_t rounded =
      (std::max<std::size_t>(bytes, 1) + memory_alignment - 1) / memory_alignment * memory_alignment;
  void* memory = nullptr;
  if (::posix_memalign(&memory, alignment, rounded) != 0) return nullptr;
#if defined(MADV_HUGEPAGE)
  // Only whole huge pages, so a tail does not occupy 2 MiB. A refusal leaves small pages, which are right too.
  if (alignment == huge_page_bytes) ::madvise(memory, rounded / huge_page_bytes * huge_page_bytes, MADV_HUGEPAGE);
#endif
  return memory;
}

/// Copies dimension `dim` and those inside it, for views of equal extents of which at least one has gaps.
inline void copy_strided(std::byte* to, const tensor_view& to_view, const std::byte* from, const tensor_view& from_view,
                         std::size_t dim) noexcept {
  const std::size_t element = size_of(to_view.type());
  const bool last = dim + 1 == to_view.dims();
  if (last && to_view.stride(dim) == 1 && from_view.stride(dim) == 1) {
    std::memmove(to, from, to_view.extent(dim) * element);
    return;
  }
  for (std::size_t i = 0; i < to_view.extent(dim); ++i) {
    std::byte* const target = to + i * to_view.stride(dim) * element;
    const std::byte* const source = from + i * from_view.stride(dim) * element;
    if (last) {
      std::memcpy(target, source, element);
    } else {
      copy_strided(target, to_view, source, from_view, dim + 1);
    }
  }
}

/// Copies equal counts and types; with gaps, equal extents too. The two must not overlap unless they are one view.
/// @throws error invalid_shape naming both views
inline void copy(const tensor_view& to, const tensor_view& from, thread_team& team) {
  const std::initializer_list<operand> both = {{"to", to}, {"from", from}};
  expect(to.count() == from.count() && to.type() == from.type(), "copy",
         "both sides need equal counts and one type (op::convert changes the type)", both);
  if (to.count() == 0 || to.data() == from.data()) return;
  expect(to && from, "copy", "an operand has no memory", both);
  if (!to.contiguous() || !from.contiguous()) {
    expect(to.extents() == from.extents(), "copy", "strided views need equal extents", both);
    copy_strided(static_cast<std::byte*>(to.data()), to, static_cast<const std::byte*>(from.data()), from, 0);
    return;
  }
  auto* const target = static_cast<std::byte*>(to.data());
  const auto* const source = static_cast<const std::byte*>(from.data());
  team.parallel(to.size_bytes(), 256 * 1024, [&](std::size_t begin, std::size_t end, std::size_t) {
    std::memcpy(target + begin, source + begin, end - begin);
  });
}

}  // namespace hetero::detail::cpu
