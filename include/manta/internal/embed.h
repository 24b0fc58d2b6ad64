// What a front end in another language needs beyond core.h: its own command for workers, its own look at a
// call, and its own exceptions. Not for users; no promise of stability.
//
// A front end's functions all have one trampoline, which finds out from the first argument what to run. Its workers are
// its interpreter, started again with the command named here, which loads the front end and calls ServeForks.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "manta/errors.h"
#include "manta/internal/core.h"
#include "manta/internal/export.h"

namespace manta::internal {

// How a call ends that an actor died in, if it may not be begun again: the actor comes back, the call does not. To C++
// a WorkerCrashedError as of a task; Ray's users look for an error of the actor.
class MANTA_EXPORT ActorCrashedError : public WorkerCrashedError {
 public:
  using WorkerCrashedError::WorkerCrashedError;
};

// The words with which the daemon starts this executable again as a fork server; without it they are those of this
// process. For the next Init.
MANTA_EXPORT void SetWorkerCommand(std::vector<std::string> words);

// In a process that was started so: serves the daemon and never returns. Each worker, a fork of this process, calls
// `in_worker` before its first task. Returns at once in any other process.
MANTA_EXPORT void ServeForks(void (*in_worker)());

// Would Await have to bring a value, which is ready, from another node's store?
[[nodiscard]] MANTA_EXPORT bool IsElsewhere(const Entry* entry);
// Those that are ready and elsewhere are asked for, all at once, and not waited for.
MANTA_EXPORT void FetchAhead(std::span<Entry* const> entries);
// Waits until it is in this node's store, or cannot be brought at all. False: not in time.
[[nodiscard]] MANTA_EXPORT bool FetchHere(const Entry* entry, std::int64_t timeout_us);

// Of a value's bytes: may this process write there? Then it has made the value itself, and nothing but its own care
// keeps it from changing it.
[[nodiscard]] MANTA_EXPORT bool IsWritable(const void* data);

// The namespace of this process's job.
[[nodiscard]] MANTA_EXPORT std::string Space();

// ActorSettings::about of an actor that this process has made or found by its name; else empty.
[[nodiscard]] MANTA_EXPORT std::string AboutActor(const ActorEntry* actor);
// ActorSettings::max_call_retries, which every handle knows.
[[nodiscard]] MANTA_EXPORT std::int64_t RetriesOf(const ActorEntry* actor);

// Makes the caller's count of the actor weak: the actor ends when no other count of it is left anywhere, and calls fail
// then. ReleaseWeak gives such a count back.
MANTA_EXPORT void Weaken(ActorEntry* actor);
MANTA_EXPORT void ReleaseWeak(ActorEntry* actor) noexcept;
// (namespace, name) of each live named actor; an empty namespace: of all. Asks the daemon.
[[nodiscard]] MANTA_EXPORT std::vector<std::pair<std::string, std::string>> ListNames(const std::string& space);

// What tasks, actors and placement groups of the cluster use just now, by name. Asks the daemon.
[[nodiscard]] MANTA_EXPORT std::map<std::string, double> ResourcesInUse();

// Did whoever wants the result ask to stop? May be asked from any thread while the call runs.
[[nodiscard]] MANTA_EXPORT bool IsCancelled(const Invocation& call);

// With the number of returns of Submit and CallActor: the same call may come with other bytes when it is made again,
// because its arguments were pickled, say. So nobody compares them.
inline constexpr std::uint32_t kLooseCall = 0x20000000U;
// By a trampoline, of the value that it has just got room for (Invocation::Return): the same, of an answer.
MANTA_EXPORT void NotCompared(Invocation& call);
// By a trampoline: the value that it got room for last is whole, and its caller may have it now. It stays when the call
// fails afterwards. Not for a call's last value.
MANTA_EXPORT void EndReturn(Invocation& call);

// As Cancel, with all calls that the task has made and that have not ended, and theirs.
MANTA_EXPORT void CancelTree(Entry* entry, bool force);

// What the call is called in output and errors. Lives for ever.
[[nodiscard]] MANTA_EXPORT const std::string& LabelOf(const Invocation& call);
// As Context::task_id.
[[nodiscard]] MANTA_EXPORT std::string TaskIdOf(const Invocation& call);
// What this process's output is called from now on, instead of the calls' labels.
MANTA_EXPORT void SetOutputLabel(const std::string& label);

// The id of this process's actor, in hexadecimal digits; empty: it has none.
[[nodiscard]] MANTA_EXPORT std::string OwnActor();
// The same as a handle, counted; nullptr: it has none.
[[nodiscard]] MANTA_EXPORT ActorEntry* OwnActorHandle();
// How a process asks for its own end.
struct WorkerEnd {
  int status = 0;         // what it exits with
  bool for_good = false;  // an actor: on purpose, so that it does not come back
  std::string why;        // what WorkerExit::what says
};
// Of a worker: it begins no call any more, lets those that run finish, says farewell and exits. Any thread.
MANTA_EXPORT void EndWorker(const WorkerEnd& end);
// Thrown out of a trampoline: the same, and the call gets no answer, as if the process had crashed in it. A task that
// runs in place of a Get fails alone: its process has another task to finish.
class WorkerExit : public std::exception {
 public:
  explicit WorkerExit(WorkerEnd end) : end_(std::move(end)) {}
  [[nodiscard]] const char* what() const noexcept override { return end_.why.c_str(); }
  [[nodiscard]] const WorkerEnd& end() const { return end_; }

 private:
  WorkerEnd end_;
};
// What a worker that ends in order (not one that is killed) does after its last call, on its main thread; `actor` is
// the object that its creation has made, or nullptr. It has kFarewellSeconds.
using Farewell = void (*)(void* actor);
MANTA_EXPORT void SetFarewell(Farewell farewell);
inline constexpr int kFarewellSeconds = 30;

// Its name; empty: it has none.
[[nodiscard]] MANTA_EXPORT std::string OwnActorName();
// Has another process been this actor before?
[[nodiscard]] MANTA_EXPORT bool WasRestarted();

// The id of this process's job, in hexadecimal digits.
[[nodiscard]] MANTA_EXPORT std::string JobOf();
// What the running task or this process's actor was given; empty in a driver.
[[nodiscard]] MANTA_EXPORT std::map<std::string, double> AssignedResources();

// A value that was put and that calls need but do not name among their arguments, such as a function's code: in a job
// with a name it is kept beside the lineage, for `manta replay`. Throws IoError.
MANTA_EXPORT void KeepForReplay(Entry* entry);

// In a task: its worker gives back its lease and leaves once the call has been answered. Not for actors.
MANTA_EXPORT void LeaveAfterCall();

// By an actor that runs one call at a time: while it sleeps between two calls, its CPUs serve others, as those of a
// task that waits in Get do. A call that comes then waits for them.
MANTA_EXPORT void LendWhenIdle();

// ---- actors that do many things on one thread ----

// What such an actor does besides beginning calls: some of what is under way. With `wait` it may sleep for a
// millisecond or so, until there is something to do. False: nothing is under way.
using ActorStep = bool (*)(bool wait);

// By the trampoline that creates an actor: its calls run on the worker's main thread, as many at a time as its
// concurrency says, because their trampolines may Defer; between them the worker calls `step`.
MANTA_EXPORT void SetActorStep(Invocation& call, ActorStep step);

// By the trampoline of such an actor's call: it returns without a result. The call is then the caller's, who must
// Resume it, once, on the same thread: `rest` returns values or throws, like any trampoline.
MANTA_EXPORT void Defer(Invocation& call);
MANTA_EXPORT void Resume(Invocation* call, Trampoline rest);

// Thrown out of a trampoline: an exception of the other language. TaskError hands `type` and `payload` to the front end
// that gets the result; `message` is the whole story for everybody else.
class ForeignError : public std::exception {
 public:
  ForeignError(Code code, std::string message, std::string type, std::string payload, bool retryable)
      : code_(code),
        message_(std::move(message)),
        type_(std::move(type)),
        payload_(std::move(payload)),
        retryable_(retryable) {}
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }
  [[nodiscard]] Code code() const { return code_; }
  [[nodiscard]] const std::string& type() const { return type_; }
  [[nodiscard]] const std::string& payload() const { return payload_; }
  [[nodiscard]] bool retryable() const { return retryable_; }

 private:
  Code code_;
  std::string message_;
  std::string type_;
  std::string payload_;  // at most kMostPayload bytes arrive whole
  bool retryable_;
};
inline constexpr std::size_t kMostPayload = 64'000;  // two of them fit half a lane (shm/lane.h)

}  // namespace manta::internal
