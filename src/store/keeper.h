// Keeper is the daemon's half of the node's store: it makes segments, lends them, takes them back, frees and
// spills objects, and never lets the store grow over its capacity. No sockets, threads or clock: the
// daemon's loop, and nobody else, calls a method per message and hands in the time; answers that may take a
// while come through callbacks, called from within some later method.
//
// A segment is lent (one process allocates in it), kept (nobody allocates; objects may live in it) or cached
// (empty, already faulted in, waiting for the next borrower). Where objects are is written in the segments'
// tables alone, by their writers, without telling the keeper; it scans when it needs to know.
//
// When memory is short, in this order: a cached segment that fits; a new one while capacity lasts; dropping
// cached ones; taking back lent ones that are empty; evicting copies of other nodes' objects, the oldest first; taking
// back lent ones with much room; spilling whole segments, those whose newest object is the oldest first, sparing pinned
// ones. If none of it helps, an object that is on disk is mapped from its spill file, so that every stored object can
// be read; a request for memory waits for a while and then gets a segment that is a file in the spill folder.
//
// A copy of an object that another node keeps is written and owned by kCopies, a process that never dies: the
// daemon's own transfers. It is evicted, never spilled, and needs no owner to be freed.
//
// Invariants: (1) the bytes of all segments never exceed the capacity.
//             (2) an object's bytes are neither reused nor given back while a live process pins them.
//             (3) a segment has at most one borrower, and its gate says who.
//             (4) tables are input: whatever they say, the keeper touches nothing outside its segments.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/fd.h"
#include "store/allocator.h"
#include "store/memory.h"
#include "store/pins.h"
#include "store/segment.h"
#include "store/spill.h"
#include "types/id.h"
#include "types/place.h"
#include "types/status.h"

namespace manta::store {

// LocalOf of the process that stands for the daemon's transfers.
inline constexpr std::uint32_t kCopies = 0xffffffffU;

struct KeeperConfig {
  std::string node = "n1";  // for messages
  NodeNumber number = 0;    // of the node; goes into every Place
  std::uint64_t capacity = 1ULL << 30;
  std::uint64_t segment_bytes = 0;         // 0: a suitable one
  std::string spill_folder;                // empty: no spilling
  shm::DiskShare disk;                     // of the folder
  std::int64_t wait_us = 10'000'000;       // how long a request for memory waits before it fails
  std::int64_t disk_after_us = 1'000'000;  // how long it waits before a file in the spill folder will do
  std::int64_t idle_us = 5'000'000;        // memory nobody used for this long is given back
  bool huge = true;                        // huge pages where the process may have them
};

struct KeeperStats {
  std::uint64_t capacity = 0;
  std::uint64_t used = 0;      // by objects
  std::uint64_t segments = 0;  // bytes of all segments: what the store holds of the machine
  std::uint64_t objects = 0;   // in memory
  std::uint64_t spilled = 0;   // bytes on disk
  std::uint64_t spilled_objects = 0;
  std::uint64_t waiting = 0;  // requests
  std::uint64_t copies = 0;   // bytes of other nodes' objects; part of `used`
  bool huge = false;
};

class Keeper {
 public:
  // What SegmentLent says. `fd` is writable, stays the keeper's, and is good during the callback only.
  struct Loan {
    std::uint32_t segment = 0;
    std::uint64_t bytes = 0;
    bool whole = false;
    int fd = -1;
  };
  struct Opened {
    std::uint32_t segment = 0;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  // in the file
    base::Fd fd;               // read-only
  };
  using LoanReply = std::function<void(Result<Loan>)>;
  using PlaceReply = std::function<void(Result<Place>)>;
  using KeepPredicate = std::function<bool(const Id&)>;
  using OnEvicted = std::function<void(const std::vector<Id>& objects)>;
  using OnWarning = std::function<void(const std::string& text)>;

  explicit Keeper(KeeperConfig config);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // The node's number, if it was not known from the start: before anything is stored.
  void SetNumber(NodeNumber number) { config_.number = number; }
  // Told of each copy that made room; called from within any method, and must not call back.
  void SetOnEvicted(OnEvicted callback) { on_evicted_ = std::move(callback); }
  // Called when pinned objects leave so little memory that objects are written to disk instead; at most once in
  // wait_us.
  void SetOnWarning(OnWarning callback) { on_warning_ = std::move(callback); }

  // `pin_board`: Arena::at(shm::kPinBoardOffset) of the process's arena; must stay mapped until ProcessDied.
  void ProcessJoined(ProcessId process, std::byte* pin_board);
  // Its pins go, what it was writing goes, its segments become the keeper's. Sealed objects it owned go too
  // unless `keep` says that others may still ask for them; then FreeObjects ends them. Its waiting requests
  // are dropped without an answer.
  void ProcessDied(ProcessId process, const KeepPredicate& keep, std::int64_t now_us);

  // Answers at once, or later when memory is short. kOutOfMemory (or kIo, when spilling failed) after wait_us,
  // or at once if the object can never fit.
  void SegmentRequest(ProcessId process, std::uint64_t bytes, std::int64_t now_us, LoanReply reply);
  // kLost: there is no such segment any more.
  Result<Opened> OpenSegment(std::uint32_t segment);
  // Ignored unless lent to that process.
  void SegmentReturn(ProcessId process, std::uint32_t segment, std::int64_t now_us);
  // Where the object is now, brought back from disk if need be. kLost: nowhere.
  void Restore(ProcessId process, const Id& object, std::int64_t now_us, PlaceReply reply);
  // Those that are pinned go when their pins do. A Place that is nowhere(): whatever is stored under the id goes,
  // which takes a scan. A Place out of date: the object has been spilled, or is gone already.
  void FreeObjects(const std::vector<Id>& objects, const std::vector<Place>& places, std::int64_t now_us);

  // What is stored for this owner, in memory or on disk. Scans every table.
  [[nodiscard]] std::vector<std::pair<Id, Place>> ObjectsOf(ProcessId owner) const;
  // The copy of this object (which may still have to come) is to stay: the one it was made from goes. Until it is
  // freed.
  void Adopt(const Id& object) { adopted_.insert(object); }

  // Deadlines, deferred frees, memory to give back. Call it at the time NextTick says, or more often.
  void Tick(std::int64_t now_us);
  // When to call Tick next, at the latest; -1: no need.
  [[nodiscard]] std::int64_t NextTick() const;

  // Scans every table.
  [[nodiscard]] KeeperStats stats() const;
  // Every object that is sealed, with the processes that look at it now.
  struct Facts {
    Id object;
    std::uint64_t bytes = 0;
    std::uint32_t owner = 0;  // LocalOf
    bool spilled = false;     // only on disk
    bool copy = false;        // of another node's
    std::vector<ProcessId> readers;
  };
  [[nodiscard]] std::vector<Facts> List() const;

 private:
  struct Segment;
  // A request that may have to wait: for a loan, or for an object to come back.
  struct Waiter {
    ProcessId process = kNoProcess;
    std::uint64_t bytes = 0;
    std::int64_t since_us = 0;
    std::int64_t deadline_us = 0;
    LoanReply loan;
    Id object;
    PlaceReply place;
  };
  // An object that was spilled at least once. Its file stays when it comes back: spilling it again is free.
  struct Stored {
    SpillFiles::Piece piece;
    ProcessId owner = kNoProcess;
    Place place;                // nowhere: only on disk. Its segment may be the file itself
    std::uint32_t segment = 0;  // the segment's number whenever the file is mapped; 0: it never was
  };
  // A segment that is no more, but whose pages have not all been given back: 1 GB of small ones takes 0.2 s.
  struct Retired {
    base::Fd fd;
    std::uint64_t bytes = 0;
    std::uint64_t done = 0;
  };
  // A row marked dying.
  struct Dying {
    std::uint32_t segment = 0;
    std::uint32_t row = 0;
    std::uint32_t generation = 0;
  };

  // keeper.cc: processes, messages, time
  bool Serve(Waiter& waiter, std::int64_t now_us);
  void ServeWaiting(std::int64_t now_us);
  void GiveBackIdle(std::int64_t now_us);
  [[nodiscard]] Status Shortage(std::uint64_t bytes) const;
  [[nodiscard]] static Status Unknown(ProcessId process);

  // keeper_segments.cc: who has which segment, and finding room
  [[nodiscard]] Segment* Find(std::uint32_t id) const;
  [[nodiscard]] bool Normal(std::uint64_t bytes) const;
  [[nodiscard]] std::uint64_t WholeSize(std::uint64_t bytes) const;
  [[nodiscard]] std::uint64_t NeedOf(std::uint64_t bytes) const;
  Result<Segment*> FindRoom(ProcessId process, std::uint64_t bytes, std::int64_t now_us);  // null: none now
  Result<Segment*> NewSegment(std::uint64_t bytes, bool whole);
  void Retire(std::uint32_t id);
  bool GiveBackRetired(std::uint64_t budget);
  bool DropCached(std::uint64_t need, bool at_least_one);
  Segment* BestCached(ProcessId process, std::uint64_t need, bool whole);
  Segment* WithRoom(ProcessId process, std::uint64_t bytes, bool lent, std::int64_t now_us);
  bool TakeBackEmpty(std::int64_t now_us);
  void Lend(Segment& segment, ProcessId process, std::int64_t now_us);
  bool TakeBack(Segment& segment, std::int64_t now_us);
  void Keep(Segment& segment, std::int64_t now_us);
  void CacheIfEmpty(Segment& segment, std::int64_t now_us);

  // keeper_objects.cc: freeing, spilling, bringing back
  bool MarkDying(const Id& object, const Place& place, std::vector<Dying>* dying);
  void Release(const std::vector<Dying>& dying, std::int64_t now_us);
  void FreeRow(Segment& segment, std::uint32_t row, std::uint32_t generation, RowState from);
  [[nodiscard]] std::unordered_set<Pin> Pins() const;
  bool EvictCopies(std::int64_t now_us);
  bool SpillOldest(std::int64_t now_us);
  bool Spill(Segment& segment, std::int64_t now_us);
  Result<Place> BringBack(const Id& object, Stored& stored, std::int64_t now_us);  // nowhere: no room now
  bool Reserve(std::uint64_t bytes, std::int64_t now_us, Segment** segment, Block* block, Status* failure);

  // keeper_disk.cc: segments in files
  Place MapStored(const Id& object, Stored& stored, std::int64_t now_us);  // nowhere: it cannot be mapped now
  bool Unmap(Segment& segment);
  void Forget(const Id& object, Stored& stored, std::vector<Dying>* dying);
  void RetireEmptyFiles();
  Segment* OnDisk(std::uint64_t bytes, std::int64_t now_us);  // null: the disk has no room
  void Warn(std::uint64_t bytes, std::int64_t now_us);

  KeeperConfig config_;
  OnWarning on_warning_;
  std::int64_t warn_again_us_ = 0;
  Status disk_failure_;  // of the last attempt to make a segment on disk
  OnEvicted on_evicted_;
  SegmentMemory memory_;
  SpillFiles spill_;
  Status spill_failure_;  // of the last attempt
  std::int64_t spill_again_us_ = 0;
  std::uint64_t segment_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;  // of all segments
  std::uint32_t next_id_ = 1;
  std::uint32_t next_lease_ = 1;
  std::map<std::uint32_t, std::unique_ptr<Segment>> segments_;
  std::map<ProcessId, PinBoard> boards_;
  std::deque<Waiter> waiting_;
  std::unordered_map<Id, Stored> stored_;
  std::unordered_set<Id> adopted_;
  std::vector<Dying> deferred_;  // pinned
  std::deque<Retired> retired_;
  std::int64_t now_us_ = 0;     // of the last call
  std::int64_t sweep_us_ = 0;   // when to look for idle memory next
  bool machine_short_ = false;  // the last attempt to make a segment found no memory in the machine
  bool serving_ = false;
};

}  // namespace manta::store
