// The seam of include/manta/internal/embed.h.
#include "manta/internal/embed.h"

#include "api/worker_command.h"
#include "manta/manta.h"
#include "owner/entry.h"
#include "owner/owner.h"
#include "worker/execution.h"
#include "worker/fork_server.h"
#include "worker/start_hook.h"
#include "worker/worker.h"

namespace manta::internal {
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

bool IsCancelled(const Invocation& call) { return static_cast<const worker::Execution&>(call).cancel_requested(); }

std::string OwnActor() {
  const worker::Worker* worker = worker::Worker::Current();
  return worker == nullptr || worker->actor().empty() ? std::string() : ToHex(worker->actor());
}

void EndOwnActor() {
  const worker::Worker* worker = worker::Worker::Current();
  if (worker == nullptr || worker->actor().empty()) throw InvalidError("this process is not an actor's");
  const owner::Visit visit;
  wire::KillActor message;
  message.actor = worker->actor();
  if (visit.owner() != nullptr) static_cast<void>(visit.owner()->link().Send(message));
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
