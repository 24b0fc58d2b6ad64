// The bytes of the embedded storage's log: segments of checksummed records, one record a batch.
//
// A segment starts with a header that carries its number and the last sequence durable before it; records follow, each
// at a multiple of 8. A record's checksum also covers its segment and offset, so that bytes left over from another
// place or an earlier life of the file are never taken for one. The first thing that is not a valid record is the
// segment's end: a write cut short by a crash, zeros written ahead, or damage. Which of these it was, the next
// segment's header tells: what it says was durable must have been found.
//
// Pure: no files. The reader trusts nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "control/storage.h"
#include "types/status.h"

namespace manta::control {

inline constexpr std::uint64_t kSegmentMagic = 0x31474f4c41544e4dULL;  // "MNTALOG1"
inline constexpr std::size_t kMaxRecord = 256U << 20;                  // bytes

struct SegmentHeader {
  std::uint64_t magic = kSegmentMagic;
  std::uint64_t number = 0;
  std::uint64_t durable_before = 0;  // sequence
  std::uint64_t checksum = 0;        // of the above
};
static_assert(sizeof(SegmentHeader) == 32);

// Catches torn, misplaced and damaged bytes, not an adversary. Any change within one 8-byte word changes it.
[[nodiscard]] std::uint64_t Checksum(std::span<const std::byte> bytes, std::uint64_t seed);

[[nodiscard]] std::string EncodeSegmentHeader(std::uint64_t number, std::uint64_t durable_before);
// kCorrupt unless `bytes` start with a valid header of segment `number`.
[[nodiscard]] Result<SegmentHeader> DecodeSegmentHeader(std::span<const std::byte> bytes, std::uint64_t number);

// Appends the record of `batch`, which will be at `offset` (a multiple of 8) of segment `number`.
void AppendRecord(std::string* out, std::uint64_t number, std::uint64_t offset, const Batch& batch);

// Puts the right checksum into a record (16 bytes of header, then the encoded batch, padded); for AppendRecord and for
// tests.
void SealRecord(std::span<std::byte> record, std::uint64_t number, std::uint64_t offset);

// Walks over a segment that is in memory (or a part of it, that starts at `offset`).
class LogReader {
 public:
  LogReader(std::span<const std::byte> bytes, std::uint64_t number, std::uint64_t offset)
      : bytes_(bytes), number_(number), offset_(offset) {}

  // The next record, or nothing at the end of what is valid.
  [[nodiscard]] std::optional<Batch> Next();
  // Where in the segment the next record would start.
  [[nodiscard]] std::uint64_t offset() const { return offset_; }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t number_;
  std::uint64_t offset_;
};

}  // namespace manta::control
