// crc32c (Castagnoli), which checks the records of the journal and of TensorBoard's files. Eight bytes at a time by
// tables: 1 to 2 GB/s, without instructions that some processors lack.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace manta::tune::journal {

namespace crc_tables {
constexpr std::uint32_t kPolynomial = 0x82F63B78U;  // reflected
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr Tables Make() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t table = 1; table < 8; ++table) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[table - 1][byte];
      tables[table][byte] = (before >> 8) ^ tables[0][before & 255];
    }
  }
  return tables;
}
inline constexpr Tables kTables = Make();
}  // namespace crc_tables

// `crc`: the sum of the bytes before these.
inline std::uint32_t Crc32c(std::string_view bytes, std::uint32_t crc = 0) {
  const auto& tables = crc_tables::kTables;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  crc = ~crc;
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    word ^= crc;
    crc = tables[7][word & 255] ^ tables[6][(word >> 8) & 255] ^ tables[5][(word >> 16) & 255] ^
          tables[4][(word >> 24) & 255] ^ tables[3][(word >> 32) & 255] ^ tables[2][(word >> 40) & 255] ^
          tables[1][(word >> 48) & 255] ^ tables[0][word >> 56];
  }
  for (; left > 0; ++at, --left) crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<unsigned char>(*at)) & 255];
  return ~crc;
}

}  // namespace manta::tune::journal
