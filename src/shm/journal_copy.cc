#include "shm/journal_copy.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "shm/journal.h"
#include "types/text.h"

namespace manta::shm {
namespace {

void Add(std::vector<JournalRange>* ranges, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes > 0) ranges->push_back({offset, bytes});
}

}  // namespace

std::vector<JournalRange> RangesOf(const std::byte* journal, JournalMarks* marks) {
  const auto& memory = *reinterpret_cast<const JournalMemory*>(journal);
  std::vector<JournalRange> ranges;
  const std::uint64_t checkpoints = memory.current.load(std::memory_order_acquire);
  const JournalArea& area = memory.areas[checkpoints & 1];
  const std::uint64_t end = std::min(area.end.load(std::memory_order_acquire), kAreaBytes);
  const std::uint64_t from = checkpoints == marks->checkpoints ? std::min(marks->end, end) : 0;
  Add(&ranges, kJournalHeader + kAnswersBytes + (checkpoints & 1) * kAreaBytes + from, end - from);
  const std::uint64_t tail = memory.answers_tail.load(std::memory_order_acquire);
  std::uint64_t at = std::max(marks->answers, memory.answers_head.load(std::memory_order_acquire));
  while (at < tail) {  // the ring may go round
    const std::uint64_t bytes = std::min(tail - at, kAnswersBytes - at % kAnswersBytes);
    Add(&ranges, kJournalHeader + at % kAnswersBytes, bytes);
    at += bytes;
  }
  const bool given_up = memory.given_up.load(std::memory_order_acquire) != 0;
  const bool changed = !ranges.empty() || checkpoints != marks->checkpoints || given_up != marks->given_up;
  *marks = {checkpoints, end, tail, given_up};
  if (changed) Add(&ranges, 0, sizeof(JournalMemory));
  return ranges;
}

std::uint64_t BytesOf(const std::vector<JournalRange>& ranges) {
  std::uint64_t bytes = 0;
  for (const JournalRange& range : ranges) bytes += range.bytes;
  return bytes;
}

Status Check(const std::vector<JournalRange>& ranges) {
  for (const JournalRange& range : ranges) {
    if (range.offset > kJournalBytes || range.bytes > kJournalBytes - range.offset) {
      return {Code::kCorrupt, "a range of an actor's journal lies outside of it"};
    }
  }
  return {};
}

std::vector<JournalPart> Read(const std::byte* journal, const std::vector<JournalRange>& ranges) {
  std::vector<JournalPart> parts;
  parts.reserve(ranges.size());
  for (const JournalRange& range : ranges) {
    parts.push_back({range.offset, std::string(reinterpret_cast<const char*>(journal) + range.offset, range.bytes)});
  }
  return parts;
}

std::vector<JournalPart> ChangesOf(const std::byte* journal, JournalMarks* marks) {
  return Read(journal, RangesOf(journal, marks));
}

Result<std::vector<JournalPart>> AllOf(int fd) {
  Result<Mapping> map = Mapping::Of(fd, 0, kJournalBytes, false);
  if (!map.ok()) return map.status();
  if (reinterpret_cast<const JournalMemory*>(map->data())->magic == 0) return std::vector<JournalPart>();
  JournalMarks marks;
  std::vector<JournalRange> ranges = RangesOf(map->data(), &marks);
  if (ranges.empty()) Add(&ranges, 0, sizeof(JournalMemory));
  return Read(map->data(), ranges);
}

Status Write(int fd, const std::vector<JournalPart>& parts) {
  for (const JournalPart& part : parts) {
    if (part.offset > kJournalBytes || part.bytes.size() > kJournalBytes - part.offset) {
      return {Code::kCorrupt, "a copy of an actor's journal has a part outside of it"};
    }
    std::size_t written = 0;
    while (written < part.bytes.size()) {
      const ssize_t n = pwrite(fd, part.bytes.data() + written, part.bytes.size() - written,
                               static_cast<off_t>(part.offset + written));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return {Code::kOutOfMemory, Cat("a copy of an actor's journal: ", std::strerror(errno))};
      written += static_cast<std::size_t>(n);
    }
  }
  return {};
}

std::vector<std::vector<JournalPart>> Split(const std::vector<JournalPart>& parts, std::uint64_t bytes) {
  std::vector<std::vector<JournalPart>> groups;
  std::uint64_t in_group = bytes;
  for (const JournalPart& part : parts) {
    for (std::uint64_t at = 0; at < part.bytes.size();) {
      if (in_group >= bytes) {
        groups.emplace_back();
        in_group = 0;
      }
      const std::uint64_t count = std::min<std::uint64_t>(part.bytes.size() - at, bytes - in_group);
      groups.back().push_back({part.offset + at, part.bytes.substr(at, count)});
      in_group += count;
      at += count;
    }
  }
  return groups;
}

}  // namespace manta::shm
