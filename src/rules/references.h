// References knows who holds which object or actor that has left its owner, and says which of them nobody holds any
// more. A holder is a process, or an object or actor whose value contains the Ref. Pure bookkeeping: no clock,
// sockets or locks; only the daemon's loop calls it.
//
// Invariants: (1) a process holds an object while it was given more Holds than it made Drops. Where more Drops came,
//                 the difference is kept until the Holds arrive or the process dies.
//             (2) a container holds each object it contains once, as long as it is known, and not longer.
//             (3) an object is known from its first Hold until TakeUnheld names it, once.
//
// Order. Between two processes messages may overtake each other: a worker's Hold on behalf of its owner and the owner's
// Drop of the same object come by two sockets. Holds of processes are counted for that: a Drop ends as many as it says
// and no other, whichever is read first. And Drop frees nothing. It makes the object a suspect, and a Hold
// before the next TakeUnheld rescues it. The daemon calls TakeUnheld only after it has read everything already sent to
// it by everybody (see Order in wire/messages.h); whoever still wants the object had to say so before the last holder
// could know that it may let go.
//
// Cycles are not found. Values are immutable, so what one contains is older than itself; an actor's arguments are, too.
//
// Cost: all operations are O(1) per object named, ProcessDied and TakeUnheld per object let go.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "types/id.h"

namespace manta::rules {

// Exactly one of the two is set.
struct Holder {
  ProcessId process = kNoProcess;
  Id container;

  [[nodiscard]] static Holder Process(ProcessId process) { return Holder{process, Id{}}; }
  [[nodiscard]] static Holder Container(const Id& id) { return Holder{kNoProcess, id}; }
  friend auto operator<=>(const Holder&, const Holder&) = default;
};

class References {
 public:
  // Once more, if the holder is a process. The caller makes sure that it is alive: a Hold for a dead one would
  // never end.
  void Hold(const Id& object, const Holder& holder);
  // Ends `count` Holds of a process, of the past or to come. A container just lets go, if it held.
  void Drop(const Id& object, const Holder& holder, std::uint32_t count = 1);

  // From now on `container` holds exactly these (a repeated id once, itself not at all); an empty list lets go, as for
  // an actor that died for good while there are handles to it. A container nobody held yet becomes known by
  // this, and is named by the next TakeUnheld unless somebody holds it before.
  void SetContained(const Id& container, const std::vector<Id>& contained);

  // Drops all it held.
  void ProcessDied(ProcessId process);

  // Everything known that has no holder, and what only they contained, and so on; none of it is known afterwards. A
  // container comes before what it contained.
  [[nodiscard]] std::vector<Id> TakeUnheld();
  // Whether TakeUnheld may have something to say: then drain the sockets and call it.
  [[nodiscard]] bool HasSuspects() const { return !suspects_.empty(); }

  [[nodiscard]] bool Known(const Id& object) const { return objects_.contains(object); }
  [[nodiscard]] std::size_t Holders(const Id& object) const;  // 0 if unknown
  [[nodiscard]] bool Holds(const Id& object, const Holder& holder) const;
  [[nodiscard]] bool HoldsAny(const Holder& holder) const;
  [[nodiscard]] std::vector<ProcessId> ProcessesThatHold(const Id& object) const;  // sorted; looks at every holder
  [[nodiscard]] std::size_t size() const { return objects_.size(); }

 private:
  struct Object {
    std::uint32_t holders = 0;
    bool suspect = false;  // in suspects_
  };
  struct HashHolder {
    std::size_t operator()(const Holder& holder) const noexcept {
      return std::hash<Id>()(holder.container) ^ Mix(holder.process);
    }
  };

  // By object: Holds less Drops, never 0. Of a container always 1.
  using Counts = std::unordered_map<Id, std::int64_t>;
  using HeldBy = std::unordered_map<Holder, Counts, HashHolder>;

  void Suspect(const Id& id, Object* object);
  void Release(const Id& object);                        // one holder less
  void Forget(HeldBy::iterator held, const Id& object);  // its count is 0

  std::unordered_map<Id, Object> objects_;
  HeldBy held_by_;
  std::vector<Id> suspects_;
};

}  // namespace manta::rules
