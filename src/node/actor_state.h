// For who tells processes what an actor is.
#pragma once

#include <utility>

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

}  // namespace manta::node
