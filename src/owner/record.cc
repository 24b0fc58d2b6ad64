// The lineage that outlives this process: what is called and what came of it goes to the ring in the arena
// (shm/lineage_ring.h), from which the daemon puts it on disk. Only of jobs that have a name; see doc/lineage.md.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "base/short_slice.h"
#include "owner/owner.h"

namespace manta::owner {
namespace {

constexpr std::uint32_t kIndexBits = 16;  // in Owner::recorded_: which return it is
constexpr std::int64_t kPauseUs = 200;
// How often a thread looks for its records to be written down before it queues up for the mutex; see WriteDown.
constexpr int kLooks = 200;
constexpr int kNaps = 100;
constexpr std::int64_t kNapUs = 10;

}  // namespace

// With the mutex held, but for what is public and AwaitRoomToRecord.

void Owner::StartRecording() {
  if (setup_.welcome.lineage.empty()) return;
  keeper_bell_ = &setup_.node->bell(kNoProcess);
  recorder_ =
      std::make_unique<lineage::Encoder>(reinterpret_cast<shm::LineageMemory*>(setup_.arena->at(shm::kLineageOffset)));
}

// Most calls and answers are as expected and only counted; the background thread writes down how many, a millisecond
// later at the latest. A worker does so at once: it may leave at any time after its task.
// The call is taken from where it came from: its spec, just written, may still be on the way into the cache.
void Owner::RecordCall(const Entry* entry, const CallOrigin& origin, const shm::SpecHeader& header,
                       std::string_view name, std::span<const std::byte> arguments) {
  const ActorEntry* actor = entry->queue->actor;
  const std::uint64_t record = recorder_->Task(origin, header, name, actor == nullptr ? Id{} : actor->id, arguments)
                               << kIndexBits;
  recorded_[entry->index] = record;
  if (entry->extra != nullptr) {
    std::uint64_t index = 0;
    for (const Entry* sibling : entry->extra->siblings) {
      if (++index < (1U << kIndexBits) && sibling != nullptr) recorded_[sibling->index] = record | index;
    }
  }
  Recorded();
}

// The value, too, is taken from where it came from: read at once and in other pieces than it was written into the entry
// in, it would wait for the cache.
void Owner::RecordOutcome(const Entry* entry, const std::byte* value) {
  if (entry->origin != Origin::kTask && entry->origin != Origin::kSibling) return;
  const std::uint64_t record = recorded_[entry->index];
  if (record == 0 || !lost_.ok()) return;
  const std::uint64_t sequence = record >> kIndexBits;
  const auto index = static_cast<std::uint32_t>(record & ((1U << kIndexBits) - 1));
  const Where where = entry->where;
  if (where == Where::kFailure) {
    recorder_->Failed(sequence, index, *entry->failure);
  } else if (where == Where::kStore || entry->contains) {
    recorder_->Stored(sequence, index, entry->size);
  } else {
    if (value == nullptr) value = where == Where::kHeap ? entry->heap : entry->small;
    recorder_->Value(sequence, index, {value, entry->size});
  }
  Recorded();
}

void Owner::Recorded() {
  const std::uint32_t asked = settles_asked_.load(std::memory_order_acquire);
  if (!recorder_->settled()) {
    if (setup_.runner == nullptr && asked == settles_done_.load(std::memory_order_relaxed)) return;
    recorder_->Settle();
  }
  if (keeper_bell_->sleeping.load(std::memory_order_relaxed) != 0) keeper_bell_->Ring();
  if (recorder_->waiting()) behind_.store(true, std::memory_order_relaxed);
  settles_done_.store(asked, std::memory_order_release);  // last: who asked must see if there was no room for it
}

void Owner::Settle() {
  if (recorder_->settled()) return;
  recorder_->Settle();
  Recorded();
}

// Whoever has the mutex does it with the next call or answer: a thread that submits all the time has it nearly always,
// and to wait for it took milliseconds.
void Owner::WriteDown() {
  if (recorder_ == nullptr) return;
  const std::uint32_t mine = settles_asked_.fetch_add(1, std::memory_order_acq_rel) + 1;
  for (int i = 0; static_cast<std::int32_t>(settles_done_.load(std::memory_order_acquire) - mine) < 0; ++i) {
    Lock lock(mutex_, std::defer_lock);
    if (i < kLooks) {
      base::Relax();
    } else if (i < kLooks + kNaps) {
      const timespec nap{0, kNapUs * 1000};
      nanosleep(&nap, nullptr);
    } else {
      lock.lock();
    }
    if (!lock.owns_lock() && !lock.try_lock()) continue;
    recorder_->Settle();
    return Recorded();
  }
}

bool Owner::Recalled(Entry* entry, const shm::SpecHeader& header, internal::Arguments& arguments) {
  if (entry->queue->actor != nullptr) return false;  // its state is not recalled, so it must hear the call again
  const lineage::Recall::Call* call = setup_.recall->Find(header.id);
  if (call == nullptr) return false;
  entry->stage = Stage::kTakenBack;
  // Arguments that are results of other calls are what they were: those are recalled, too, or run again.
  const bool same_arguments = !arguments.holes.empty() || (header.flags & shm::SpecHeader::kLoose) != 0 ||
                              lineage::Recall::SameArguments(*call, arguments.bytes, self());
  const bool same_code = call->code == 0 || call->code == lineage::Recall::CodeOf(header);
  for (const internal::Arguments::Hole& hole : arguments.holes) Unref(hole.entry);
  arguments.holes.clear();
  if (!same_code || !same_arguments || call->returns != header.returns) {
    const Caller& caller = ThisCaller();
    FailCall(entry, Failure{Code::kInvalid,
                            Cat("task ", ToString(header.id), ", call ", caller.calls, " of thread ", caller.path,
                                " of the job, was another one when it was recorded (",
                                same_code ? "with other arguments" : "another function",
                                "): a job that is resumed must make the same calls in the same order; start it "
                                "without resume"),
                            {},
                            {}});
    return true;
  }
  const std::vector<std::span<const std::byte>> values = setup_.recall->ValuesOf(*call);
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    Entry* result = Return(entry, i);
    SetValue(result, values[i]);
    Succeed(result);
  }
  Finish(entry);
  return true;
}

// Before a call: the disk may be slower than we are, and what it has not taken must not pile up here.
Status Owner::AwaitRoomToRecord() {
  while (behind_.load(std::memory_order_relaxed)) {
    {
      const Lock lock(mutex_);
      if (!lost_.ok()) return Status(lost_.code, lost_.message);
      if (recorder_->Flush()) {
        behind_.store(false, std::memory_order_relaxed);
        return {};
      }
    }
    const auto error = static_cast<Code>(recorder_->memory().error.load(std::memory_order_relaxed));
    if (error != Code::kOk) {
      return Status(Code::kIo, Cat("lineage cannot be written to ", setup_.welcome.lineage,
                                   error == Code::kOutOfMemory ? ": the disk is full; make room, and call again"
                                                               : "; mantad says why; call again"));
    }
    keeper_bell_->Rouse();
    const timespec pause{0, kPauseUs * 1000};
    nanosleep(&pause, nullptr);
  }
  return {};
}

Status Owner::Commit() {
  if (recorder_ == nullptr) {
    return Status(Code::kInvalid, "Commit: nothing of this job is kept on disk; give it a name (Config::job)");
  }
  const base::ShortSlices slices;  // or it would be on disk for milliseconds before this thread has its turn
  WriteDown();
  if (Status s = AwaitRoomToRecord(); !s.ok()) return s;
  shm::LineageMemory& memory = recorder_->memory();
  const std::uint32_t mine = memory.asked.fetch_add(1, std::memory_order_seq_cst) + 1;
  keeper_bell_->Rouse();
  for (;;) {
    const std::uint32_t done = memory.done.load(std::memory_order_seq_cst);
    if (static_cast<std::int32_t>(done - mine) >= 0) return {};
    if (memory.error.load(std::memory_order_relaxed) != 0) {
      return Status(Code::kIo, Cat("Commit: lineage cannot be written to ", setup_.welcome.lineage,
                                   "; mantad says why (is the disk full?)"));
    }
    const timespec look{0, 50'000'000};
    const long woken =
        syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&memory.done), FUTEX_WAIT, done, &look, nullptr, 0);
    if (woken == 0 || errno != ETIMEDOUT) continue;
    const Lock lock(mutex_);
    if (!lost_.ok()) return Status(lost_.code, lost_.message);
  }
}

std::vector<Entry*> Owner::BeginReplay(shm::SpecHeader* header) {
  const Lock lock(mutex_);
  std::vector<Entry*> results(header->returns);
  internal::RefScope nothing;
  Entry* entry = NewCall(*header, nullptr, nothing, results.data());
  entry->queue = plain_;
  entry->stage = Stage::kTakenBack;
  entry->retries = 0;
  header->entry = entry->index;
  header->generation = entry->generation;
  for (Entry* result : results) {
    result->flags |= Entry::kMapped;
    by_id_[result->id] = result;
  }
  return results;
}

void Owner::Plant(const Id& id, std::span<const std::byte> value) {
  const Lock lock(mutex_);
  Entry* entry = table_.Allocate(id, Origin::kPut, 1, session_);
  SetValue(entry, value);
  entry->flags |= Entry::kMapped;
  by_id_[id] = entry;
  entry->state.store(State::kReady, std::memory_order_release);
}

}  // namespace manta::owner
