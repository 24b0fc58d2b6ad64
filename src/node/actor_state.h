// For who tells processes what an actor is.
#pragma once

#include <utility>

#include "base/fd.h"
#include "shm/journal.h"
#include "wire/messages.h"

namespace manta::node {

[[nodiscard]] inline wire::ActorState ActorIs(const Id& actor, wire::ActorPhase phase, ProcessId worker = kNoProcess,
                                              Failure failure = {}) {
  wire::ActorState state;
  state.actor = actor;
  state.phase = phase;
  state.worker = worker;
  state.failure = std::move(failure);
  return state;
}

// What outlives the actor's process, if anything shall and it has none yet.
[[nodiscard]] inline Status MakeJournal(const wire::ActorOptions& options, base::Fd* journal) {
  if (journal->valid() || !(options.replay || options.checkpoint_calls > 0 || options.checkpoint_us > 0)) return {};
  Result<base::Fd> made = shm::Journal::Make();
  if (made.ok()) *journal = std::move(*made);
  return made.status();
}

}  // namespace manta::node
