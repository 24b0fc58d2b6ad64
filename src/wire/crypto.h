// The little cryptography that a plain connection needs: SHA-256, HMAC-SHA256, a comparison in constant
// time and the kernel's random numbers. Our own, because libmanta.so is loaded into every program of the
// user and must start in milliseconds: libcrypto takes longer to load than a node takes to start. What
// needs certificates is behind wire/tls.h and is loaded only when used.
//
// Threads: free functions and values; any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "types/status.h"

namespace manta::wire {

using Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  void Add(std::span<const std::byte> bytes);
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text))); }
  // Ends it: an object makes one digest.
  [[nodiscard]] Digest Finish();

 private:
  void Block(const std::byte* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> block_{};
  std::uint64_t total_ = 0;  // bytes
};

[[nodiscard]] Digest Hash(std::initializer_list<std::span<const std::byte>> parts);
// HMAC of the parts, one after the other.
[[nodiscard]] Digest Hmac(std::span<const std::byte> key, std::initializer_list<std::span<const std::byte>> parts);

// Takes as long for a wrong first byte as for a wrong last one. Only the lengths may be learned.
[[nodiscard]] bool SameSecret(std::span<const std::byte> a, std::span<const std::byte> b);
// Overwrites a secret before its memory is given back; the compiler may not leave it out.
void Wipe(std::span<std::byte> secret);

// From the kernel, or an abort: there is no safe way to go on without.
void FillRandom(std::span<std::byte> into);
template <std::size_t N>
[[nodiscard]] std::array<std::byte, N> RandomBytes() {
  std::array<std::byte, N> bytes{};
  FillRandom(bytes);
  return bytes;
}

[[nodiscard]] std::string ToHexText(std::span<const std::byte> bytes);
// False: wrong length, or not a hexadecimal digit.
[[nodiscard]] bool FromHexText(std::string_view text, std::span<std::byte> into);

[[nodiscard]] inline std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace manta::wire
