#include "tune/runtime/host.h"

#include <filesystem>
#include <utility>

#include "manta/manta.h"

namespace manta::tune::internal {
namespace {

namespace engine = ::manta::internal;

// Run in the worker: the address of the trainable has been translated to this process's.
void CreateForFunction(engine::Invocation& call) {
  auto* train = reinterpret_cast<void (*)(Trial&)>(call.target);  // NOLINT(performance-no-int-to-ptr)
  call.self = new TrialHost([train](Beginning beginning) { return RunFunction(train, std::move(beginning)); });
  engine::SetLife<TrialHost>(call);
}

void CreateForTrainable(engine::Invocation& call) {
  auto* make = reinterpret_cast<Trainable* (*)()>(call.target);  // NOLINT(performance-no-int-to-ptr)
  call.self = new TrialHost([make](Beginning beginning) { return RunTrainable(make, std::move(beginning)); });
  engine::SetLife<TrialHost>(call);
}

ActorCreator<TrialHost, TrialHost* (*)()> Creator(engine::Trampoline trampoline, std::uint64_t target) {
  engine::Site site;
  site.trampoline = trampoline;
  site.target = target;
  ActorCreator<TrialHost, TrialHost* (*)()> creator(site);
  // The controller restarts trials from their checkpoints; the engine must not repeat calls by itself.
  creator.SetMaxRestarts(0).SetReplay(false).SetMaxCallRetries(0);
  return creator;
}

}  // namespace

Reply TrialHost::Begin(const Beginning& beginning) {
  session_.reset();
  Reply reply;
  if (beginning.checkpoint && !std::filesystem::is_directory(beginning.run_folder + "/" + beginning.checkpoint->path)) {
    reply.checkpoint_error = "the folder does not exist";
    return reply;
  }
  session_ = make_(beginning);
  return reply;
}

Reply TrialHost::Next() {
  Reply reply;
  if (session_ != nullptr) reply.said = session_->Next();
  return reply;
}

Reply TrialHost::Save() {
  Reply reply;
  if (session_ != nullptr) reply.checkpoint = session_->Save();
  return reply;
}

Reply TrialHost::Exploit(const Beginning& beginning) {
  if (session_ != nullptr && session_->Reset(beginning)) return {};
  return Begin(beginning);
}

Reply TrialHost::End() {
  session_.reset();
  return {};
}

ActorCreator<TrialHost, TrialHost* (*)()> HostOfFunction(void (*train)(Trial&)) {
  return Creator(&CreateForFunction, reinterpret_cast<std::uint64_t>(train));
}

ActorCreator<TrialHost, TrialHost* (*)()> HostOfTrainable(Trainable* (*make)()) {
  return Creator(&CreateForTrainable, reinterpret_cast<std::uint64_t>(make));
}

}  // namespace manta::tune::internal
