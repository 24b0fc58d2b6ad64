// A lane whose worker writes nonsense: the first bytes say how far the owner has read already and where the tail
// is, the rest lands in the ring. The owner reads records that lie inside the ring, or refuses; and comes to an end.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "shm/lane.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace manta::shm;
  struct Start {
    std::uint64_t tail;
    std::uint32_t read;   // records that the worker wrote while it was sane
    std::uint32_t limit;  // of one Read
  } start;
  if (size < sizeof start) return 0;
  std::memcpy(&start, data, sizeof start);
  data += sizeof start;
  size -= sizeof start;
  static const std::unique_ptr<LaneMemory> memory = std::make_unique<LaneMemory>();  // no larger than it must be
  LaneReader reader(memory.get());
  LaneWriter writer(memory.get());
  const auto nothing = [](const ReplyHeader&, const std::byte*) {};
  for (std::uint32_t i = 0; i < start.read % 16; ++i) {  // up to the ring's end and beyond
    const ReplyHeader* header = writer.Begin(30'000 + start.read % 1024);
    if (header == nullptr) __builtin_trap();
    writer.Commit(header);
    writer.Publish();
    if (!reader.Read(2, nothing)) __builtin_trap();  // a gap counts, too
  }
  const std::uint64_t head = memory->head.load();
  const std::uint64_t at = head % kLaneRing;
  const std::uint64_t count = std::min<std::uint64_t>(size, kLaneRing);
  const std::uint64_t first = std::min(count, kLaneRing - at);
  std::memcpy(memory->ring + at, data, first);
  std::memcpy(memory->ring, data + first, count - first);
  // Mostly a tail that is possible: others are refused at once.
  memory->tail.store((start.tail >> 63) != 0 ? start.tail : head + start.tail % (kLaneRing + 64));

  const std::byte* const end = memory->ring + kLaneRing;
  std::uint64_t sum = 0;
  std::uint64_t records = 0;
  const std::uint32_t limit = start.limit % 4096 + 1;
  bool sane = true;
  for (std::uint64_t rounds = 0; sane && reader.Ready(); ++rounds) {
    if (rounds > kLaneRing / 8) __builtin_trap();
    const std::uint64_t before = records;
    sane = reader.Read(limit, [&](const ReplyHeader& header, const std::byte* payload) {
      ++records;
      if (payload < memory->ring || payload > end || header.size > static_cast<std::uint64_t>(end - payload)) {
        __builtin_trap();
      }
      for (std::uint32_t i = 0; i < header.size; ++i) sum += std::to_integer<std::uint64_t>(payload[i]);
    });
    if (records - before > limit) __builtin_trap();
  }
  volatile std::uint64_t keep = sum;  // or the reads above would be left out
  static_cast<void>(keep);
  return 0;
}
