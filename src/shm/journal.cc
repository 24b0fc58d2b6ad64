#include "shm/journal.h"

#include <fcntl.h>

#include <algorithm>

#include "base/failpoint.h"

namespace manta::shm {
namespace {
constexpr std::uint64_t kJournalMagic = 0x4d4a524e4c303031ULL;
// Memory of an area that is worth giving back when the other one takes over.
constexpr std::uint64_t kWorthFreeing = 4ULL << 20;
}  // namespace

Result<Journal> Journal::Open(base::Fd fd) {
  Result<Mapping> map = Mapping::Of(fd.get(), 0, kJournalBytes, true);
  if (!map.ok()) return map.status();
  Journal journal;
  journal.fd_ = std::move(fd);
  journal.map_ = std::move(*map);
  journal.answers_ = journal.map_.data() + kJournalHeader;
  if (journal.memory().magic == 0) {
    journal.memory().magic = kJournalMagic;  // all else begins with zero
  } else if (journal.memory().magic != kJournalMagic) {
    return Status(Code::kCorrupt, "a descriptor that should be an actor's journal is something else");
  }
  journal.Use(journal.memory().current.load(std::memory_order_acquire));
  const JournalArea& area = journal.area();
  if (area.state_bytes > kAreaBytes || area.end.load(std::memory_order_relaxed) > kAreaBytes) return Broken();
  return journal;
}

void Journal::Use(std::uint64_t current) {
  current_ = &memory().areas[current & 1];
  area_ = map_.data() + kJournalHeader + kAnswersBytes + (current & 1) * kAreaBytes;
}

bool Journal::Checkpoint(std::span<const std::byte> state) {
  if (state.size() > kAreaBytes / 2) return false;
  const std::uint64_t last = memory().current.load(std::memory_order_relaxed);
  const std::uint64_t before = calls_before() + calls();
  Use(last + 1);
  JournalArea& fresh = area();
  fresh.has_state = 1;
  fresh.state_bytes = state.size();
  fresh.calls_before = before;
  fresh.calls.store(0, std::memory_order_relaxed);
  fresh.end.store(Padded(state.size()), std::memory_order_relaxed);
  if (!state.empty()) std::memcpy(area_, state.data(), state.size());
  base::Failpoint("actor.saving");
  memory().current.store(last + 1, std::memory_order_release);
  base::Failpoint("actor.saved");
  Use(last);
  if (area().end.load(std::memory_order_relaxed) > kWorthFreeing) FreeArea();
  Use(last + 1);
  return true;
}

void Journal::GiveUp() {
  memory().given_up.store(calls_before() + calls() + 1, std::memory_order_release);
  FreeArea();
}

void Journal::FreeArea() {
  const std::uint64_t bytes = (area().end.load(std::memory_order_relaxed) + 4095) & ~4095ULL;
  if (bytes == 0) return;
  static_cast<void>(fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              static_cast<off_t>(area_ - map_.data()), static_cast<off_t>(bytes)));
}

std::uint64_t Journal::Keep(const Id& call, std::uint64_t digest, std::span<const std::byte> replies) {
  AnswerRecord record;
  const bool fits = replies.size() <= kMostKept;
  record.bytes = static_cast<std::uint32_t>(sizeof record + (fits ? Padded(replies.size()) : 0));
  record.none = fits ? 0 : 2;
  record.call = call;
  record.digest = digest;
  std::uint64_t head = memory().answers_head.load(std::memory_order_relaxed);
  std::uint64_t tail = memory().answers_tail.load(std::memory_order_relaxed);
  const std::uint64_t rest = kAnswersBytes - tail % kAnswersBytes;
  const std::uint64_t skip = rest < record.bytes ? rest : 0;
  while (head < tail && tail + skip + record.bytes - head > kAnswersBytes) {
    AnswerRecord oldest;
    std::memcpy(static_cast<void*>(&oldest), answers_ + head % kAnswersBytes, 8);  // its size is in there
    head = oldest.bytes < 8 ? tail : head + oldest.bytes;
  }
  memory().answers_head.store(std::min(head, tail), std::memory_order_release);
  if (skip > 0) {
    AnswerRecord gap;
    gap.bytes = static_cast<std::uint32_t>(skip);
    gap.none = 1;
    std::memcpy(answers_ + tail % kAnswersBytes, &gap, 8);  // there may be room for no more
    tail += skip;
  }
  std::byte* at = answers_ + tail % kAnswersBytes;
  std::memcpy(at, &record, sizeof record);
  if (fits && !replies.empty()) std::memcpy(at + sizeof record, replies.data(), replies.size());
  memory().answers_tail.store(tail + record.bytes, std::memory_order_release);
  return tail;
}

bool Journal::Look(std::uint64_t place, AnswerRecord* record, std::span<const std::byte>* replies) const {
  if (place < memory().answers_head.load(std::memory_order_relaxed)) return false;
  std::memcpy(record, answers_ + place % kAnswersBytes, sizeof *record);
  if (record->bytes < sizeof *record || record->bytes > kAnswersBytes - place % kAnswersBytes) return false;
  *replies = {answers_ + place % kAnswersBytes + sizeof *record, record->bytes - sizeof *record};
  return true;
}

}  // namespace manta::shm
