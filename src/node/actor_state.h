// For who tells processes what an actor is.
#pragma once

#include <utility>
#include <vector>

#include "base/fd.h"
#include "shm/journal.h"
#include "shm/journal_copy.h"
#include "wire/journal_messages.h"
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

// A journal for another node, in messages of a fair size.
[[nodiscard]] inline std::vector<wire::FarJournal> CopiesOf(const Id& actor, std::uint32_t epoch,
                                                            const base::Fd& journal) {
  std::vector<wire::FarJournal> messages;
  if (!journal.valid()) return messages;
  Result<std::vector<JournalPart>> parts = shm::AllOf(journal.get());
  if (!parts.ok()) return messages;
  for (std::vector<JournalPart>& group : shm::Split(*parts, 16ULL << 20)) {
    messages.push_back(wire::FarJournal{actor, epoch, std::move(group)});
  }
  if (messages.empty()) messages.push_back(wire::FarJournal{actor, epoch, {}});  // it has done nothing yet
  return messages;
}

}  // namespace manta::node
