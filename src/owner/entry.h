// An Entry is one object, or the future of one, as this process sees it. Refs count it; a task that is
// not finished counts it too. Entries live in one table for the whole process and outlive a cluster: a
// Ref kept past Shutdown still points to a valid Entry, which says so.
//
// A task's result that lies in the store can be lost with its node, and made again (rebuild.cc). For that an entry
// counts, beside Refs, the tasks that would need it as an input if they ran again (`lineage`). When no Ref is left but
// lineage is, the entry is shelved: its value is freed if it can be made again, and kept if not.
//
// Threads: `refs`, `state` and `where` are atomic. A value in the entry or the heap may be read without a lock once
// state is not kPending, and stays. One in the store may go: then state is kPending again, and only who holds the mutex
// can rely on it. Everything else is guarded by EntryTable::mutex, or belongs to the only thread that knows the entry:
// a small value that was put and that nothing else refers to (plain()) is made and freed without the mutex.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "base/spin_mutex.h"
#include "shm/lane.h"
#include "types/failure.h"
#include "types/id.h"
#include "types/place.h"

namespace manta::owner {
struct ClassQueue;
}

namespace manta::internal {

struct Entry;
struct ActorEntry;
struct Plan;

enum class State : std::uint8_t { kPending = 0, kReady = 1, kFailed = 2 };
enum class Origin : std::uint8_t { kTask = 0, kSibling = 1, kPut = 2, kBorrowed = 3 };
enum class Where : std::uint8_t { kNone = 0, kInline = 1, kHeap = 2, kStore = 3, kFailure = 4 };
// Where a task that has not finished is.
// kShelved: it has finished, and no Ref is left; see above.
enum class Stage : std::uint8_t { kNone = 0, kParked = 1, kBacklog = 2, kRing = 3, kTakenBack = 4, kShelved = 5 };

// What where is written before it is seen by whoever reads it.
class AtomicWhere {
 public:
  AtomicWhere& operator=(Where where) {
    value_.store(where, std::memory_order_release);
    return *this;
  }
  operator Where() const { return value_.load(std::memory_order_acquire); }  // NOLINT(google-explicit-constructor)

 private:
  std::atomic<Where> value_;
};

// Of a place in the table: odd while it is taken. Read by threads that have only its number.
class Generation {
 public:
  void Next() { value_.store(value_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  void Reset() { value_.store(0, std::memory_order_relaxed); }
  operator std::uint32_t() const {  // NOLINT(google-explicit-constructor)
    return value_.load(std::memory_order_acquire);
  }

 private:
  std::atomic<std::uint32_t> value_;
};

// A call that waits for other values, or whatever most entries do not need.
struct Extra {
  std::vector<Entry*> siblings;   // returns 1…, counted while the task runs; nullptr: nobody wants it any more
  std::vector<Entry*> arguments;  // kept until the task is done; counted
  std::vector<ActorEntry*> actor_arguments;
  std::vector<Entry*> contained;  // Refs inside the value; counted
  std::vector<ActorEntry*> contained_actors;
  std::vector<Entry*> dependents;  // tasks that wait for this value; counted
  std::vector<std::byte> parked;   // the arguments of a call that cannot be sent yet
  struct Hole {
    std::size_t at;
    Entry* entry;
  };
  std::vector<Hole> holes;
  std::uint32_t missing = 0;      // holes not ready
  std::vector<std::byte> header;  // the spec's header and name, while parked
  CallOrigin origin;              // and who made the call

  // Lineage (rebuild.cc).
  std::vector<Entry*> inputs;    // what the spec has by its place, in that order: lineage; counted, too, while it runs
  std::vector<Entry*> mentions;  // what the arguments have Refs to: lineage, once the task is done
  std::vector<Entry*> returns;   // returns 1… that still exist, once the task is done; not counted, nullptr: gone
  Entry* first = nullptr;        // of a return 1…: return 0, which has all the above; lineage
  std::uint32_t rebuilds = 0;    // since somebody read the value
  // Of a borrowed object: the task of ours whose result brought its Ref. If its owner dies, that task makes it again.
  Entry* maker = nullptr;  // lineage
  // Such objects that wait for this task to run again. `running`: it ran when we heard of it, and it may be that very
  // run whose process died.
  struct Orphan {
    Id object;
    std::uint64_t ask = 0;  // wire::Orphaned
    bool running = false;
  };
  std::vector<Orphan> orphans;
};

struct Entry {
  static constexpr std::uint8_t kEscaped = 1;     // announced to the daemon
  static constexpr std::uint8_t kMapped = 2;      // found by id
  static constexpr std::uint8_t kSubscribed = 4;  // waits for ObjectReady
  static constexpr std::uint8_t kCancelled = 8;
  static constexpr std::uint8_t kSharedPlace = 16;   // another process may know where it is stored
  static constexpr std::uint8_t kTimedOut = 32;      // its worker is being killed for that
  static constexpr std::uint8_t kBegun = 64;         // a far worker said so, of a call that must not run twice
  static constexpr std::uint8_t kRebuildable = 128;  // its task can run again: lineage is kept
  static constexpr std::size_t kInlineBytes = 32;

  std::atomic<std::uint32_t> refs;
  std::atomic<State> state;
  Origin origin;
  AtomicWhere where;
  Stage stage;
  std::uint32_t index;    // in the table
  Generation generation;  // of that place
  Id id;
  std::uint64_t size;  // of the value
  union {
    std::byte small[kInlineBytes];
    std::byte* heap;
    Place place;
    Failure* failure;
  };
  std::uint64_t spec;  // of the task, in the log; 0: none
  union {
    std::uint64_t position;  // of a task, in the queue's ring
    ProcessId owner;         // of a borrowed object
  };
  owner::ClassQueue* queue;
  const Plan* plan;
  Extra* extra;
  std::uint32_t session;
  std::int16_t retries;
  std::uint8_t flags;
  bool contains : 1;      // has Refs or handles inside; set before `state`, then constant
  bool small_put : 1;     // its place in the table is for small values of Puts; constant
  std::uint32_t holds;    // the daemon counts for this entry, to be dropped with it
  std::uint32_t lineage;  // values that could be made again need this one for it

  Entry() {}  // EntryTable sets every field
  ~Entry() {}
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  [[nodiscard]] bool done() const { return state.load(std::memory_order_acquire) != State::kPending; }
  // The call is over. Not the same as done(): of several returns, the first may be there before, or never have been
  // lost.
  [[nodiscard]] bool over() const { return queue == nullptr; }
  // It was there, and is not any more: lost, or freed when it was shelved.
  [[nodiscard]] bool missing() const {
    return state.load(std::memory_order_relaxed) == State::kReady && where == Where::kStore && place.nowhere();
  }
  // A small value of a Put that nothing but Refs has ever referred to: no task, no process, no other value. The thread
  // that drops the last Ref may free it without the mutex; others learn of it with the mutex held and set one of these
  // while they have a count. ~Owner may clear `flags` and `lineage` meanwhile.
  [[nodiscard]] bool plain() {
    return small_put && !contains && extra == nullptr && holds == 0 &&
           std::atomic_ref(flags).load(std::memory_order_relaxed) == 0 &&
           std::atomic_ref(lineage).load(std::memory_order_relaxed) == 0;
  }
  Extra& more() {
    if (extra == nullptr) extra = new Extra();
    return *extra;
  }
};
static_assert(sizeof(Entry) <= 128, "two cache lines: a program may have millions");

}  // namespace manta::internal

namespace manta::owner {

using internal::ActorEntry;
using internal::Entry;
using internal::Extra;
using internal::Origin;
using internal::Stage;
using internal::State;
using internal::Where;

// All entries of the process: slabs that are never given back, so that an index from another process
// can be checked without risk.
//
// Two threads that put small values spent most of their time with the mutex: one line of cache that travels between
// their cores four times for each value (1.5 million puts a second together, where one thread alone makes 7). So each
// thread has a stock of entries for small values, from slabs that hold nothing else. They are exchanged with the table
// kBatch at a time. ForEach passes over these slabs, because their entries change without the mutex; Find never names
// one, since no call has its result there.
class EntryTable {
 public:
  static EntryTable& Get();

  base::SpinMutex mutex;

  // Without the mutex: an entry for a small value of a Put, with one count.
  Entry* AllocateSmall(const Id& id, std::uint32_t session);
  // Without the mutex: of one that is plain().
  void FreeSmall(Entry* entry);

  // With the mutex held.
  Entry* Allocate(const Id& id, Origin origin, std::uint32_t refs, std::uint32_t session);
  // Frees the entry's memory and its place; calls unref for every entry and actor that it counted.
  template <typename U, typename A>
  void Empty(Entry* entry, U unref, A unref_actor) {
    if (entry->extra != nullptr) {
      const std::unique_ptr<Extra> extra(entry->extra);
      entry->extra = nullptr;
      for (Entry* e : extra->siblings) {
        if (e != nullptr) unref(e);
      }
      for (Entry* e : extra->arguments) unref(e);
      for (Entry* e : extra->contained) unref(e);
      for (Entry* e : extra->dependents) unref(e);
      for (const Extra::Hole& hole : extra->holes) unref(hole.entry);
      for (ActorEntry* a : extra->actor_arguments) unref_actor(a);
      for (ActorEntry* a : extra->contained_actors) unref_actor(a);
    }
    Free(entry);
  }
  // The entry at this place in this generation, or nullptr: the numbers come from another process.
  Entry* Find(std::uint32_t index, std::uint32_t generation) {
    const std::uint32_t slab = index / kSlab;
    if (slab >= slabs_.size() || slabs_[slab].small) return nullptr;
    Entry* entry = &slabs_[slab].entries[index % kSlab];
    return entry->generation == generation && (generation & 1) != 0 ? entry : nullptr;
  }
  // All but small values of Puts.
  template <typename F>
  void ForEach(F f) {
    for (Slab& slab : slabs_) {
      if (!slab.small) ForEachOf(slab, f);
    }
  }
  // The small values of Puts: only while no thread can put another one.
  template <typename F>
  void ForEachSmall(F f) {
    for (Slab& slab : slabs_) {
      if (slab.small) ForEachOf(slab, f);
    }
  }
  [[nodiscard]] std::size_t live() const { return live_; }  // but for small values of Puts
  // Without an owner: the cluster it belonged to is gone.
  void DisposeForeign(Entry* entry);

 private:
  static constexpr std::uint32_t kSlab = 1024;
  static constexpr std::size_t kBatch = 64;
  struct Slab {
    std::unique_ptr<Entry[]> entries;
    bool small = false;
  };
  struct Stock;  // a thread's

  EntryTable() = default;
  void Free(Entry* entry);
  void AddSlab(bool small);
  template <typename F>
  static void ForEachOf(Slab& slab, F& f) {
    for (std::uint32_t i = 0; i < kSlab; ++i) {
      if ((slab.entries[i].generation & 1) != 0) f(&slab.entries[i]);
    }
  }

  std::vector<Slab> slabs_;
  std::vector<Entry*> free_;
  std::vector<Entry*> free_small_;  // in no thread's stock
  std::size_t live_ = 0;
};

}  // namespace manta::owner
