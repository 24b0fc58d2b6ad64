// An Entry is one object, or the future of one, as this process sees it. Refs count it; a task that is
// not finished counts it too. Entries live in one table for the whole process and outlive a cluster: a
// Ref kept past Shutdown still points to a valid Entry, which says so.
//
// Threads: `refs` and `state` are atomic; a value may be read without a lock once state is not kPending.
// Everything else is guarded by EntryTable::mutex.
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
enum class Stage : std::uint8_t { kNone = 0, kParked = 1, kBacklog = 2, kRing = 3, kTakenBack = 4 };

// A call that waits for other values, or whatever most entries do not need.
struct Extra {
  std::vector<Entry*> siblings;   // returns 1…, counted while the task runs
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
};

struct Entry {
  static constexpr std::uint8_t kEscaped = 1;     // announced to the daemon
  static constexpr std::uint8_t kMapped = 2;      // found by id
  static constexpr std::uint8_t kSubscribed = 4;  // waits for ObjectReady
  static constexpr std::uint8_t kCancelled = 8;
  static constexpr std::uint8_t kSharedPlace = 16;  // another process may know where it is stored
  static constexpr std::uint8_t kTimedOut = 32;     // its worker is being killed for that
  static constexpr std::uint8_t kBegun = 64;        // a far worker said so, of a call that must not run twice
  static constexpr std::size_t kInlineBytes = 32;

  std::atomic<std::uint32_t> refs;
  std::atomic<State> state;
  Origin origin;
  Where where;
  Stage stage;
  std::uint32_t index;       // in the table
  std::uint32_t generation;  // of that place
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
  bool contains;        // has Refs or handles inside; set before `state`, then constant
  std::uint32_t holds;  // the daemon counts for this entry, to be dropped with it

  Entry() {}  // EntryTable sets every field
  ~Entry() {}
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  [[nodiscard]] bool done() const { return state.load(std::memory_order_acquire) != State::kPending; }
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
class EntryTable {
 public:
  static EntryTable& Get();

  base::SpinMutex mutex;

  // With the mutex held.
  Entry* Allocate(const Id& id, Origin origin, std::uint32_t refs, std::uint32_t session);
  // Frees the entry's memory and its place; calls unref for every entry and actor that it counted.
  template <typename U, typename A>
  void Empty(Entry* entry, U unref, A unref_actor) {
    if (entry->extra != nullptr) {
      const std::unique_ptr<Extra> extra(entry->extra);
      entry->extra = nullptr;
      for (Entry* e : extra->siblings) unref(e);
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
    if (slab >= slabs_.size()) return nullptr;
    Entry* entry = &slabs_[slab][index % kSlab];
    return entry->generation == generation && (generation & 1) != 0 ? entry : nullptr;
  }
  template <typename F>
  void ForEach(F f) {
    for (auto& slab : slabs_) {
      for (std::uint32_t i = 0; i < kSlab; ++i) {
        if ((slab[i].generation & 1) != 0) f(&slab[i]);
      }
    }
  }
  [[nodiscard]] std::size_t live() const { return live_; }
  // Without an owner: the cluster it belonged to is gone.
  void DisposeForeign(Entry* entry);

 private:
  void Free(Entry* entry);
  static constexpr std::uint32_t kSlab = 1024;
  EntryTable() = default;

  std::vector<std::unique_ptr<Entry[]>> slabs_;
  std::vector<Entry*> free_;
  std::size_t live_ = 0;
};

}  // namespace manta::owner
