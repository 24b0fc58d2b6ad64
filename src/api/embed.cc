// The seam of include/manta/internal/embed.h.
#include "manta/internal/embed.h"

#include "api/worker_command.h"
#include "manta/manta.h"
#include "owner/entry.h"
#include "owner/owner.h"
#include "worker/execution.h"
#include "worker/fork_server.h"
#include "worker/output.h"
#include "worker/start_hook.h"
#include "worker/worker.h"

namespace manta::internal {

[[noreturn]] void Throw(const Failure& failure);  // core.cc

namespace {

void (*g_in_worker)() = nullptr;

int EmbeddedWorker(int socket) {
  g_in_worker();
  return worker::WorkerMain(socket);
}

}  // namespace

std::vector<std::string>& WorkerCommand() {
  static auto* words = new std::vector<std::string>();
  return *words;
}

void SetWorkerCommand(std::vector<std::string> words) { WorkerCommand() = std::move(words); }

void ServeForks(void (*in_worker)()) {
  g_in_worker = in_worker;
  worker::SetWorkerEntry(&EmbeddedWorker);
  worker::DivertIfForkServer();
  worker::SetWorkerEntry(nullptr);
}

bool IsReady(const Entry* entry) noexcept { return entry->done(); }

std::map<std::string, double> ResourcesInUse() {
  std::map<std::string, double> out = ClusterResources();
  for (const auto& [name, amount] : AvailableResources()) out[name] -= amount;
  std::erase_if(out, [](const auto& entry) { return entry.second <= 0; });
  return out;
}

bool IsElsewhere(const Entry* entry) {
  if (entry->where != Where::kStore) return false;
  const owner::Visit visit;
  return visit.owner() != nullptr && visit.owner()->IsElsewhere(entry);
}

void FetchAhead(std::span<Entry* const> entries) {
  const owner::Visit visit;
  if (visit.owner() != nullptr) visit.owner()->FetchAhead(entries);
}

bool FetchHere(const Entry* entry, std::int64_t timeout_us) {
  const owner::Visit visit;
  return visit.owner() == nullptr || visit.owner()->FetchHere(entry, timeout_us);
}

bool IsWritable(const void* data) {
  const owner::Visit visit;
  return visit.owner() != nullptr && visit.owner()->store().IsWritable(data);
}

std::string Space() {
  const owner::Visit visit;
  return visit.owner() == nullptr ? std::string() : visit.owner()->space();
}

std::string AboutActor(const ActorEntry* actor) {
  const std::lock_guard lock(owner::EntryTable::Get().mutex);  // a thread that finds the actor by name writes them
  return actor->options.about;
}

std::int64_t RetriesOf(const ActorEntry* actor) {
  const std::lock_guard lock(owner::EntryTable::Get().mutex);
  return actor->options.max_call_retries;
}

void Weaken(ActorEntry* actor) {
  const std::lock_guard lock(owner::EntryTable::Get().mutex);
  actor->weak.fetch_add(1, std::memory_order_acq_rel);
  const owner::Visit visit;
  if (visit.owner() != nullptr && actor->session == visit.owner()->session()) visit.owner()->DropIfWeak(actor);
}

void ReleaseWeak(ActorEntry* actor) noexcept {
  actor->weak.fetch_sub(1, std::memory_order_acq_rel);
  Release(actor);
}

std::vector<std::pair<std::string, std::string>> ListNames(const std::string& space) {
  const owner::Visit visit;
  if (visit.owner() == nullptr) throw InvalidError("Manta is not initialised: call manta::Init() first");
  Result<std::vector<wire::NameList::Entry>> names = visit.owner()->ListNames(space);
  if (!names.ok()) Throw(ToFailure(names.status()));
  std::vector<std::pair<std::string, std::string>> out;
  out.reserve(names->size());
  for (wire::NameList::Entry& entry : *names) out.emplace_back(std::move(entry.space), std::move(entry.name));
  return out;
}

bool IsCancelled(const Invocation& call) { return static_cast<const worker::Execution&>(call).cancel_requested(); }

void CancelTree(Entry* entry, bool force) {
  const owner::Visit visit;
  if (visit.owner() == nullptr) throw InvalidError("Manta is not initialised: call manta::Init() first");
  visit.owner()->Cancel(entry, force, true);
}

const std::string& LabelOf(const Invocation& call) { return static_cast<const worker::Execution&>(call).label(); }

std::string TaskIdOf(const Invocation& call) { return ToHex(static_cast<const worker::Execution&>(call).id()); }

void SetOutputLabel(const std::string& label) { worker::SetProcessLabel(label); }

std::string OwnActor() {
  const worker::Worker* worker = worker::Worker::Current();
  return worker == nullptr || worker->actor().empty() ? std::string() : ToHex(worker->actor());
}

ActorEntry* OwnActorHandle() {
  const worker::Worker* worker = worker::Worker::Current();
  const owner::Visit visit;
  if (worker == nullptr || worker->own_actor() == nullptr || visit.owner() == nullptr) return nullptr;
  const worker::ActorSelf& own = *worker->own_actor();
  return visit.owner()->AdoptActor(own.id, own.home, &own.options, false);
}

void EndWorker(const WorkerEnd& end) {
  worker::Worker* worker = worker::Worker::Current();
  if (worker == nullptr) throw InvalidError("this process is not a worker");
  worker->End(end);
}

void SetFarewell(Farewell farewell) { worker::Worker::SetFarewell(farewell); }

void KeepForReplay(Entry* entry) {
  const owner::Visit visit;
  if (visit.owner() == nullptr) return;
  if (const Status kept = visit.owner()->KeepForReplay(entry); !kept.ok()) throw IoError(kept.message());
}

void NotCompared(Invocation& call) { static_cast<worker::Execution&>(call).NotCompared(); }

void EndReturn(Invocation& call) { static_cast<worker::Execution&>(call).EndReturn(); }

std::string OwnActorName() {
  const worker::Worker* worker = worker::Worker::Current();
  return worker == nullptr || worker->own_actor() == nullptr ? std::string() : worker->own_actor()->options.name;
}

bool WasRestarted() {
  const worker::Worker* worker = worker::Worker::Current();
  return worker != nullptr && worker->own_actor() != nullptr && worker->own_actor()->epoch > 0;
}

std::string JobOf() {
  const owner::Visit visit;
  return visit.owner() == nullptr ? std::string() : ToHex(visit.owner()->job());
}

std::map<std::string, double> AssignedResources() {
  std::map<std::string, double> out;
  const Resources* need = owner::ThisCaller().need;
  const worker::Worker* worker = worker::Worker::Current();
  if (worker != nullptr && worker->own_actor() != nullptr) need = &worker->own_actor()->need;
  if (worker == nullptr || need == nullptr) return out;
  for (const auto& [name, units] : need->amounts()) out[name] = static_cast<double>(units) / kUnit;
  return out;
}

void LendWhenIdle() {
  if (worker::Worker* worker = worker::Worker::Current(); worker != nullptr) worker->LendWhenIdle();
}

void LeaveAfterCall() {
  if (worker::Worker* worker = worker::Worker::Current(); worker != nullptr) worker->LeaveAfterCall();
}

void SetActorStep(Invocation& call, ActorStep step) { static_cast<worker::Execution&>(call).SetActorStep(step); }

void Defer(Invocation& call) { static_cast<worker::Execution&>(call).Defer(); }

void Resume(Invocation* call, Trampoline rest) {
  worker::Worker::Current()->Resume(static_cast<worker::Execution*>(call), rest);
}

}  // namespace manta::internal
