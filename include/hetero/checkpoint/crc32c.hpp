// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace hetero {

/// CRC-32C (Castagnoli) over bytes fed in any pieces. Finds damage, not forgery.
class crc32c {
 public:
  crc32c& add(std::span<const std::byte> bytes) noexcept {
    const tables& table = shared_tables();
    const std::byte* p = bytes.data();
    std::size_t left = bytes.size();
    std::uint32_t crc = state_;
    for (; left >= 8; left -= 8, p += 8) {  // eight table look-ups that do not wait for each other
      std::uint32_t low = 0;
      std::uint32_t high = 0;
      std::memcpy(&low, p, 4);
      std::memcpy(&high, p + 4, 4);
      low ^= crc;
      crc = table[7][low & 255U] ^ table[6][(low >> 8U) & 255U] ^ table[5][(low >> 16U) & 255U] ^ table[4][low >> 24U] ^
            table[3][high & 255U] ^ table[2][(high >> 8U) & 255U] ^ table[1][(high >> 16U) & 255U] ^
            table[0][high >> 24U];
    }
    for (; left > 0; --left, ++p) crc = (crc >> 8U) ^ table[0][(crc ^ static_cast<std::uint32_t>(*p)) & 255U];
    state_ = crc;
    return *this;
  }

  [[nodiscard]] std::uint32_t value() const noexcept { return ~state_; }

 private:
  using tables = std::array<std::array<std::uint32_t, 256>, 8>;

  static const tables& shared_tables() noexcept {
    static const tables table = [] {
      tables t{};
      for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t crc = i;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
        t[0][i] = crc;
      }
      for (std::size_t k = 1; k < 8; ++k) {
        for (std::size_t i = 0; i < 256; ++i) t[k][i] = (t[k - 1][i] >> 8U) ^ t[0][t[k - 1][i] & 255U];
      }
      return t;
    }();
    return table;
  }

  std::uint32_t state_ = 0xffffffffU;
};

}  // namespace hetero
