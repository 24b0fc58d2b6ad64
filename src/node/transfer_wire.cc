#include "node/transfer_wire.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/failpoint.h"
#include "types/id.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace manta::node {
namespace {

constexpr std::size_t kSendPiece = 512U << 10;     // large writes beat small ones by half
constexpr std::size_t kReceivePiece = 256U << 10;  // is summed while it is in the cache
constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15ULL;
constexpr std::size_t kMaxMessage = 1U << 20;

Status Broken(int error) {
  return Status(Code::kUnavailable, error == 0 ? std::string("the peer closed the connection")
                                               : Cat("the connection failed: ", std::strerror(error)));
}

}  // namespace

// Each word is added to its neighbour's lane, so that no change of it goes unseen, and the product of its halves to its
// own, mixed with where it is, so that words are not found in each other's places. 32-bit products, for they are what
// vectors of all processors can do: this is twice as fast as 64-bit ones.
namespace {

constexpr std::uint64_t kKeys[8] = {0x1cad21f72c81017cULL, 0xdb979083e96dd4deULL, 0x1f67b3b7a4a44072ULL,
                                    0x78e5c0cc4ee679cbULL, 0x2172ffcc7dd05a82ULL, 0x8e2443f7744608b8ULL,
                                    0x4c263a81e69035e0ULL, 0xcb00c391bb52283cULL};

void SumLines(const std::byte* bytes, std::size_t lines, std::uint64_t first, std::uint64_t* lanes) {
  for (std::size_t line = 0; line < lines; ++line) {
    std::uint64_t words[8];
    std::memcpy(words, bytes + line * 64, 64);
    for (std::size_t i = 0; i < 8; ++i) {
      const std::uint64_t mixed = words[i] ^ (kKeys[i] + (first + line) * kPrime);
      lanes[i ^ 1] += words[i];
      lanes[i] += (mixed & 0xffffffffULL) * (mixed >> 32);
    }
  }
}

#if defined(__x86_64__)
// The same.
__attribute__((target("avx2"))) void SumLinesAvx2(const std::byte* bytes, std::size_t lines, std::uint64_t first,
                                                  std::uint64_t* lanes) {
  __m256i low = _mm256_load_si256(reinterpret_cast<const __m256i*>(lanes));
  __m256i high = _mm256_load_si256(reinterpret_cast<const __m256i*>(lanes + 4));
  const __m256i step = _mm256_set1_epi64x(static_cast<long long>(kPrime));
  const std::uint64_t first_key = first * kPrime;
  const __m256i start = _mm256_set1_epi64x(static_cast<long long>(first_key));
  __m256i low_key = _mm256_add_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(kKeys)), start);
  __m256i high_key = _mm256_add_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(kKeys + 4)), start);
  for (std::size_t line = 0; line < lines; ++line) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + line * 64));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + line * 64 + 32));
    const __m256i x = _mm256_xor_si256(a, low_key);
    const __m256i y = _mm256_xor_si256(b, high_key);
    low = _mm256_add_epi64(low, _mm256_shuffle_epi32(a, _MM_SHUFFLE(1, 0, 3, 2)));
    high = _mm256_add_epi64(high, _mm256_shuffle_epi32(b, _MM_SHUFFLE(1, 0, 3, 2)));
    low = _mm256_add_epi64(low, _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
    high = _mm256_add_epi64(high, _mm256_mul_epu32(y, _mm256_srli_epi64(y, 32)));
    low_key = _mm256_add_epi64(low_key, step);
    high_key = _mm256_add_epi64(high_key, step);
  }
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), low);
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes + 4), high);
}
#endif

}  // namespace

void PartSum::Add(std::span<const std::byte> bytes, bool plain) {
  const std::size_t lines = bytes.size() / 64;
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2 && !plain) {
    SumLinesAvx2(bytes.data(), lines, line_, lanes_.data());
  } else {
    SumLines(bytes.data(), lines, line_, lanes_.data());
  }
#else
  static_cast<void>(plain);
  SumLines(bytes.data(), lines, line_, lanes_.data());
#endif
  line_ += lines;
  std::size_t at = lines * 64;
  for (; at < bytes.size(); ++at) tail_ = (tail_ ^ std::to_integer<std::uint64_t>(bytes[at])) * kPrime + 1;
  length_ += bytes.size();
}

std::uint64_t PartSum::value() const {
  std::uint64_t sum = Mix(length_ ^ tail_);
  for (const std::uint64_t lane : lanes_) sum = Mix(sum ^ lane) + kPrime;
  return sum;
}

TransferWire::TransferWire(wire::Stream stream) : stream_(std::move(stream)), raw_(stream_.raw_fd()) {
  if (raw_ >= 0) fcntl(raw_, F_SETFL, fcntl(raw_, F_GETFL) & ~O_NONBLOCK);
  stream_.ExpectBulk();
}

void TransferWire::Interrupt() const { shutdown(stream_.fd(), SHUT_RDWR); }

Status TransferWire::Write(std::span<const std::byte> bytes, bool more) {
  if (raw_ < 0) return stream_.WriteAll(bytes);
  while (!bytes.empty()) {
    const ssize_t sent = send(raw_, bytes.data(), bytes.size(), MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return Broken(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return {};
}

Status TransferWire::Read(std::span<std::byte> into) {
  if (raw_ < 0) return stream_.ReadAll(into);
  while (!into.empty()) {
    const ssize_t got = recv(raw_, into.data(), into.size(), MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Broken(got == 0 ? 0 : errno);
    into = into.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Result<wire::Frame> TransferWire::ReceiveFrame() {
  std::array<std::byte, sizeof(wire::FrameHeader)> head;
  if (Status status = Read(head); !status.ok()) return status;
  wire::FrameHeader header;
  std::memcpy(&header, head.data(), sizeof header);
  if (header.magic != wire::kFrameMagic || header.size > kMaxMessage || header.fds != 0) {
    return Status(Code::kCorrupt, "not a frame of this protocol");
  }
  std::string body(header.size, '\0');
  if (Status status = Read(std::as_writable_bytes(std::span(body))); !status.ok()) return status;
  wire::FrameReader reader;  // which checks the sum
  reader.Add(head, {});
  reader.Add(std::as_bytes(std::span(body)), {});
  wire::Frame frame;
  const Result<bool> whole = reader.Next(&frame);
  if (!whole.ok()) return whole.status();
  if (!whole.value()) return Status(Code::kCorrupt, "a frame is not whole");
  return frame;
}

Status TransferWire::SendBytes(std::span<const std::byte> bytes) {
  if (raw_ < 0) {
    base::Failpoint("transfer.sending");
    return stream_.WriteAll(bytes);
  }
  PartSum sum;
  while (!bytes.empty()) {
    const std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), kSendPiece));
    sum.Add(piece);
    if (Status status = Write(piece, true); !status.ok()) return status;
    base::Failpoint("transfer.sending");
    bytes = bytes.subspan(piece.size());
  }
  const std::uint64_t value = sum.value();
  return Write(std::as_bytes(std::span(&value, 1)), false);
}

Status TransferWire::ReceiveBytes(std::span<std::byte> into) {
  if (raw_ < 0) {
    base::Failpoint("transfer.receiving");
    return stream_.ReadAll(into);
  }
  PartSum sum;
  while (!into.empty()) {
    const std::span<std::byte> piece = into.first(std::min(into.size(), kReceivePiece));
    if (Status status = Read(piece); !status.ok()) return status;
    base::Failpoint("transfer.receiving");
    sum.Add(piece);
    into = into.subspan(piece.size());
  }
  std::uint64_t value = 0;
  if (Status status = Read(std::as_writable_bytes(std::span(&value, 1))); !status.ok()) return status;
  if (value != sum.value()) return Status(Code::kCorrupt, "the bytes that came are not those that were sent");
  return {};
}

}  // namespace manta::node
