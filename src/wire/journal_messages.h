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
  bool ranges = false;  // large changes are to be named (CopyJournal::ranges), not sent
};
// W -> N, a call answered by Done when the home, or the head, has it.
struct CopyJournal {
  static constexpr Kind kKind = static_cast<Kind>(JournalKind::kCopyJournal);
  Id actor;
  std::vector<JournalPart> parts;
  std::vector<JournalRange> ranges = {};  // instead: N reads them in the journal, which does not change until Done
};
enum class JournalUse : std::uint8_t {
  kCopy,  // host -> home: what CopyJournal brought
  kLast,  // host -> home, before FarActorDied: all there is
  kStart  // home -> host, before FarStartActor: what to go on with
};
// host -> home, or home -> host, as JournalUse says. Several are one, in their order. Large journals go in pieces, each
// a call answered by Done (node/journal_sender.h).
struct FarJournal {
  static constexpr Kind kKind = static_cast<Kind>(JournalKind::kFarJournal);
  Id actor;
  std::uint32_t epoch = 0;
  std::vector<JournalPart> parts;
  JournalUse use = JournalUse::kCopy;
};

}  // namespace manta::wire
