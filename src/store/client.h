// StoreClient is a process's half of the node's store: it writes objects into segments lent to it and reads
// anybody's objects in place. It reaches the daemon through a KeeperLink, only when it needs another segment,
// meets a segment for the first time, or lets go of an object that others have seen.
//
// Life of an object: Allocate, write into Allocation::data, Seal (or Abort); then, by its Place and from any
// process, Open, read View::data, Close; at last Free, by its owner.
//
// Threads: every method may be called from any thread. A View or Allocation belongs to one thread at a time.
// Lock order: lent_mutex_ before map_mutex_; none is held during a call of the link.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "shm/mapping.h"
#include "store/allocator.h"
#include "store/pins.h"
#include "store/segment.h"
#include "types/id.h"
#include "types/place.h"
#include "types/status.h"

namespace manta::store {

struct LentSegment {
  std::uint32_t segment = 0;
  std::uint64_t bytes = 0;
  bool whole = false;
  base::Fd fd;  // writable
};
struct OpenedSegment {
  std::uint32_t segment = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // in the file
  base::Fd fd;               // read-only
};

// The way to the daemon. Implementations must be thread-safe; each method is one message (see wire/messages.h).
class KeeperLink {
 public:
  virtual ~KeeperLink() = default;
  virtual Result<LentSegment> Request(std::uint64_t bytes) = 0;
  virtual Result<OpenedSegment> Open(std::uint32_t segment) = 0;
  virtual Result<Place> Restore(const Id& object) = 0;
  // A copy of what is at `place` on another node.
  virtual Result<Place> Fetch(const Id& object, const Place& place, ProcessId owner);
  virtual void Free(std::vector<Id> objects, std::vector<Place> places) = 0;
  virtual void Return(std::uint32_t segment) = 0;
};

// Room for an object that is being written.
struct Allocation {
  std::byte* data = nullptr;  // 64-byte aligned
  std::uint64_t size = 0;
  Id object;
  std::uint32_t segment = 0;
  std::uint32_t row = 0;
  std::uint32_t generation = 0;
  Table table;
};

// An object being read in place. Must be closed.
struct View {
  const std::byte* data = nullptr;
  std::uint64_t size = 0;
  std::uint32_t slot = 0;  // of the pin board

  [[nodiscard]] bool open() const { return data != nullptr; }
};

class StoreClient {
 public:
  // `pin_board`: Arena::at(shm::kPinBoardOffset) of this process's arena. `self`: as Welcome said.
  StoreClient(KeeperLink& link, ProcessId self, std::byte* pin_board);
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  // Room for `bytes` bytes. Waits if the store is full; then fails with the daemon's kOutOfMemory or kIo.
  Result<Allocation> Allocate(const Id& object, ProcessId owner, std::uint64_t bytes);
  // Gives it another name than it was allocated for, before Seal.
  static void Rename(Allocation& allocation, const Id& object);
  // Publishes what was written. The Place may be told to anybody.
  Place Seal(Allocation& allocation);
  void Abort(Allocation& allocation);

  // Pins the object. If it is not at `place` any more (spilled), the daemon brings it back and `*moved` (may
  // be null) is its new place; otherwise `*moved` is `place`. kLost: nobody has it.
  // If it is in another node's store, a copy is fetched first; `*moved` is `place` all the same, since copies come and
  // go. `owner`: the object's.
  Result<View> Open(const Id& object, const Place& place, Place* moved = nullptr, ProcessId owner = kNoProcess);
  void Close(View& view);
  // Is it in another node's store, and no copy known here?
  [[nodiscard]] bool IsElsewhere(const Id& object, const Place& place) {
    return !place.nowhere() && place.node != node_ && CopyOf(object).nowhere();
  }
  // The daemon says that it has a copy, for the next Open.
  void RememberCopy(const Id& object, const Place& place);

  // Is this in a segment that this process may write to? What it has put there it also reads there.
  [[nodiscard]] bool IsWritable(const void* data);

  // Lets go of an object. `shared`: another process may know the Place, or somebody may still read it.
  // Not shared, and written here: reused at once without a message. Else told to the daemon, in batches.
  void Free(const Id& object, const Place& place, bool shared = true);
  // Sends the waiting frees.
  void Flush();
  // Gives segments back in which nothing lives. The daemon takes them when it needs them anyway; a process that
  // goes idle for long can spare it the search.
  void ReturnEmpty();
  // Frees that wait for Flush.
  [[nodiscard]] std::size_t waiting_frees() const { return waiting_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t open_views() const { return pins_.count(); }

 private:
  // A segment in this process's memory. Stays mapped when the segment comes back with another object, until
  // the daemon gives its memory back.
  struct Mapped {
    shm::Mapping read;
    shm::Mapping write;
    Table table;                // over either
    std::uint64_t touched = 0;  // bytes of `write` that were faulted in; guarded by lent_mutex_
  };
  struct Lent {
    std::uint32_t segment = 0;
    std::uint64_t gate = kNoGate;
    bool whole = false;
    Table table;
    Mapped* mapped = nullptr;
    SegmentAllocator allocator;
  };
  enum class Attempt { kDone, kNoRoom, kTakenBack };

  Attempt TryLent(Lent& lent, const Id& object, ProcessId owner, std::uint64_t bytes, Allocation* out);
  bool TryAllLent(const Id& object, ProcessId owner, std::uint64_t bytes, Allocation* out);
  Lent* FindLent(std::uint32_t segment);
  static bool Enter(Lent& lent);
  static void Leave(Lent& lent);
  Status Adopt(LentSegment lent);
  Status MapForReading(std::uint32_t segment);
  // Pins and checks. kNotFound: the segment is not mapped; kLost: the object is not there any more.
  Result<View> TryOpen(const Id& object, const Place& place);
  bool FreeHere(const Id& object, const Place& place);
  Place CopyOf(const Id& object);
  void UnmapRetired();

  KeeperLink& link_;
  const ProcessId self_;
  const NodeNumber node_;
  PinBoard pins_;

  std::mutex lent_mutex_;
  std::vector<std::unique_ptr<Lent>> lent_;  // the one used last comes first

  std::mutex map_mutex_;
  std::unordered_map<std::uint32_t, Mapped> maps_;
  std::unordered_map<Id, Place> copies_;  // of other nodes' objects, as far as remembered: to spare a question

  std::mutex free_mutex_;
  std::vector<Id> free_ids_;
  std::vector<Place> free_places_;
  std::atomic<std::size_t> waiting_{0};
};

}  // namespace manta::store
