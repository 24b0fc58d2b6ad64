// LineageKeeper puts the lineage of a node's owners on disk: it follows their rings (shm/lineage_ring.h), and writes
// what it finds into the file of each job (lineage/file.h).
//
// Two threads. One takes what is in the rings, every other millisecond while there is something (with the disk's own
// time, a record is safe within 5 ms; to come more often costs more than it gives), and sleeps on the daemon's doorbell
// otherwise. The other syncs the files: all that came in during one sync goes out with the next (group commit). So a
// slow disk makes commits slow, but fills no ring.
//
// Threads: all methods from the daemon's loop.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "lineage/file.h"
#include "lineage/folder.h"
#include "shm/lineage_ring.h"
#include "shm/mapping.h"
#include "shm/node_area.h"
#include "types/id.h"
#include "types/status.h"

namespace manta::node {

class LineageKeeper {
 public:
  // `bell`: the daemon's own, which owners ring.
  explicit LineageKeeper(shm::Doorbell& bell) : bell_(bell) {}
  // Takes and syncs all that is there.
  ~LineageKeeper();
  LineageKeeper(const LineageKeeper&) = delete;
  LineageKeeper& operator=(const LineageKeeper&) = delete;

  // From now on this job's lineage is kept in the folder, which stays when the job ends, with `keep` or if a task
  // failed or it ended badly.
  Status AddJob(const Id& job, lineage::JobFolder folder, NodeNumber node, std::uint64_t program, bool keep);
  [[nodiscard]] bool Has(const Id& job) const { return jobs_.contains(job); }
  [[nodiscard]] std::string FolderOf(const Id& job) const;
  // A process of the job; its arena.
  Status AddOwner(const Id& job, ProcessId owner, int arena);
  // It is gone; what it wrote is taken.
  void OwnerGone(ProcessId owner);
  // All its owners are gone. `well`: its driver said so; then nobody needs the lineage.
  void EndJob(const Id& job, bool well);
  // Until a job that has ended and had this folder is synced, and has let go of it.
  void AwaitEnd(const std::string& folder);

 private:
  struct Owner {
    ProcessId process = kNoProcess;
    shm::Mapping map;
    shm::LineageReader reader;
    std::uint32_t taken_commits = 0;  // asked for before the last look: in the file
  };
  struct Job {
    lineage::JobFolder folder;
    lineage::FileWriter file;
    bool keep = false;
    bool failed = false;   // a task has
    bool dirty = false;    // since the last sync began
    bool begun = false;    // the folder itself is on disk
    bool removed = false;  // it is no more
    bool gone = false;     // to be forgotten when it is synced; only the syncing thread does that
    std::vector<std::unique_ptr<Owner>> owners;
  };

  void Start();
  void Take();
  void Sync();
  // With the mutex held. True: there was something.
  bool TakeAll();
  bool TakeFrom(Job& job, Owner& owner);

  shm::Doorbell& bell_;
  std::unordered_map<Id, Job*> jobs_;  // the loop's
  std::unordered_map<ProcessId, Job*> by_owner_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable news_;
  std::condition_variable synced_;
  std::vector<std::unique_ptr<Job>> all_;
  bool stopping_ = false;
  bool taken_ = false;  // all that there ever will be
  std::thread taker_;
  std::thread syncer_;
};

}  // namespace manta::node
