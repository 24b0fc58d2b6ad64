// A spec that its owner scribbled over: whatever the bytes, a worker reads items that lie inside them, then a
// Status, and comes to an end.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "shm/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace manta;
  using namespace manta::shm;
  // Exactly as large as the input, so that the sanitizer sees one byte too much; `new` aligns it, as specs are.
  const std::unique_ptr<std::byte[]> copy(new std::byte[size]);
  std::byte* const bytes = copy.get();
  if (size > 0) std::memcpy(bytes, data, size);
  Result<SpecReader> reader = SpecReader::Open(bytes, size);
  if (!reader.ok()) return 0;
  const std::byte* const end = bytes + reader->header().bytes;
  if (reader->header().bytes > size) __builtin_trap();
  std::uint64_t sum = 0;
  for (const char c : reader->name()) sum += static_cast<unsigned char>(c);
  for (std::size_t items = 0;; ++items) {
    if (items > size / 8) __builtin_trap();  // an item has a word at least
    Result<SpecReader::Item> seen = reader->Peek();
    Result<SpecReader::Item> item = reader->Next();
    if (seen.ok() != item.ok()) __builtin_trap();
    if (!item.ok()) break;
    if (seen->data != item->data || seen->length != item->length || seen->kind != item->kind) __builtin_trap();
    const auto rest = static_cast<std::uint64_t>(end - item->data);
    if (item->data > end || item->length > rest) __builtin_trap();
    if (item->kind == ItemKind::kList) continue;
    for (std::uint64_t i = 0; i < item->length; ++i) sum += std::to_integer<std::uint64_t>(item->data[i]);
  }
  volatile std::uint64_t keep = sum;  // or the reads above would be left out
  static_cast<void>(keep);
  return 0;
}
