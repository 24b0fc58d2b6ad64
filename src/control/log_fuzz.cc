// A log segment with any bytes in it: whatever is read is a batch or the end, and never reads outside.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "control/log_format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace manta::control;  // NOLINT(google-build-using-namespace)
  // On the heap at its exact size, so that AddressSanitizer sees a read past the end.
  const std::vector<std::uint8_t> exact(data, data + size);
  const std::span<const std::byte> input = std::as_bytes(std::span(exact));
  static_cast<void>(DecodeSegmentHeader(input, 1));
  LogReader reader(input, 1, sizeof(SegmentHeader));
  while (reader.Next()) {
  }
  // With a checksum that is right, to get past it: the input is the encoded batch.
  std::string sealed(16 + (size + 7) / 8 * 8, '\0');
  const auto length = static_cast<std::uint32_t>(size);
  std::memcpy(sealed.data() + 8, &length, sizeof length);
  if (size > 0) std::memcpy(sealed.data() + 16, data, size);
  SealRecord(std::as_writable_bytes(std::span(sealed)), 1, 0);
  LogReader decoding(std::as_bytes(std::span(sealed)), 1, 0);
  static_cast<void>(decoding.Next());
  Batch batch;
  batch.sequence = 7;
  std::string good;
  AppendRecord(&good, 1, 0, batch);
  // A valid record followed by the input; then the valid record with the input written over it.
  std::string mixed = good + std::string(reinterpret_cast<const char*>(data), size);
  LogReader after(std::as_bytes(std::span(mixed)), 1, 0);
  if (!after.Next() || after.offset() != good.size()) __builtin_trap();
  while (after.Next()) {
  }
  if (size > 0) {
    std::string damaged = good;
    const std::size_t at = data[0] % damaged.size();
    std::memcpy(damaged.data() + at, data, std::min(size, damaged.size() - at));
    LogReader third(std::as_bytes(std::span(damaged)), 1, 0);
    if (third.Next().has_value() != (damaged == good)) __builtin_trap();
  }
  return 0;
}
