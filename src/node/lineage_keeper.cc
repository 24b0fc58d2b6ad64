#include "node/lineage_keeper.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "base/log.h"
#include "base/short_slice.h"

namespace manta::node {
namespace {

constexpr std::int64_t kGatherUs = 3000;      // between two looks, unless somebody commits
constexpr std::int64_t kSecondLookUs = 5000;  // see Take
constexpr std::int64_t kRetryUs = 100'000;    // of a disk that takes nothing

}  // namespace

LineageKeeper::~LineageKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    news_.notify_all();
  }
  bell_.Rouse();
  if (taker_.joinable()) taker_.join();
  {
    const std::lock_guard lock(mutex_);
    taken_ = true;
    news_.notify_all();
  }
  if (syncer_.joinable()) syncer_.join();
}

Status LineageKeeper::AddJob(const Id& job, lineage::JobFolder folder, NodeNumber node, std::uint64_t program,
                             bool keep) {
  Result<lineage::FileWriter> file = lineage::FileWriter::Create(folder.NewFile(node), job, program);
  if (!file.ok()) return file.status();
  auto made = std::make_unique<Job>();
  made->folder = std::move(folder);
  made->file = std::move(*file);
  made->keep = keep;
  jobs_[job] = made.get();
  const std::lock_guard lock(mutex_);
  all_.push_back(std::move(made));
  if (!taker_.joinable()) Start();
  return {};
}

std::string LineageKeeper::FolderOf(const Id& job) const {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? std::string() : it->second->folder.path();
}

void LineageKeeper::Start() {
  taker_ = std::thread([this] { Take(); });
  syncer_ = std::thread([this] { Sync(); });
}

Status LineageKeeper::AddOwner(const Id& job, ProcessId process, int arena) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return {};
  Result<shm::Mapping> map = shm::Mapping::Of(arena, shm::kLineageOffset, shm::kLineageMemory, true);
  if (!map.ok()) return map.status();
  auto owner = std::make_unique<Owner>();
  owner->process = process;
  owner->map = std::move(*map);
  owner->reader = shm::LineageReader(reinterpret_cast<shm::LineageMemory*>(owner->map.data()));
  by_owner_[process] = it->second;
  const std::lock_guard lock(mutex_);
  it->second->owners.push_back(std::move(owner));
  return {};
}

void LineageKeeper::OwnerGone(ProcessId process) {
  const auto it = by_owner_.find(process);
  if (it == by_owner_.end()) return;
  Job& job = *it->second;
  by_owner_.erase(it);
  const std::lock_guard lock(mutex_);
  std::erase_if(job.owners, [&](const std::unique_ptr<Owner>& owner) {
    if (owner->process != process) return false;
    TakeFrom(job, *owner);
    return true;
  });
  if (job.dirty) news_.notify_all();
}

void LineageKeeper::EndJob(const Id& id, bool well) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return;
  Job* job = it->second;
  jobs_.erase(it);
  std::unique_lock lock(mutex_);
  for (const std::unique_ptr<Owner>& owner : job->owners) {
    TakeFrom(*job, *owner);
    by_owner_.erase(owner->process);
  }
  job->owners.clear();
  if (well && !job->keep && !job->failed) {
    job->folder.Remove();
    job->removed = true;
    job->dirty = false;
  }
  job->gone = true;
  news_.notify_all();
}

void LineageKeeper::AwaitEnd(const std::string& folder) {
  std::unique_lock lock(mutex_);
  synced_.wait(lock, [&] {
    return std::none_of(all_.begin(), all_.end(),
                        [&](const std::unique_ptr<Job>& job) { return job->gone && job->folder.path() == folder; });
  });
}

bool LineageKeeper::TakeFrom(Job& job, Owner& owner) {
  shm::LineageMemory& memory = owner.reader.memory();
  const std::uint32_t asked = memory.asked.load(std::memory_order_seq_cst);
  if (memory.failed.load(std::memory_order_relaxed) > 0) job.failed = true;
  bool any = false;
  for (;;) {
    const shm::LineagePiece piece = owner.reader.Next();
    if (piece.size() == 0) break;
    const Status status = job.file.Append(owner.process, piece);
    const std::uint32_t before = memory.error.exchange(status.ok() ? 0 : static_cast<std::uint32_t>(status.code()));
    if (!status.ok()) {
      if (before == 0) {
        base::LogWarning("cannot write lineage into %s: %s; tasks of the job wait until there is room",
                         job.folder.path().c_str(), status.message().c_str());
      }
      return any;
    }
    owner.reader.Taken(piece);
    any = true;
  }
  if (asked != owner.taken_commits) {
    owner.taken_commits = asked;
    any = true;
  }
  job.dirty |= any;
  return any;
}

bool LineageKeeper::TakeAll() {
  bool any = false;
  for (const std::unique_ptr<Job>& job : all_) {
    for (const std::unique_ptr<Owner>& owner : job->owners) any |= TakeFrom(*job, *owner);
  }
  if (any) news_.notify_all();
  return any;
}

// An owner rings after it has written, but does not make sure that this thread's falling asleep is seen in time (that
// would cost it as much as the record). So this thread, before it sleeps for good, looks once more some milliseconds
// after it said that it would: by then what was written before has long arrived, and who writes later sees it asleep.
void LineageKeeper::Take() {
  pthread_setname_np(pthread_self(), "lineage-take");
  const base::ShortSlices slices;
  int quiet = 0;
  for (;;) {
    const std::uint32_t ticket = quiet == 0 ? bell_.rings.load() : bell_.PrepareSleep();
    bool stuck = false;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) {
        TakeAll();
        return;
      }
      quiet = TakeAll() ? 0 : std::min(quiet + 1, 3);
      for (const std::unique_ptr<Job>& job : all_) {
        for (const std::unique_ptr<Owner>& owner : job->owners) stuck |= owner->reader.memory().error.load() != 0;
      }
    }
    if (quiet <= 1) {  // it has not said yet that it sleeps
      bell_.Sleep(ticket, kGatherUs);
    } else if (stuck) {
      bell_.Sleep(ticket, kRetryUs);
    } else {
      bell_.Sleep(ticket, quiet < 3 ? kSecondLookUs : -1);
    }
  }
}

void LineageKeeper::Sync() {
  pthread_setname_np(pthread_self(), "lineage-sync");
  const base::ShortSlices slices;
  std::unique_lock lock(mutex_);
  for (;;) {
    std::erase_if(all_, [](const std::unique_ptr<Job>& one) { return one->gone && !one->dirty; });
    synced_.notify_all();
    Job* job = nullptr;
    for (const std::unique_ptr<Job>& one : all_) {
      if (one->dirty) job = one.get();
    }
    if (job == nullptr) {
      if (taken_) return;
      news_.wait(lock);
      continue;
    }
    // What is in the file now is on disk after this.
    job->dirty = false;
    std::vector<std::pair<ProcessId, std::uint32_t>> commits;
    commits.reserve(job->owners.size());
    for (const std::unique_ptr<Owner>& owner : job->owners) {
      commits.emplace_back(owner->process, owner->taken_commits);
    }
    const int fd = job->file.fd();
    lock.unlock();
    Status status;
    if (fdatasync(fd) != 0) status = Status(Code::kIo, std::strerror(errno));
    if (status.ok() && !job->begun) status = job->folder.Sync();
    lock.lock();
    const bool failed = !status.ok();
    job->begun |= !failed;
    if (failed && !job->removed) {
      base::LogWarning("cannot sync lineage in %s: %s", job->folder.path().c_str(), status.message().c_str());
    }
    for (const std::unique_ptr<Owner>& owner : job->owners) {
      for (const auto& [process, asked] : commits) {
        if (process != owner->process) continue;
        std::atomic<std::uint32_t>& done = owner->reader.memory().done;
        if (failed) {
          owner->reader.memory().error.store(static_cast<std::uint32_t>(Code::kIo));
        } else if (done.exchange(asked, std::memory_order_seq_cst) == asked) {
          continue;
        }
        syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&done), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
      }
    }
  }
}

}  // namespace manta::node
