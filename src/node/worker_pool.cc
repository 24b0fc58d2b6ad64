#include "node/worker_pool.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/memory_group.h"

namespace manta::node {
namespace {

constexpr int kMaxFailures = 3;                     // starts in a row that came to nothing
constexpr std::int64_t kLeastBackoffUs = 10'000;    // after a start that was killed from outside …
constexpr std::int64_t kMostBackoffUs = 1'000'000;  // … doubled for each one in a row, up to this
constexpr std::int64_t kRetryForkUs = 20'000;       // after fork() failed: processes may end
constexpr std::int64_t kKilledTogetherUs = 100'000;

}  // namespace

WorkerPool::WorkerPool(base::Loop& loop, Peers& peers, Limits limits, Events events)
    : loop_(loop), peers_(peers), limits_(limits), events_(std::move(events)), memory_kills_(base::MemoryKills()) {}

WorkerPool::~WorkerPool() {
  loop_.Cancel(trim_timer_);
  for (auto& [ticket, worker] : workers_) {
    loop_.Cancel(worker->timer);
    Signal(*worker, SIGKILL);
    worker->output.reset();
    peers_.Remove(*worker->peer);
  }
}

void WorkerPool::AddJob(const Id& job, Program program) {
  auto entry = std::make_unique<Job>();
  entry->id = job;
  entry->program = std::move(program);
  jobs_[job] = std::move(entry);
}

void WorkerPool::RemoveJob(const Id& job) {
  Job* entry = FindJob(job);
  if (entry == nullptr) return;
  FailWaiting(*entry, Status(Code::kUnavailable, "the job has ended"));
  for (Worker* worker : OfJob(job)) Finish(*worker);
  jobs_.erase(job);
}

void WorkerPool::Prestart(const Id& job, std::size_t count) {
  Job* entry = FindJob(job);
  if (entry == nullptr) return;
  while (entry->starting + entry->idle.size() < count) {
    if (!Spawn(*entry).ok()) return;  // whoever needs one will ask again, and hear why
  }
}

std::uint64_t WorkerPool::Acquire(const Id& job, OnWorker on_worker) {
  Job* entry = FindJob(job);
  if (entry == nullptr) {
    on_worker(nullptr, Status(Code::kUnavailable, "the job has ended"));
    return 0;
  }
  if (!entry->idle.empty()) {
    Worker* worker = entry->idle.front();
    entry->idle.pop_front();
    --idle_count_;
    worker->state = Worker::State::kTaken;
    on_worker(worker, {});
    return 0;
  }
  const std::uint64_t ticket = next_ticket_++;
  entry->waiting.push_back(Waiting{ticket, std::move(on_worker)});
  SpawnForWaiting(*entry);
  return ticket;
}

void WorkerPool::Cancel(const Id& job, std::uint64_t ticket) {
  Job* entry = FindJob(job);
  if (entry != nullptr) std::erase_if(entry->waiting, [&](const Waiting& waiting) { return waiting.ticket == ticket; });
}

void WorkerPool::Release(Worker& worker) {
  worker.lease = 0;
  worker.actor = {};
  if (worker.state != Worker::State::kTaken) return;  // it leaves, or is gone
  if (worker.orphan) {                                // the kernel's signal is on its way
    worker.state = Worker::State::kLeaving;
    Signal(worker, SIGKILL);
    return;
  }
  if (Job* job = FindJob(worker.job); job != nullptr) Hand(*job, worker);
}

void WorkerPool::Started(Worker& worker) {
  if (worker.state != Worker::State::kStarting) return;
  loop_.Cancel(worker.timer);
  worker.timer = 0;
  Job* job = FindJob(worker.job);
  if (job == nullptr) return;
  if (worker.pid == 0) {  // Forked is still on its way
    worker.pid = worker.peer->pid;
    worker.output->SetPid(worker.pid);
  }
  --job->starting;
  job->failures = 0;
  job->kills = 0;
  job->proven = true;
  Hand(*job, worker);
}

void WorkerPool::Leave(Worker& worker) {
  switch (worker.state) {
    case Worker::State::kStarting:
      Kill(worker, Failure{Code::kCancelled, "it was not needed any more", {}, {}});
      return;
    case Worker::State::kIdle:
      if (Job* job = FindJob(worker.job); job != nullptr) job->idle.remove(&worker);
      --idle_count_;
      break;
    case Worker::State::kTaken:
      break;
    case Worker::State::kLeaving:
    case Worker::State::kGone:
      return;
  }
  worker.state = Worker::State::kLeaving;
  worker.peer->connection->Send(wire::Exit{});
}

void WorkerPool::Kill(Worker& worker, const Failure& failure) {
  if (worker.state == Worker::State::kGone) return;
  if (worker.kill_failure.ok()) worker.kill_failure = failure;
  if (worker.state == Worker::State::kIdle) {
    if (Job* job = FindJob(worker.job); job != nullptr) job->idle.remove(&worker);
    --idle_count_;
    worker.state = Worker::State::kLeaving;
  }
  Signal(worker, SIGKILL);
}

bool WorkerPool::Stop(const Worker& worker) const {
  Signal(worker, SIGSTOP);
  const base::Fd file(open(Cat("/proc/", worker.pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t size = file.valid() ? read(file.get(), text, sizeof text) : 0;
  const std::string_view stat(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= stat.size()) return false;
  const char state = stat[name_end + 2];
  return state == 'T' || state == 't';  // 't': a debugger holds it
}

void WorkerPool::Signal(const Worker& worker, int number) const {
  // By descriptor: its number may be another process's by now.
  if (worker.pidfd.valid()) syscall(SYS_pidfd_send_signal, worker.pidfd.get(), number, nullptr, 0);
}

void WorkerPool::SignalAll(int number) const {
  for (const auto& [id, job] : jobs_) {
    if (job->server != nullptr) job->server->Signal(number);
  }
  for (const auto& [ticket, worker] : workers_) Signal(*worker, number);
}

Worker* WorkerPool::FindByProcess(ProcessId process) const {
  const Peer* peer = peers_.Find(process);
  return peer == nullptr ? nullptr : peer->worker;
}

std::vector<Worker*> WorkerPool::OfJob(const Id& job) const {
  std::vector<Worker*> out;
  for (const auto& [ticket, worker] : workers_) {
    if (worker->job == job) out.push_back(worker.get());
  }
  return out;
}

WorkerPool::Job* WorkerPool::FindJob(const Id& job) {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : it->second.get();
}

// ---- starting ----

Status WorkerPool::StartServer(Job& job) {
  const Id id = job.id;
  auto server = std::make_unique<ForkServer>(
      loop_, ForkServer::Events{
                 [this, id](const wire::Forked& message) { OnForked(id, message); },
                 [this, id](const wire::Exited& message) { OnExited(id, message); },
                 [this, id](std::vector<wire::LogLine> lines) { events_.lines(id, std::move(lines)); },
                 [this, id] { return events_.ready(id); },
                 [this, id](const Status& why, bool killed) { OnServerDied(id, why, killed); },
             });
  if (Status status = server->Start(job.program); !status.ok()) return status;
  job.server = std::move(server);
  job.proven = false;
  return {};
}

Status WorkerPool::Spawn(Job& job) {
  if (job.server == nullptr) {
    if (Status status = StartServer(job); !status.ok()) return status;
  }
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return Status(Code::kIo, Cat("cannot make a socket for a worker: ", std::strerror(errno),
                                 errno == EMFILE || errno == ENFILE ? "; raise `ulimit -n`" : ""));
  }
  base::Fd here(pair[0]);
  const base::Fd there(pair[1]);
  fcntl(here.get(), F_SETFL, O_NONBLOCK);

  auto worker = std::make_unique<Worker>();
  worker->ticket = next_ticket_++;
  worker->job = job.id;
  const Id id = job.id;
  worker->output = std::make_unique<ProcessOutput>(
      loop_, [this, id](std::vector<wire::LogLine> lines) { events_.lines(id, std::move(lines)); },
      [this, id] { return events_.ready(id); });
  base::Fd out;
  base::Fd error;
  if (Status status = worker->output->Open(&out, &error); !status.ok()) return status;
  Worker* raw = worker.get();
  Result<Peer*> peer =
      peers_.Add(std::move(here), events_.frame, [this, raw](Peer&, const Status& why) { OnClosed(*raw, why); });
  if (!peer.ok()) return peer.status();
  worker->peer = *peer;
  (*peer)->worker = raw;
  worker->timer = loop_.After(limits_.start_us, [this, raw] {
    raw->timer = 0;
    Job* owner = FindJob(raw->job);
    if (owner == nullptr || owner->server == nullptr) return;
    if (owner->proven) {  // the server is fine; this one worker is not
      Kill(*raw, Failure{Code::kUnavailable, Cat("worker ", raw->pid, " did not come up in time"), {}, {}});
    } else {
      owner->server->Kill(Cat("no worker came up within ", limits_.start_us / 1000000,
                              " s; is the program linked with libmanta.so, and do its static objects get done?"));
    }
  });
  ++job.starting;
  job.server->Fork(raw->ticket, there.get(), out.get(), error.get());
  workers_.emplace(raw->ticket, std::move(worker));
  return {};
}

void WorkerPool::SpawnForWaiting(Job& job) {
  while (job.starting < job.waiting.size() && !job.retrying) {
    if (Status status = Spawn(job); !status.ok()) {
      // Those before get the workers that are on their way.
      std::vector<Waiting> failed;
      while (job.waiting.size() > job.starting) {
        failed.push_back(std::move(job.waiting.back()));
        job.waiting.pop_back();
      }
      for (const Waiting& one : failed) one.on_worker(nullptr, status);
      return;
    }
  }
}

void WorkerPool::Hand(Job& job, Worker& worker) {
  if (!job.waiting.empty()) {
    const Waiting next = std::move(job.waiting.front());
    job.waiting.pop_front();
    worker.state = Worker::State::kTaken;
    next.on_worker(&worker, {});
    return;
  }
  worker.state = Worker::State::kIdle;
  worker.idle_since_us = base::NowMicros();
  job.idle.push_front(&worker);
  ++idle_count_;
  ArmTrim();
}

void WorkerPool::FailWaiting(Job& job, const Status& why) {
  const std::deque<Waiting> waiting = std::exchange(job.waiting, {});
  for (const Waiting& one : waiting) one.on_worker(nullptr, why);
}

void WorkerPool::StartFailed(Job& job, const Status& why, bool killed) {
  if (job.waiting.empty()) return;
  if (killed) {
    const int doubled = std::min(job.kills++, 10);
    SpawnLater(job, std::min(kLeastBackoffUs << doubled, kMostBackoffUs));
    return;
  }
  if (++job.failures < kMaxFailures) {
    SpawnForWaiting(job);
    return;
  }
  job.failures = 0;
  FailWaiting(job, Status(Code::kUnavailable, Cat("cannot start a worker for '", job.program.path, "' (tried ",
                                                  kMaxFailures, " times): ", why.message())));
}

void WorkerPool::SpawnLater(Job& job, std::int64_t after_us) {
  job.retrying = true;
  loop_.After(after_us, [this, id = job.id] {
    if (Job* again = FindJob(id); again != nullptr) {
      again->retrying = false;
      SpawnForWaiting(*again);
    }
  });
}

void WorkerPool::OnForked(const Id& id, const wire::Forked& message) {
  const auto it = workers_.find(message.ticket);
  if (it == workers_.end() || it->second->job != id) return;
  Worker& worker = *it->second;
  if (message.pid != 0) {
    if (worker.pidfd.valid()) return;
    worker.pid = message.pid;
    worker.pidfd.Reset(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(message.pid), 0)));
    worker.output->SetPid(message.pid);
    if (!worker.kill_failure.ok()) Signal(worker, SIGKILL);  // it was to be killed before it had a number
    return;
  }
  // Processes may end, so this is tried again a little later; but not for ever.
  Job* job = FindJob(id);
  worker.kill_failure = Failure{Code::kUnavailable, Cat("cannot fork: ", std::strerror(message.error)), {}, {}};
  const std::string why = worker.kill_failure.message;
  const int failures = job->failures;
  job->retrying = true;
  Finish(worker);
  job->failures = failures;
  if (++job->failures >= 10 * kMaxFailures) {
    job->retrying = false;
    job->failures = 0;
    FailWaiting(*job, Status(Code::kUnavailable, Cat("cannot start a worker for '", job->program.path, "': ", why,
                                                     "; is the number of processes limited (`ulimit -u`)?")));
    return;
  }
  SpawnLater(*job, kRetryForkUs);
}

// ---- ending ----

void WorkerPool::OnExited(const Id& id, const wire::Exited& message) {
  for (const auto& [ticket, worker] : workers_) {
    if (worker->pid != message.pid || worker->job != id || worker->pid == 0) continue;
    worker->exit_status = message.status;
    Finish(*worker);
    return;
  }
}

void WorkerPool::OnServerDied(const Id& id, const Status& why, bool killed) {
  Job* job = FindJob(id);
  if (job == nullptr) return;
  // This is called by the server itself.
  job->dead.push_back(std::move(job->server));
  loop_.After(0, [this, id] {
    if (Job* later = FindJob(id); later != nullptr) later->dead.clear();
  });
  // Its workers die with it. Those that never came up are found out here; the others when their sockets close.
  job->retrying = true;
  const std::vector<Worker*> orphans = OfJob(id);
  std::vector<Worker*> gone;
  for (Worker* worker : orphans) {
    if (worker->kill_failure.ok()) {
      worker->kill_failure =
          Failure{Code::kWorkerCrashed, Cat("worker ", worker->pid, " died with ", why.message()), {}, {}};
    }
    worker->orphan = true;
    if (worker->state == Worker::State::kIdle) Kill(*worker, worker->kill_failure);  // nobody shall get it any more
    if (worker->state == Worker::State::kStarting || !worker->peer->connection->open()) gone.push_back(worker);
  }
  // Not before all are marked: whoever is told of a death asks for another worker at once.
  for (Worker* worker : gone) Finish(*worker);
  job->retrying = false;
  StartFailed(*job, why, killed);
}

void WorkerPool::OnClosed(Worker& worker, const Status& why) {
  if (worker.state == Worker::State::kGone) return;
  if (worker.exit_status.has_value() || worker.orphan) {
    Finish(worker);
    return;
  }
  if (!why.ok() && worker.kill_failure.ok()) {
    worker.kill_failure =
        Failure{Code::kWorkerCrashed, Cat("worker ", worker.pid, " was dropped: ", why.message()), {}, {}};
    Signal(worker, SIGKILL);
  }
  // How it ended comes by its fork server, any moment now.
  loop_.Cancel(worker.timer);
  worker.timer = loop_.After(limits_.status_us, [this, &worker] {
    Signal(worker, SIGKILL);  // a process that merely closed its socket
    worker.timer = loop_.After(limits_.status_us, [this, &worker] {
      worker.timer = 0;
      Finish(worker);
    });
  });
}

void WorkerPool::Finish(Worker& worker) {
  if (worker.state == Worker::State::kGone) return;
  Job* job = FindJob(worker.job);
  const bool starting = worker.state == Worker::State::kStarting;
  if (worker.state == Worker::State::kIdle) {
    --idle_count_;
    if (job != nullptr) job->idle.remove(&worker);
  }
  loop_.Cancel(worker.timer);
  worker.timer = 0;
  worker.was_running = events_.running(worker);
  worker.state = Worker::State::kGone;
  worker.peer->connection->ReadNow();  // its last words
  worker.output->Finish();
  const Failure failure = Explain(worker);
  if (!worker.exit_status.has_value()) Signal(worker, SIGKILL);
  events_.died(worker, failure);
  if (starting && job != nullptr) {
    --job->starting;
    // A worker that the daemon killed, or that the kernel killed for want of memory, failed by itself.
    const bool killed = worker.kill_failure.ok() && failure.code == Code::kWorkerCrashed &&
                        worker.exit_status.has_value() && KilledFromOutside(*worker.exit_status);
    if (!job->retrying) StartFailed(*job, Status(failure.code, failure.message), killed);
  }
  peers_.Remove(*worker.peer);
  workers_.erase(worker.ticket);
}

// If the kernel killed it for want of memory, as it does without a word to the process.
std::string WorkerPool::WantOfMemory(const Worker& worker) {
  if (!worker.exit_status.has_value() || !WIFSIGNALED(*worker.exit_status) ||
      WTERMSIG(*worker.exit_status) != SIGKILL) {
    return {};
  }
  // The kernel's count does not say whom. Several that it killed at once are told of one after the other.
  const std::uint64_t kills = base::MemoryKills();
  const std::int64_t now = base::NowMicros();
  if (kills > memory_kills_) memory_killed_us_ = now;
  memory_kills_ = kills;
  if (now - memory_killed_us_ > kKilledTogetherUs) return {};
  std::string text = Cat("worker ", worker.pid, " was killed by the kernel for want of memory (SIGKILL)");
  const std::vector<base::MemoryGroup> groups = base::MemoryGroups();
  if (!groups.empty()) {
    text += Cat("; the control group ", groups[0].folder, " allows ", Bytes(groups[0].limit), " in all");
  }
  return text + "; use less in a task, run fewer at once (SetCpus, Config::cpus), or raise the limit";
}

Failure WorkerPool::Explain(const Worker& worker) {
  if (!worker.kill_failure.ok()) return worker.kill_failure;
  if (const std::string text = WantOfMemory(worker); !text.empty()) return Failure{Code::kOutOfMemory, text, {}, {}};
  std::string text = Cat("worker ", worker.pid, " ");
  text += worker.exit_status.has_value() ? DescribeExit(*worker.exit_status)
                                         : std::string("went away without saying how it ended");
  text += worker.was_running ? " while running" : "";
  const std::string tail = worker.output->Tail();
  text += tail.empty() ? "; it had printed nothing\n" : "; its last lines:\n" + tail;
  text += "to look inside, call the function directly, not as a task, and run the program under gdb";
  return Failure{Code::kWorkerCrashed, text, {}, {}};
}

void WorkerPool::ArmTrim() {
  if (trim_timer_ != 0 || idle_count_ <= limits_.idle) return;
  trim_timer_ = loop_.After(limits_.idle_us, [this] {
    trim_timer_ = 0;
    Trim();
    ArmTrim();
  });
}

void WorkerPool::Trim() {
  const std::int64_t before = base::NowMicros() - limits_.idle_us + 1000;
  std::vector<Worker*> candidates;
  for (const auto& [id, job] : jobs_) {
    for (Worker* worker : job->idle) {
      if (worker->idle_since_us <= before) candidates.push_back(worker);
    }
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Worker* a, const Worker* b) { return a->idle_since_us < b->idle_since_us; });
  for (Worker* worker : candidates) {
    if (idle_count_ <= limits_.idle) return;
    if (events_.dispensable(*worker)) Leave(*worker);
  }
}

}  // namespace manta::node
