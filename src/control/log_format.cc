#include "control/log_format.h"

#include <cstring>

#include "manta/codec.h"

namespace manta::control {
namespace {

struct RecordHeader {
  std::uint64_t checksum = 0;  // of everything after it
  std::uint32_t size = 0;      // of the encoded batch that follows
  std::uint32_t unused = 0;
};
static_assert(sizeof(RecordHeader) == 16);

constexpr std::size_t Padded(std::size_t size) { return (size + 7) & ~std::size_t{7}; }

std::uint64_t SeedOf(std::uint64_t number, std::uint64_t offset) {
  return Mix(number * 0x9e3779b97f4a7c15ULL + offset);
}

template <typename T>
std::span<const std::byte> BytesOf(const T& value, std::size_t from, std::size_t to) {
  return std::as_bytes(std::span(&value, 1)).subspan(from, to - from);
}

}  // namespace

std::uint64_t Checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  // Four independent lanes, because one chain of multiplications is bound by their latency.
  constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15ULL;
  std::uint64_t lanes[4] = {seed, seed ^ kPrime, seed + kPrime, ~seed};
  std::size_t at = 0;
  for (; at + 32 <= bytes.size(); at += 32) {
    for (std::size_t lane = 0; lane < 4; ++lane) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at + lane * 8, 8);
      lanes[lane] = (lanes[lane] ^ word) * kPrime;
      lanes[lane] ^= lanes[lane] >> 32;
    }
  }
  std::uint64_t hash = Mix(bytes.size() + seed);
  for (; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
    hash = Mix(hash ^ word);
  }
  for (const std::uint64_t lane : lanes) hash = Mix(hash ^ lane);
  return hash;
}

std::string EncodeSegmentHeader(std::uint64_t number, std::uint64_t durable_before) {
  SegmentHeader header;
  header.number = number;
  header.durable_before = durable_before;
  header.checksum = Checksum(BytesOf(header, 0, offsetof(SegmentHeader, checksum)), number);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header);
}

Result<SegmentHeader> DecodeSegmentHeader(std::span<const std::byte> bytes, std::uint64_t number) {
  SegmentHeader header;
  if (bytes.size() < sizeof header) return Status(Code::kCorrupt, Cat("a log segment of ", bytes.size(), " bytes"));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kSegmentMagic) return Status(Code::kCorrupt, "no log segment of this version (bad magic)");
  if (header.checksum != Checksum(BytesOf(header, 0, offsetof(SegmentHeader, checksum)), number)) {
    return Status(Code::kCorrupt, "the segment's header is damaged");
  }
  return header;
}

void AppendRecord(std::string* out, std::uint64_t number, std::uint64_t offset, const Batch& batch) {
  RecordHeader header;
  const std::size_t size = EncodedSize(batch);
  header.size = static_cast<std::uint32_t>(size);
  const std::size_t start = out->size();
  out->resize(start + sizeof header + Padded(size));
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(*out)).subspan(start);
  std::memcpy(bytes.data(), &header, sizeof header);
  Encode(batch, bytes.subspan(sizeof header, size));
  SealRecord(bytes, number, offset);
}

void SealRecord(std::span<std::byte> record, std::uint64_t number, std::uint64_t offset) {
  const std::uint64_t checksum = Checksum(record.subspan(sizeof RecordHeader::checksum), SeedOf(number, offset));
  std::memcpy(record.data(), &checksum, sizeof checksum);
}

std::optional<Batch> LogReader::Next() {
  RecordHeader header;
  if (bytes_.size() < sizeof header) return {};
  std::memcpy(&header, bytes_.data(), sizeof header);
  if (header.size == 0 || header.size > kMaxRecord) return {};
  const std::size_t whole = sizeof header + Padded(header.size);
  if (bytes_.size() < whole) return {};
  const std::span<const std::byte> checked = bytes_.subspan(sizeof header.checksum, whole - sizeof header.checksum);
  if (header.checksum != Checksum(checked, SeedOf(number_, offset_))) return {};
  Batch batch;
  try {
    batch = Decode<Batch>(bytes_.subspan(sizeof header, header.size));
  } catch (const Error&) {
    return {};
  }
  for (const Write& write : batch.writes) {
    if (static_cast<std::uint8_t>(write.table) >= wire::kTables) return {};
  }
  bytes_ = bytes_.subspan(whole);
  offset_ += whole;
  return batch;
}

}  // namespace manta::control
