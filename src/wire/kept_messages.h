// How a detached actor outlives its home (node/far_actors.h): what it is made of is kept at the head, in the control
// store: how it was created, and its journal, brought up to date before an answer of it can be seen. When its home is
// lost, or leaves in order, the head appoints another one, which gets all of that and goes on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "types/failure.h"
#include "types/journal_part.h"
#include "wire/cluster_messages.h"

namespace manta::wire {

enum class KeptKind : std::uint16_t {
  kKeepActor = 480,
  kKeepJournal,
  kForgetActor,
  kFindHome,
  kActorHome,
  kKeptJournal,
  kAdoptActor,
  kActorAdopted,
  kLeaveHome,
  kActorMoved,
};

// N -> C, a call answered by Done once it is durable: the sender is about to make this actor, and is its home.
struct KeepActor {
  static constexpr Kind kKind = static_cast<Kind>(KeptKind::kKeepActor);
  FarCreateActor made;  // its job's facts with the hash of the program
  std::string file;     // as in JobFacts, for nodes of the same machine
};
// N -> C, a call answered by Done once it is durable, or by Failed{kNotFound}: the actor is another node's now. Parts
// are written in the order of their numbers, from 1 up; one that is sent again is the same. `since`: these and those
// from there on are all there is; 0: they are not.
struct KeepJournal {
  static constexpr Kind kKind = static_cast<Kind>(KeptKind::kKeepJournal);
  Id actor;
  std::uint32_t epoch = 0;
  std::uint64_t number = 0;  // 0: none; only the epoch is told
  std::uint64_t since = 0;
  std::vector<JournalPart> parts;
};
// N -> C: it is dead for good, or was never made.
struct ForgetActor {
  static constexpr Kind kKind = static_cast<Kind>(KeptKind::kForgetActor);
  Id actor;
};
// N -> C, a call answered by ActorHome when it has one, or by Failed{kNotFound}: it is not kept.
struct FindHome {
  static constexpr Kind kKind = static_cast<Kind>(KeptKind::kFindHome);
  Id actor;
};
struct ActorHome {
  static constexpr Kind kKind = static_cast<Kind>(KeptKind::kActorHome);
  Id actor;
  NodeNumber home = 0;
};
// C -> N, before AdoptActor: a part of its journal. Several are one, in their order.
struct KeptJournal {
  static constexpr Kind kKind = static_cast<Kind>(KeptKind::kKeptJournal);
  Id actor;
  std::uint64_t number = 0;
  std::vector<JournalPart> parts;
};
// C -> N: you are its home now. Answered one-way by ActorAdopted.
struct AdoptActor {
  static constexpr Kind kKind = static_cast<Kind>(KeptKind::kAdoptActor);
  FarCreateActor made;
  std::string file;
  std::uint32_t epoch = 0;  // of its last life that is known
  std::string why;          // it comes here: what became of its home
  NodeNumber left = 0;      // a home that leaves it, and has its program; 0: it was lost
};
// N -> C: it is at home here, or why it cannot be. Also of all that are, when the head is back.
struct ActorAdopted {
  static constexpr Kind kKind = static_cast<Kind>(KeptKind::kActorAdopted);
  Id actor;
  Failure failure;
};
// N -> C, a call answered by ActorHome when the actor is at home there, or by Failed{kNotFound}: it is not kept. The
// sender is its home, has ended its process, and has no part of its journal under way. If no other node can be its
// home, the sender is appointed like any other (AdoptActor), and named.
struct LeaveHome {
  static constexpr Kind kKind = static_cast<Kind>(KeptKind::kLeaveHome);
  Id actor;
};
// N -> N, to those that call it: it is at home there now.
struct ActorMoved {
  static constexpr Kind kKind = static_cast<Kind>(KeptKind::kActorMoved);
  Id actor;
  NodeNumber home = 0;
};

}  // namespace manta::wire
