#include "wire/crypto.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace manta::wire {
namespace {

constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr std::size_t kBlock = 64;

}  // namespace

void Sha256::Block(const std::byte* block) {
  std::array<std::uint32_t, 64> w;
  for (std::size_t i = 0; i < 16; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, block + 4 * i, 4);
    w[i] = __builtin_bswap32(word);
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<std::uint32_t, 8> after = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += after[i];
}

void Sha256::Add(std::span<const std::byte> bytes) {
  std::size_t filled = total_ % kBlock;
  total_ += bytes.size();
  if (filled > 0) {
    const std::size_t count = std::min(kBlock - filled, bytes.size());
    std::copy_n(bytes.begin(), count, block_.begin() + static_cast<std::ptrdiff_t>(filled));
    bytes = bytes.subspan(count);
    filled += count;
    if (filled < kBlock) return;
    Block(block_.data());
  }
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) Block(bytes.data());
  std::copy(bytes.begin(), bytes.end(), block_.begin());
}

Digest Sha256::Finish() {
  const std::uint64_t bits = __builtin_bswap64(total_ * 8);
  std::array<std::byte, 2 * kBlock> tail{};
  tail[0] = std::byte{0x80};
  const std::size_t filled = total_ % kBlock;
  const std::size_t padding = (filled < 56 ? 56 : 120) - filled;
  std::memcpy(tail.data() + padding, &bits, 8);
  Add(std::span(tail).first(padding + 8));
  Digest digest;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::uint32_t word = __builtin_bswap32(state_[i]);
    std::memcpy(digest.data() + 4 * i, &word, 4);
  }
  return digest;
}

Digest Hash(std::initializer_list<std::span<const std::byte>> parts) {
  Sha256 hash;
  for (const std::span<const std::byte> part : parts) hash.Add(part);
  return hash.Finish();
}

Digest Hmac(std::span<const std::byte> key, std::initializer_list<std::span<const std::byte>> parts) {
  std::array<std::byte, kBlock> padded{};
  if (key.size() > kBlock) {
    const Digest digest = Hash({key});
    std::copy(digest.begin(), digest.end(), padded.begin());
  } else {
    std::copy(key.begin(), key.end(), padded.begin());
  }
  for (std::byte& byte : padded) byte ^= std::byte{0x36};
  Sha256 inner;
  inner.Add(padded);
  for (const std::span<const std::byte> part : parts) inner.Add(part);
  const Digest digest = inner.Finish();
  for (std::byte& byte : padded) byte ^= std::byte{0x36 ^ 0x5c};
  const Digest mac = Hash({padded, digest});
  Wipe(padded);
  return mac;
}

bool SameSecret(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  volatile unsigned different = 0;  // volatile: no early way out
  for (std::size_t i = 0; i < a.size(); ++i) different = different | std::to_integer<unsigned>(a[i] ^ b[i]);
  return different == 0;
}

void Wipe(std::span<std::byte> secret) { explicit_bzero(secret.data(), secret.size()); }

void FillRandom(std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = getrandom(into.data(), into.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) std::abort();
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

std::string ToHexText(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte >> 4)];
    text += kDigits[std::to_integer<unsigned>(byte & std::byte{15})];
  }
  return text;
}

bool FromHexText(std::string_view text, std::span<std::byte> into) {
  if (text.size() != 2 * into.size()) return false;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  for (std::size_t i = 0; i < into.size(); ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    into[i] = static_cast<std::byte>(high << 4 | low);
  }
  return true;
}

}  // namespace manta::wire
