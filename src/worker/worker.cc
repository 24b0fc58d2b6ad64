#include "worker/worker.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <system_error>

#include "base/clock.h"
#include "base/program.h"
#include "shm/journal_copy.h"
#include "wire/journal_messages.h"
#include "worker/fork_server.h"
#include "worker/output.h"
#include "worker/stack.h"

namespace manta::worker {
namespace {

// A little longer than an owner spins: the next call of a synchronous caller finds us awake.
constexpr std::int64_t kSpinUs = 150;
constexpr std::size_t kMostArenas = 64;
constexpr int kBegunAtOnce = 64;          // calls of an actor with a step
constexpr std::int64_t kHeldUs = 20'000;  // calls are held back for so long to save an actor between them
constexpr std::int64_t kPaceClaims = 16;
constexpr std::int64_t kShortUs = 20;  // a task that takes no longer is short

Worker* g_worker = nullptr;
internal::Farewell g_farewell = nullptr;

}  // namespace

Worker* Worker::Current() { return g_worker; }

Worker::Worker(int socket) : link_(std::make_shared<owner::DaemonLink>(base::Fd(socket))) { g_worker = this; }

Worker::~Worker() {
  StopPool();
  g_worker = nullptr;
}

Status Worker::Join() {
  Result<shm::Arena> arena = shm::Arena::Create();
  if (!arena.ok()) return arena.status();
  arena_ = std::make_shared<shm::Arena>(std::move(*arena));
  link_->EndWithDaemon();  // without it a worker has nobody to work for
  link_->Start([this](wire::Frame& frame) { Deliver(frame); }, nullptr);
  wire::Hello hello;
  hello.role = wire::Role::kWorker;
  hello.pid = static_cast<std::uint32_t>(getpid());
  hello.program = base::ProgramPath();
  hello.program_hash = base::ProgramHash();
  std::vector<base::Fd> fds;
  Result<wire::Welcome> welcome = link_->Call<wire::Welcome>(hello, {arena_->fd()}, &fds);
  if (!welcome.ok()) return welcome.status();
  if (fds.size() != 1) return Status(Code::kCorrupt, "the daemon's welcome came without the node area");
  Result<shm::NodeArea> node = shm::NodeArea::Open(std::move(fds[0]));
  if (!node.ok()) return node.status();
  node_ = std::make_shared<shm::NodeArea>(std::move(*node));
  owner::Owner::Setup setup;
  setup.link = link_;
  setup.arena = arena_;
  setup.node = node_;
  setup.welcome = *welcome;
  setup.space = welcome->space;
  setup.runner = this;
  setup.function_name = &FunctionName;
  const std::lock_guard lock(mail_mutex_);
  owner_ = std::make_unique<owner::Owner>(std::move(setup));
  bell_ = &owner_->bell();
  owner_->BecomeCurrent();
  if (!mail_.empty()) bell_->flags.fetch_or(shm::Doorbell::kMail);
  return {};
}

void Worker::SetFarewell(internal::Farewell farewell) { g_farewell = farewell; }

void Worker::End(const internal::WorkerEnd& end) {
  const std::lock_guard lock(mail_mutex_);
  if (end_.has_value()) return;
  end_ = end;
  ending_.store(true, std::memory_order_seq_cst);
  if (bell_ != nullptr) bell_->Rouse();
}

void Worker::Deliver(wire::Frame& frame) {
  if (frame.kind == wire::CopyWanted::kKind) {
    const Result<wire::CopyWanted> wanted = frame.As<wire::CopyWanted>();
    copied_by_range_.store(wanted.ok() && wanted.value().ranges, std::memory_order_relaxed);
    copied_.store(true, std::memory_order_release);
    return;
  }
  switch (frame.kind) {
    case wire::Kind::kLeaseStart:
    case wire::Kind::kActorStart:
    case wire::Kind::kActorCaller:
    case wire::Kind::kExit: {
      const std::lock_guard lock(mail_mutex_);
      mail_.push_back(std::move(frame));
      if (bell_ != nullptr) {
        bell_->flags.fetch_or(shm::Doorbell::kMail, std::memory_order_seq_cst);
        bell_->Rouse();
      }
      return;
    }
    default: {
      const owner::Visit visit;
      if (visit.owner() != nullptr) visit.owner()->OnMessage(frame);
    }
  }
}

void Worker::ReadMail() {
  std::vector<wire::Frame> mail;
  {
    const std::lock_guard lock(mail_mutex_);
    mail.swap(mail_);
    bell_->flags.fetch_and(~shm::Doorbell::kMail);
  }
  for (wire::Frame& frame : mail) {
    switch (frame.kind) {
      case wire::Kind::kLeaseStart:
        StartLease(frame);
        break;
      case wire::Kind::kActorStart:
        StartActor(frame);
        break;
      case wire::Kind::kActorCaller:
        AddCaller(frame);
        break;
      default:
        exit_ = true;
        break;
    }
  }
}

std::shared_ptr<shm::Arena> Worker::ArenaOf(ProcessId owner, std::vector<base::Fd>& fds) {
  if (const auto it = arenas_.find(owner); it != arenas_.end()) return it->second;
  if (fds.empty()) return nullptr;
  Result<shm::Arena> arena = shm::Arena::Open(std::move(fds[0]));
  if (!arena.ok()) return nullptr;
  if (arenas_.size() >= kMostArenas) {
    std::erase_if(arenas_, [](const auto& item) { return item.second.use_count() == 1; });
  }
  auto shared = std::make_shared<shm::Arena>(std::move(*arena));
  arenas_[owner] = shared;
  return shared;
}

std::unique_ptr<Served> Worker::Serving(ProcessId owner, std::uint64_t queue, std::uint64_t lane,
                                        std::vector<base::Fd>& fds) {
  if (!shm::Arena::Valid(queue, sizeof(shm::QueueMemory)) || !shm::Arena::Valid(lane, sizeof(shm::LaneMemory)))
    return nullptr;
  auto served = std::make_unique<Served>();
  served->owner = owner;
  served->arena = ArenaOf(owner, fds);
  if (served->arena == nullptr) return nullptr;
  served->lane = shm::LaneWriter(served->arena->at(lane));
  served->queue = shm::QueueWorker(served->arena->at(queue), served->lane.memory().index);
  served->bell = &node_->bell(owner);
  served->lane.memory().worker.store(owner_->self(), std::memory_order_release);
  served->stored_for = owner;
  return served;
}

// For an owner on another node, which will come to us.
Result<std::unique_ptr<Served>> Worker::ServingFar(ProcessId owner, std::uint64_t pass, ProcessId stored_for,
                                                   std::string* address) {
  if (far_ == nullptr) far_ = std::make_unique<FarCallers>(*owner_);
  Result<std::string> listening = far_->Listen();
  if (!listening.ok()) return listening.status();
  *address = *listening;
  Result<std::shared_ptr<FarCaller>> caller = far_->Expect(pass, owner, prompt_);
  if (!caller.ok()) return caller.status();
  auto served = std::make_unique<Served>();
  served->owner = owner;
  served->stored_for = stored_for;
  served->far = *caller;
  served->arena = (*caller)->arena();
  served->lane = shm::LaneWriter(served->arena->at((*caller)->lane()));
  served->queue = shm::QueueWorker(served->arena->at((*caller)->queue()), served->lane.memory().index);
  static shm::Doorbell nobody{};
  served->bell = &nobody;  // answers go over the connection
  return served;
}

void Worker::StartLease(wire::Frame& frame) {
  Result<wire::LeaseStart> message = frame.As<wire::LeaseStart>();
  if (!message.ok()) return;
  std::unique_ptr<Served> served;
  if (message->far) {
    wire::FarReady ready;
    ready.lease = message->lease;
    Result<std::unique_ptr<Served>> far =
        ServingFar(message->owner, message->pass, message->stored_for, &ready.address);
    if (far.ok()) {
      served = std::move(*far);
    } else {
      ready.failure = ToFailure(far.status());
    }
    static_cast<void>(link_->Send(ready));
  } else {
    served = Serving(message->owner, message->queue, message->lane, frame.fds);
  }
  if (served == nullptr) {
    wire::LeaseReturn back;
    back.lease = message->lease;
    static_cast<void>(link_->Send(back));
    return;
  }
  served->lease = message->lease;
  served->need = message->need;
  served->once = message->once;
  owner_->SetJob(message->job);
  SetGpus(message->with_gpus, message->gpus);
  served_.push_back(std::move(served));
  bell_->state.store(shm::Doorbell::kBusy, std::memory_order_relaxed);  // until Idle says otherwise
}

void Worker::ReturnLease() {
  bell_->flags.fetch_and(~shm::Doorbell::kRevoke);
  for (const std::unique_ptr<Served>& served : served_) {
    if (served->lease == 0) continue;
    served->lane.memory().worker.store(kNoProcess, std::memory_order_release);
    wire::LeaseReturn message;
    message.lease = served->lease;
    message.leaving = leave_;
    if (served->far == nullptr) {
      static_cast<void>(link_->Send(message));
    } else {
      // Only when nothing is left on the way. The caller stays until then.
      served->far->Return([link = link_, message, caller = served->far] { static_cast<void>(link->Send(message)); });
    }
  }
  std::erase_if(served_, [](const auto& served) { return served->lease != 0; });
}

void Worker::StartActor(wire::Frame& frame) {
  Result<wire::ActorStart> message = frame.As<wire::ActorStart>();
  if (!message.ok()) return;
  owner_->SetJob(message->job);
  SetGpus(message->with_gpus, message->gpus);
  actor_ = std::make_unique<ActorSelf>();
  actor_->id = message->actor;
  actor_->options = message->options;
  actor_->home = message->home;
  actor_->class_name = message->options.class_name;
  actor_->serial = message->options.concurrency == 1;
  actor_->need = message->options.need;
  actor_->epoch = message->epoch;
  // A detached one is kept elsewhere also when it is at home here (node/kept_actors.h).
  const bool kept = message->options.detached && actor_->home != 0;
  if (kept || actor_->home != owner_->welcome().number) {
    actor_->copy = [this] {
      if (copied_.load(std::memory_order_acquire)) CopyJournal();
    };
  }
  concurrency_ = message->options.concurrency;
  prompt_ = message->options.max_call_retries == 0;
  // The spec is decoded in place, so it must be aligned and stay.
  static std::vector<std::uint64_t> spec;
  spec.assign((message->spec.size() + 7) / 8, 0);
  std::memcpy(spec.data(), message->spec.data(), message->spec.size());
  bell_->state.store(shm::Doorbell::kBusy, std::memory_order_relaxed);
  bell_->current.store(shm::Doorbell::kConstructing, std::memory_order_release);
  Failure failure;
  {
    Execution execution(*owner_, nullptr, actor_.get());
    failure = execution.Construct(reinterpret_cast<const std::byte*>(spec.data()), message->spec.size());
    if (execution.end().has_value()) End(*execution.end());
  }
  if (ending_.load(std::memory_order_acquire)) return;  // its callers hear of the process's end
  if (failure.ok() && !frame.fds.empty()) {
    Result<std::unique_ptr<ActorJournal>> journal = ActorJournal::Open(std::move(frame.fds[0]), *message);
    if (journal.ok()) {
      actor_->journal = std::move(*journal);
      failure = actor_->journal->Recover(*owner_, *actor_);
    } else {
      failure = ToFailure(journal.status());
    }
  }
  if (!failure.ok()) {
    wire::ActorFailed reply;
    reply.actor = message->actor;
    reply.failure = failure;
    static_cast<void>(link_->Send(reply));
    return;
  }
  wire::ActorReady reply;
  reply.actor = message->actor;
  if (actor_->journal != nullptr) reply.replayed = actor_->journal->replayed();
  static_cast<void>(link_->Send(reply));
}

void Worker::AddCaller(wire::Frame& frame) {
  Result<wire::ActorCaller> message = frame.As<wire::ActorCaller>();
  if (!message.ok()) return;
  std::unique_ptr<Served> served;
  if (message->far) {
    wire::FarReady ready;
    ready.pass = message->pass;
    Result<std::unique_ptr<Served>> far =
        ServingFar(message->owner, message->pass, message->stored_for, &ready.address);
    if (far.ok()) {
      served = std::move(*far);
    } else {
      ready.failure = ToFailure(far.status());
    }
    static_cast<void>(link_->Send(ready));
  } else {
    served = Serving(message->owner, message->queue, message->lane, frame.fds);
  }
  if (served == nullptr) return;
  served->need = actor_->need;
  served->reruns = message->reruns;
  served_.push_back(std::move(served));
}

void Worker::SetGpus(bool with, const std::vector<std::uint32_t>& gpus) {
  constexpr const char* kVariable = "CUDA_VISIBLE_DEVICES";
  if (!preset_gpus_.has_value()) {
    const char* text = std::getenv(kVariable);
    std::istringstream words(text == nullptr ? "" : text);
    preset_gpus_.emplace();
    for (std::string word; std::getline(words, word, ',');) preset_gpus_->push_back(word);
  }
  gpus_.clear();
  std::string list;
  for (const std::uint32_t gpu : with ? gpus : std::vector<std::uint32_t>()) {
    const std::string name = gpu < preset_gpus_->size() ? (*preset_gpus_)[gpu] : std::to_string(gpu);
    list += (list.empty() ? "" : ",") + name;
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    const bool is_number = error == std::errc() && end == name.data() + name.size();
    gpus_.push_back(is_number ? number : gpu);  // a preset name may also be a UUID
  }
  setenv(kVariable, list.c_str(), 1);
}

void Worker::RunTask(Served& served, const shm::QueueWorker::Task& task) {
  if (!shm::Arena::Valid(task.spec, sizeof(shm::SpecHeader))) return;
  if (shm::Arena::Valid(task.next, sizeof(shm::SpecHeader))) {
    const std::byte* next = served.arena->at(task.next);
    __builtin_prefetch(next);
    __builtin_prefetch(next + 64);
  }
  if (actor_ != nullptr && actor_->step != nullptr) {
    auto execution = std::make_unique<Execution>(*owner_, &served, actor_.get());
    execution->Run(served.arena->at(task.spec), shm::kArenaBytes - task.spec);
    if (execution->end().has_value()) return End(*execution->end());
    if (!execution->deferred()) {
      finished_.fetch_add(1, std::memory_order_relaxed);
      served.queue.Done(task);
      if (served.far != nullptr) Flush(served, served.queue.Ready());
      return;
    }
    ++deferred_;
    execution->task = task;
    [[maybe_unused]] const Execution* kept = execution.release();  // until Resume
    return;
  }
  Execution execution(*owner_, &served, actor_.get());
  execution.Run(served.arena->at(task.spec), shm::kArenaBytes - task.spec);
  if (execution.end().has_value()) return End(*execution.end());
  served.queue.Done(task);
  if (served.far != nullptr) Flush(served, served.queue.Ready());
}

void Worker::Flush(Served& served, bool more) {
  const FarCaller::Pending pending = served.far->pending();
  if (pending == FarCaller::Pending::kNone) return;
  if (more && pending == FarCaller::Pending::kSome) return late_replies_.Add(served.far);
  SendAnswers(*served.far);
}

void Worker::SendAnswers(FarCaller& caller) {
  const std::uint64_t given = caller.Given();  // the copy has at least these
  if (copied_.load(std::memory_order_acquire) && actor_ != nullptr && actor_->journal != nullptr) CopyJournal();
  caller.SendUpTo(given);
}

void Worker::CopyJournal() {
  const std::lock_guard lock(copy_mutex_);
  actor_->journal->Copy(copied_by_range_.load(std::memory_order_relaxed),
                        [this](std::vector<JournalPart> parts, std::vector<JournalRange> ranges) {
                          const wire::CopyJournal message{actor_->id, std::move(parts), std::move(ranges)};
                          // As the daemon is about to do.
                          if (!link_->Call<wire::Done>(message).ok()) raise(SIGKILL);
                        });
}

void Worker::Resume(Execution* call, internal::Trampoline rest) {
  const std::unique_ptr<Execution> execution(call);
  execution->Resume(rest);
  if (execution->end().has_value()) {
    --deferred_;
    return End(*execution->end());
  }
  Served& served = *execution->served();
  served.queue.Done(execution->task);
  if (served.far != nullptr) Flush(served, served.queue.Ready());
  finished_.fetch_add(1, std::memory_order_relaxed);
  --deferred_;
}

bool Worker::ServeOnce() {
  const std::size_t count = served_.size();
  for (std::size_t i = 0; i < count; ++i) {
    Served& served = *served_[(turn_ + i) % count];
    shm::QueueWorker::Task task;
    if (!served.queue.TryClaim(&task)) continue;
    turn_ = (turn_ + i + (count > 1 ? 1 : 0)) % count;
    bell_->ran.store(++ran_, std::memory_order_relaxed);
    bell_->RunsHere();
    if (++served.claims % kPaceClaims == 0) {
      const std::int64_t now = base::NowMicros();
      served.queue.ShareByLines(now - std::exchange(served.counted_us, now) < kPaceClaims * kShortUs);
    }
    if (concurrency_ == 1 || actor_->step != nullptr) {
      RunTask(served, task);
      if (served.once && !ending_.load(std::memory_order_relaxed)) ReturnLease();
    } else {
      if (in_pool_.fetch_add(1) >= pool_.size()) AddPoolThread();
      const std::lock_guard lock(pool_mutex_);
      jobs_.push_back({&served, task});
      pool_wake_.notify_one();
    }
    return true;
  }
  return false;
}

// One more, since all there are may be busy. Without it the call waits for one of them.
void Worker::AddPoolThread() {
  try {
    pool_.emplace_back([this] { PoolThread(); });
  } catch (const std::system_error& error) {
    if (!pool_.empty()) return;
    std::fprintf(stderr, "manta: cannot start a thread for the actor's calls: %s; raise `ulimit -u`\n", error.what());
    std::abort();
  }
}

void Worker::PoolThread() {
  UseSignalStack();
  for (;;) {
    Job job;
    {
      std::unique_lock lock(pool_mutex_);
      pool_wake_.wait(lock, [this] { return pool_stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = jobs_.front();
      jobs_.pop_front();
    }
    RunTask(*job.served, job.task);
    finished_.fetch_add(1, std::memory_order_relaxed);
    in_pool_.fetch_sub(1, std::memory_order_seq_cst);
    bell_->Ring();
  }
}

// An actor that runs calls side by side is saved when none runs. For a short while no other is begun so that this may
// come true, but not for long: those that run may wait for one that has yet to begin. True: wait a little more.
bool Worker::WaitToSave() {
  const std::uint64_t finished = finished_.load(std::memory_order_relaxed);
  if (!checkpoint_due_) {
    checkpoint_due_ = actor_->journal->Count(finished - std::exchange(counted_, finished));
    if (!checkpoint_due_) return false;
    held_until_us_ = base::NowMicros() + kHeldUs;
  }
  if (deferred_ == 0 && in_pool_.load(std::memory_order_seq_cst) == 0) {
    checkpoint_due_ = false;
    actor_->journal->Checkpoint(*owner_, *actor_);
    return false;
  }
  if (base::NowMicros() >= held_until_us_) return false;
  if (actor_->step != nullptr) {
    step_busy_ = actor_->step(true);
  } else {
    const std::uint32_t ticket = bell_->PrepareSleep();
    if (in_pool_.load(std::memory_order_seq_cst) > 0) bell_->Sleep(ticket, kHeldUs / 10);
  }
  return true;
}

void Worker::StopPool() {
  {
    const std::lock_guard lock(pool_mutex_);
    pool_stop_ = true;
    pool_wake_.notify_all();
  }
  for (std::thread& thread : pool_) thread.join();
  pool_.clear();
}

// Something to claim, or mail? Claims nothing.
bool Worker::WorkWaits() {
  if (ending_.load(std::memory_order_seq_cst)) return true;
  if (bell_->flags.load(std::memory_order_seq_cst) != 0) return true;
  if (concurrency_ > 1 && in_pool_.load(std::memory_order_seq_cst) >= concurrency_) return false;
  for (const std::unique_ptr<Served>& served : served_) {
    if (served->queue.Ready()) return true;
  }
  return false;
}

bool Worker::SharesCore() const {
  for (const std::unique_ptr<Served>& served : served_) {
    if (served->far == nullptr && served->bell->SharesCore() && served->bell->Rung()) return true;
  }
  return false;
}

// Looks for kSpinUs, as Owner::SpinUntil does: it yields to an owner on the same core.
bool Worker::SpinForWork() {
  bool serves_far = false;
  for (const std::unique_ptr<Served>& served : served_) serves_far |= served->far != nullptr;
  bell_->RunsHere();
  const std::int64_t until = base::NowMicros() + kSpinUs;
  bool token = false;   // held, to spin
  bool yields = false;  // may yield
  bool work = false;
  far::Thread::Turn far(serves_far ? owner_->FarThread().value() : nullptr);
  do {
    if (far) far.Work();
    work = WorkWaits();
    if (work) break;
    if (SharesCore()) {
      yields = yields || hand_over_.YieldsPay();
      if (!yields || !hand_over_.Yield()) break;
      bell_->RunsHere();
      continue;
    }
    token = token || node_->TakeSpinToken(*bell_);
    if (!token) break;
    for (int i = 0; i < (far ? 1 : 64) && !(work = WorkWaits()); ++i) base::Relax();
  } while (!work && base::NowMicros() < until);
  if (token) node_->ReturnSpinToken(*bell_);
  return work;
}

void Worker::Idle() {
  for (const std::unique_ptr<Served>& served : served_) {
    if (served->far != nullptr) Flush(*served, false);
  }
  if (actor_ != nullptr && in_pool_.load() == 0 && deferred_ == 0) {
    // Callers of other nodes that are gone; no call of theirs runs.
    std::erase_if(served_, [](const auto& served) { return served->far != nullptr && served->far->closed(); });
  }
  bell_->state.store(in_pool_.load() > 0 ? shm::Doorbell::kBusy : shm::Doorbell::kIdle, std::memory_order_relaxed);
  if (!served_.empty() && SpinForWork()) {
    bell_->state.store(shm::Doorbell::kBusy, std::memory_order_relaxed);
    return;
  }
  for (const std::unique_ptr<Served>& served : served_) {
    served->lane.memory().asleep.store(1, std::memory_order_seq_cst);
  }
  const std::uint32_t ticket = bell_->PrepareSleep();
  if (!WorkWaits()) {
    if (lends_ && !lent_) Lend();
    bell_->Sleep(ticket, -1);
  }
  for (const std::unique_ptr<Served>& served : served_) {
    served->lane.memory().asleep.store(0, std::memory_order_relaxed);
  }
  bell_->state.store(shm::Doorbell::kBusy, std::memory_order_relaxed);
}

void Worker::Lend() { lent_ = link_->Send(wire::Blocked{}).ok(); }

void Worker::TakeBackLent() {
  lent_ = false;
  static_cast<void>(link_->Call<wire::Done>(wire::Unblock{}));
}

int Worker::Serve() {
  while (!exit_) {
    const std::uint32_t flags = bell_->flags.load(std::memory_order_acquire);
    if (flags != 0) {
      if ((flags & shm::Doorbell::kRevoke) != 0) ReturnLease();
      if ((flags & shm::Doorbell::kMail) != 0) ReadMail();
      continue;
    }
    if (ending_.load(std::memory_order_acquire)) [[unlikely]] {
      if (!AwaitRunning()) break;
      continue;
    }
    if (lent_ && WorkWaits()) TakeBackLent();
    if (concurrency_ > 1 && in_pool_.load(std::memory_order_seq_cst) >= concurrency_) {
      Idle();
      continue;
    }
    if (actor_ != nullptr && actor_->journal != nullptr && (concurrency_ > 1 || actor_->step != nullptr) &&
        WaitToSave())
      continue;
    if (actor_ != nullptr && actor_->step != nullptr) {
      // A few calls are begun before what is under way gets its turn.
      int begun = 0;
      while (begun < kBegunAtOnce && deferred_ < concurrency_ && !ending_.load(std::memory_order_relaxed) &&
             ServeOnce()) {
        ++begun;
      }
      step_busy_ |= begun > 0;
      if (step_busy_) {
        step_busy_ = actor_->step(begun == 0);
      } else {
        Idle();
      }
      continue;
    }
    if (!ServeOnce()) Idle();
    if (leave_ && actor_ == nullptr && !served_.empty() && !ending_.load(std::memory_order_relaxed)) ReturnLease();
  }
  StopPool();
  Leave();
  FlushAllOutput();
  return end_.has_value() ? end_->status : 0;
}

bool Worker::AwaitRunning() {
  if (actor_ != nullptr && actor_->step != nullptr) {
    if (deferred_ == 0) return false;
    step_busy_ = actor_->step(true);
    return true;
  }
  const std::uint32_t ticket = bell_->PrepareSleep();
  if (in_pool_.load(std::memory_order_seq_cst) == 0) return false;
  bell_->Sleep(ticket, kHeldUs);
  return true;
}

// The callers of an actor hear of its end when everything else is done: what its farewell writes is there for them.
void Worker::Leave() {
  for (const std::unique_ptr<Served>& served : served_) {
    if (served->far != nullptr) Flush(*served, false);
  }
  late_replies_.Stop();
  if (g_farewell != nullptr) {
    const int status = end_.has_value() ? end_->status : 0;
    std::thread([status] {
      std::this_thread::sleep_for(std::chrono::seconds(internal::kFarewellSeconds));
      std::fprintf(stderr, "worker %d is ended: its exit handlers did not return within %d s\n", getpid(),
                   internal::kFarewellSeconds);
      FlushAllOutput();
      _exit(status);
    }).detach();
    g_farewell(actor_ == nullptr ? nullptr : actor_->self);
  }
  if (actor_ == nullptr) return;
  if (actor_->destroy != nullptr) {
    try {
      actor_->destroy(actor_->self);
    } catch (...) {
      std::fprintf(stderr, "the destructor of actor %s threw\n", actor_->class_name.c_str());
    }
  }
  if (!end_.has_value() || !end_->for_good) return;
  FlushAllOutput();
  wire::KillActor message;
  message.actor = actor_->id;
  static_cast<void>(link_->Send(message));
}

bool Worker::RoomOnStack() const {
  struct Bounds {
    const char* low = nullptr;
    std::size_t size = 0;
    Bounds() {
      pthread_attr_t attributes;
      if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
      void* address = nullptr;
      pthread_attr_getstack(&attributes, &address, &size);
      low = static_cast<const char*>(address);
      pthread_attr_destroy(&attributes);
    }
  };
  thread_local const Bounds bounds;
  const char here = 0;
  return bounds.low != nullptr && static_cast<std::size_t>(&here - bounds.low) > bounds.size / 2;
}

void Worker::Run(const std::byte* spec, std::uint64_t bytes) {
  Execution execution(*owner_, nullptr, nullptr);
  execution.Run(spec, bytes);
}

int WorkerMain(int socket) {
  InstallOutput();
  InstallCrashHandlers();
  Worker worker(socket);
  if (Status s = worker.Join(); !s.ok()) {
    std::fprintf(stderr, "a worker cannot join its node: %s\n", s.message().c_str());
    FlushAllOutput();
    return 1;
  }
  const int code = worker.Serve();
  // No unwinding: threads of the user may still run, and the daemon cleans up.
  FlushAllOutput();
  _exit(code);
}

}  // namespace manta::worker
