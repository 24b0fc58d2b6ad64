// How a job begins and, in every way it can, ends.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/clock.h"
#include "node/daemon.h"
#include "node/programs.h"

extern char** environ;

namespace manta::node {
namespace {

constexpr std::int64_t kFlushUs = 500'000;     // for idle workers to flush and leave, however busy the machine is
constexpr std::int64_t kGiveUpUs = 2'000'000;  // for killed ones to be reported
constexpr std::int64_t kLastWordsUs = 200'000;

Failure JobEndedFailure() { return Failure{Code::kCancelled, "the job has ended", {}, {}}; }

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) out.emplace_back(*entry);
  return out;
}

std::vector<std::string> EnvironmentOf(std::uint32_t pid) {
  std::ifstream file(Cat("/proc/", pid, "/environ"), std::ios::binary);
  std::vector<std::string> out;
  for (std::string entry; std::getline(file, entry, '\0');) out.push_back(entry);
  return out;
}

// A driver in another mount namespace gives a descriptor that has no name here, so its program would not find the
// libraries beside it ($ORIGIN). If the same file has that name here, too, ours has one.
base::Fd Named(const std::string& path, base::Fd executable) {
  base::Fd here(open(path.c_str(), O_PATH | O_CLOEXEC));
  return here.valid() && FileName(here.get()) == FileName(executable.get()) ? std::move(here) : std::move(executable);
}

}  // namespace

void Daemon::AddJob(Peer& peer, const wire::Hello& hello, base::Fd executable) {
  Program program;
  program.path = hello.program;
  program.executable = Named(hello.program, std::move(executable));
  program.arguments = hello.arguments;
  if (peer.serial == private_peer_) {
    // Made by the driver's fork: environment (as it is now, not as it was at exec) and folder are its own.
    program.environment = OwnEnvironment();
  } else {
    program.environment = EnvironmentOf(peer.pid);
    program.directory.Reset(open(Cat("/proc/", peer.pid, "/cwd").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  Job& job = jobs_[peer.job];
  job.id = peer.job;
  job.driver = peer.process;
  job.space = hello.space;
  job.program = hello.program;
  job.quota = EffectiveQuota(hello.quota, MostForAJob());
  quotas_.AddHome(peer.job, job.quota);
  if (cluster_ != nullptr) {
    job.facts.job = peer.job;
    job.facts.space = hello.space;
    job.facts.quota = job.quota;
    job.facts.home = cluster_->self().number;
    job.facts.program = program.path;
    job.facts.program_hash = hello.program_hash;
    job.facts.arguments = program.arguments;
    job.facts.environment = program.environment;
    char folder[4096];
    const ssize_t size = readlink(Cat("/proc/", peer.pid, "/cwd").c_str(), folder, sizeof folder);
    job.facts.directory.assign(folder, size > 0 ? static_cast<std::size_t>(size) : 0);
    programs_->AddJob(job.facts, program.executable.get());
  }
  pool_.AddJob(peer.job, std::move(program));
}

Status Daemon::OpenLineage(const wire::Hello& hello, Id* id, bool* resumed, bool* job_lives) {
  lineage::JobNote note;
  note.job = hello.job;
  note.program = hello.program;
  note.arguments = hello.arguments;
  std::error_code error;
  note.directory = std::filesystem::read_symlink(Cat("/proc/", hello.pid, "/cwd"), error);
  lineage_.AwaitEnd(lineage::FolderOf(config_.state_folder, hello.job_name));
  Result<lineage::JobFolder> folder =
      lineage::JobFolder::Open(config_.state_folder, hello.job_name, hello.resume, &note, resumed);
  *job_lives = folder.status().code() == Code::kUnavailable;
  if (!folder.ok()) return folder.status();
  if (jobs_.contains(note.job)) {
    *job_lives = true;
    return Status(Code::kUnavailable, Cat("the job '", hello.job_name, "' has not ended yet"));
  }
  *id = note.job;
  const NodeNumber node = cluster_ == nullptr ? 0 : cluster_->self().number;
  return lineage_.AddJob(note.job, std::move(*folder), node, hello.program_hash, hello.keep_lineage);
}

const Resources& Daemon::MostForAJob() const { return cluster_ == nullptr ? config_.job_quota : cluster_->job_quota(); }

Resources Daemon::QuotaOfJob(const Id& id) const {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? Resources() : it->second.quota;
}

bool Daemon::IsRunning(const Worker& worker) const {
  if (worker.process() == kNoProcess) return false;
  return area_.bell(worker.process()).state.load(std::memory_order_acquire) != shm::Doorbell::kIdle;
}

bool Daemon::JobIsEnding(const Id& id) const {
  const auto it = jobs_.find(id);
  return it == jobs_.end() || it->second.ending;
}

bool Daemon::Kept(const Worker& worker) const {
  if (ending_) return false;
  // Up the chain of owners, to an actor or the driver. No longer than there are processes.
  const Worker* at = &worker;
  for (std::size_t steps = 0; at != nullptr && steps <= pool_.size(); ++steps) {
    if (!at->actor.empty()) return actors_.IsDetached(at->actor);
    at = pool_.FindByProcess(leases_.OwnerOf(*at));
  }
  return false;
}

void Daemon::WorkerDied(Worker& worker, const Failure& failure) {
  const bool numbered = worker.process() != kNoProcess;
  const std::uint64_t current = numbered ? area_.bell(worker.process()).current.load(std::memory_order_acquire) : 0;
  // As an owner first: what it asked for must not be granted with what it leaves.
  if (numbered) ProcessGone(*worker.peer, Cat("worker ", worker.pid));
  if (worker.actor.empty()) {
    leases_.WorkerDied(worker, failure, current);
  } else if (guests_ == nullptr || !guests_->WorkerDied(worker, failure, current)) {
    actors_.WorkerDied(worker, failure, current);
  }
  CheckJob(worker.job);
}

void Daemon::EndJob(Job& job) {
  if (job.ending) {
    CheckJob(job.id);
    return;
  }
  job.ending = true;
  actors_.JobEnded(job.id, ending_);
  if (!job.far) groups_.JobEnded(job.id);
  if (job.driver != kNoProcess) {
    leases_.OwnerDied(job.driver);
    placer_.OwnerDied(job.driver);
  }
  if (far_ != nullptr && !job.far) {
    if (job.driver != kNoProcess) far_->OwnerDied(job.driver);
    far_->JobEnded(job.id);
  }
  for (Worker* worker : pool_.OfJob(job.id)) {
    if (Kept(*worker)) continue;
    if (worker->state == Worker::State::kStarting || IsRunning(*worker)) {
      pool_.Kill(*worker, JobEndedFailure());
    } else {
      pool_.Leave(*worker);
    }
  }
  const Id id = job.id;
  job.timer = loop_->After(kFlushUs, [this, id] {
    const auto it = jobs_.find(id);
    if (it == jobs_.end()) return;
    for (Worker* worker : pool_.OfJob(id)) {
      if (!Kept(*worker)) pool_.Kill(*worker, JobEndedFailure());
    }
    it->second.timer = loop_->After(kGiveUpUs, [this, id] { JobGone(id); });
  });
  CheckJob(id);
}

void Daemon::CheckJob(const Id& id) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return;
  Job& job = it->second;
  if (!job.ending) {
    // A job whose driver is gone lives as long as its detached actors.
    if (job.driver == kNoProcess && !job.far && !actors_.HasDetached(id)) EndJob(job);
    return;
  }
  if (job.leaving_scheduled) return;
  for (const Worker* worker : pool_.OfJob(id)) {
    if (worker->state != Worker::State::kGone && !Kept(*worker)) return;
  }
  if (far_ != nullptr && far_->EndsElsewhere(id)) return;  // what it printed there is still on its way
  // Not from here: this may be a callback of the fork server that is about to go.
  job.leaving_scheduled = true;
  loop_->After(0, [this, id] { JobGone(id); });
}

void Daemon::JobGone(const Id& id) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return;
  Job& job = it->second;
  loop_->Cancel(job.timer);
  job.timer = 0;
  const ProcessId driver = job.driver;
  const std::uint64_t goodbye = job.goodbye;
  if (actors_.HasDetached(id) && !ending_) {
    job.ending = false;
    job.leaving_scheduled = false;
    job.driver = kNoProcess;
    job.goodbye = 0;
  } else {
    job.leaving_scheduled = true;
    quotas_.Remove(id);
    pool_.RemoveJob(id);  // whose last lines still go to the driver
    if (programs_ != nullptr) programs_->RemoveJob(id);
    if (job.far && cluster_->Find(job.facts.home) != nullptr) {
      cluster_->links().Send(job.facts.home, wire::FarJobGone{id});
    }
    lineage_.EndJob(id, goodbye != 0);
    jobs_.erase(id);
  }
  if (goodbye != 0) peers_.Send(driver, wire::Done{}, goodbye);
  if (ending_ && jobs_.empty()) StopWhenSent(base::NowMicros() + kLastWordsUs);
}

void Daemon::Shutdown() {
  if (ending_) return;
  ending_ = true;
  if (cluster_ != nullptr) cluster_->Farewell(drain_timer_ != 0 ? "it was drained" : "it was stopped");
  listener_.reset();
  std::vector<Id> ids;
  ids.reserve(jobs_.size());
  for (const auto& [id, job] : jobs_) ids.push_back(id);
  for (const Id& id : ids) {
    const auto it = jobs_.find(id);
    if (it == jobs_.end()) continue;
    it->second.ending = false;  // once more: detached actors and what serves them, too
    it->second.leaving_scheduled = false;
    loop_->Cancel(it->second.timer);
    EndJob(it->second);
  }
  if (jobs_.empty()) StopWhenSent(base::NowMicros() + kLastWordsUs);
}

void Daemon::StopWhenSent(std::int64_t deadline_us) {
  const bool sent = std::all_of(peers_.all().begin(), peers_.all().end(),
                                [](const auto& entry) { return entry.second->connection->outgoing_bytes() == 0; });
  if ((sent && (cluster_ == nullptr || cluster_->AllSent())) || base::NowMicros() >= deadline_us) {
    loop_->Stop();
    return;
  }
  loop_->After(1000, [this, deadline_us] { StopWhenSent(deadline_us); });
}

}  // namespace manta::node
