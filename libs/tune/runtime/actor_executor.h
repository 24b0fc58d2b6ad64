// The default TrialExecutor: each trial runs in an actor of its own. An actor with one bundle asks for its resources
// itself; with several bundles, or another strategy than PACK, it runs in the first bundle of a placement group.
#pragma once

#include <functional>
#include <memory>

#include "manta/tune/executor.h"
#include "tune/runtime/host.h"

namespace manta::tune::runtime {

using MakeHost = std::function<ActorCreator<internal::TrialHost, internal::TrialHost* (*)()>()>;

// Manta must be initialised while the executor exists.
std::unique_ptr<TrialExecutor> MakeActorExecutor(MakeHost make);

}  // namespace manta::tune::runtime
