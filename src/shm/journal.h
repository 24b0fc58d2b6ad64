// The journal of an actor is what outlives its process: the calls that it has run since its last checkpoint, in their
// order, that checkpoint, and answers that somebody may ask for again. Memory that the daemon holds and hands to one
// worker after the other; only the worker that has the actor writes.
//
//   header | answers, a ring | area 0 | area 1        each area: state of a checkpoint, then records of calls
//
// A record counts once its area's `end` covers it, which is before the call's answer can be seen: a worker killed while
// writing has written nothing. A checkpoint fills the area that is not in use and counts once `current` names it.
// Nothing here decides anything: that is rules/actor_replay.h, and worker/actor_journal.h drives both.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/fd.h"
#include "shm/mapping.h"
#include "shm/spec.h"
#include "types/id.h"
#include "types/status.h"

namespace manta::shm {

inline constexpr std::uint64_t kJournalHeader = 4096;
inline constexpr std::uint64_t kAnswersBytes = 4ULL << 20;
inline constexpr std::uint64_t kAreaBytes = 4ULL << 30;  // addresses; memory is taken as it is written
inline constexpr std::uint64_t kJournalBytes = kJournalHeader + kAnswersBytes + 2 * kAreaBytes;
inline constexpr std::uint64_t kMostKept = 256ULL << 10;  // of one answer

struct JournalArea {
  std::uint64_t has_state;
  std::uint64_t state_bytes;
  std::uint64_t calls_before;        // run before the state was saved
  std::atomic<std::uint64_t> calls;  // recorded since
  std::atomic<std::uint64_t> end;    // of the last record, from the beginning of the area
};

struct JournalMemory {
  std::uint64_t magic;
  std::atomic<std::uint64_t> current;   // checkpoints made; the area in use is its lowest bit
  std::atomic<std::uint64_t> given_up;  // calls when it became too much to record; 0: it did not
  std::atomic<std::uint64_t> answers_head;
  std::atomic<std::uint64_t> answers_tail;
  JournalArea areas[2];
};
static_assert(sizeof(JournalMemory) <= kJournalHeader);

// Followed by the call's spec. What its arguments had in the store is in the record itself.
struct CallRecord {
  std::uint32_t bytes = 0;  // of the record; a multiple of 8
  std::uint32_t failed = 0;
  std::uint64_t digest = 0;  // of the answer: a replay must answer the same
};

// Followed by replies: a ReplyHeader and its payload each, as in a lane, but that values are whole whatever their size.
struct AnswerRecord {
  std::uint32_t bytes = 0;
  std::uint32_t none = 0;  // nothing follows: 1: the rest of the ring is unused, 2: the answer was too large to keep
  Id call;
  std::uint64_t digest = 0;  // of the call's spec
};

class Journal {
 public:
  Journal() = default;
  static Result<base::Fd> Make() { return MakeMemory("manta-journal", kJournalBytes); }
  static Result<Journal> Open(base::Fd fd);

  [[nodiscard]] const std::byte* data() const { return map_.data(); }

  // ---- calls ----

  // Room for a record with a spec of so many bytes; nullptr: the area is full. Nothing counts before Commit.
  std::byte* Begin(std::uint64_t spec_bytes) {
    const std::uint64_t bytes = sizeof(CallRecord) + Padded(spec_bytes);
    const std::uint64_t end = area().end.load(std::memory_order_relaxed);
    if (bytes > kAreaBytes - end || bytes > UINT32_MAX) return nullptr;
    open_.bytes = static_cast<std::uint32_t>(bytes);
    return area_ + end + sizeof(CallRecord);
  }
  void Commit(std::uint64_t digest, bool failed) {
    JournalArea& at = area();
    const std::uint64_t end = at.end.load(std::memory_order_relaxed);
    open_.failed = failed ? 1 : 0;
    open_.digest = digest;
    std::memcpy(area_ + end, &open_, sizeof open_);
    at.calls.store(at.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    at.end.store(end + open_.bytes, std::memory_order_release);
  }
  [[nodiscard]] std::uint64_t open_bytes() const { return open_.bytes; }

  // Calls f(record, spec, bytes of it) for every call since the checkpoint, until it returns false.
  template <typename F>
  Status ForCalls(F f) const {
    const std::uint64_t end = area().end.load(std::memory_order_acquire);
    std::uint64_t at = Padded(area().state_bytes);
    while (at < end) {
      CallRecord record;
      if (end - at < sizeof record) return Broken();
      std::memcpy(&record, area_ + at, sizeof record);
      if (record.bytes < sizeof record + sizeof(SpecHeader) || (record.bytes & 7) != 0 || record.bytes > end - at) {
        return Broken();
      }
      if (!f(record, area_ + at + sizeof record, record.bytes - sizeof record)) return {};
      at += record.bytes;
    }
    return {};
  }

  // ---- checkpoints ----

  // False: the state does not fit.
  bool Checkpoint(std::span<const std::byte> state);
  [[nodiscard]] bool has_state() const { return area().has_state != 0; }
  [[nodiscard]] std::span<const std::byte> state() const { return {area_, area().state_bytes}; }
  [[nodiscard]] std::uint64_t calls() const { return area().calls.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t calls_before() const { return area().calls_before; }
  [[nodiscard]] std::uint64_t call_bytes() const {
    return area().end.load(std::memory_order_relaxed) - Padded(area().state_bytes);
  }

  // No more calls are recorded: what there is does not lead to what the actor is. Answers are kept all the same.
  void GiveUp();
  [[nodiscard]] std::uint64_t given_up() const { return memory().given_up.load(std::memory_order_acquire); }

  // ---- answers ----

  // The oldest make room. Its place in the ring.
  std::uint64_t Keep(const Id& call, std::uint64_t digest, std::span<const std::byte> replies);
  // Calls f(record, place) for all that are kept, the oldest first.
  template <typename F>
  void ForAnswers(F f) const {
    const std::uint64_t tail = memory().answers_tail.load(std::memory_order_acquire);
    for (std::uint64_t at = memory().answers_head.load(std::memory_order_acquire); at < tail;) {
      AnswerRecord record;
      std::memcpy(&record, answers_ + at % kAnswersBytes, sizeof record);
      if (record.bytes < 8 || (record.bytes & 7) != 0) return;
      if (record.none != 1) f(record, at);
      at += record.bytes;
    }
  }
  [[nodiscard]] std::uint64_t oldest_answer() const { return memory().answers_head.load(std::memory_order_relaxed); }
  // False: it was overwritten. `replies` stays until the next Keep.
  bool Look(std::uint64_t place, AnswerRecord* record, std::span<const std::byte>* replies) const;

 private:
  [[nodiscard]] JournalMemory& memory() const { return *reinterpret_cast<JournalMemory*>(map_.data()); }
  [[nodiscard]] JournalArea& area() const { return *current_; }
  void Use(std::uint64_t current);
  void FreeArea();  // its memory
  static Status Broken() { return {Code::kCorrupt, "an actor's journal makes no sense"}; }

  base::Fd fd_;
  Mapping map_;
  std::byte* answers_ = nullptr;
  JournalArea* current_ = nullptr;
  std::byte* area_ = nullptr;  // where its bytes begin
  CallRecord open_;
};

}  // namespace manta::shm
