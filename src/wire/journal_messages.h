// How copies of actors' journals travel. An actor that runs on another node than its home (node/guests.h) is to outlive
// that node: before an answer leaves the node, what it rests on is in a copy at the home. The home hands its copy to
// the node where the actor runs next.
#pragma once

#include <cstdint>
#include <vector>

#include "types/journal_part.h"
#include "wire/messages.h"

namespace manta::wire {

enum class JournalKind : std::uint16_t {
  kCopyWanted = 470,
  kCopyJournal,
  kFarJournal,
};

// N -> W, after ActorStart: answers are to wait for the copy, at the home or, of a detached actor, at the head.
struct CopyWanted {
  static constexpr Kind kKind = static_cast<Kind>(JournalKind::kCopyWanted);
  Id actor;
};
// W -> N, a call answered by Done when the home, or the head, has it.
struct CopyJournal {
  static constexpr Kind kKind = static_cast<Kind>(JournalKind::kCopyJournal);
  Id actor;
  std::vector<JournalPart> parts;
};
// host -> home, a call answered by Done: what CopyJournal brought; or one-way, before FarActorDied: all there is.
// home -> host, one-way, before FarStartActor: what to go on with. Several are one, in their order.
struct FarJournal {
  static constexpr Kind kKind = static_cast<Kind>(JournalKind::kFarJournal);
  Id actor;
  std::uint32_t epoch = 0;
  std::vector<JournalPart> parts;
};

}  // namespace manta::wire
