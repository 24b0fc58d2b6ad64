// ActorTable decides the life of actors: who owns a name, when a dead one comes back, when one must end, and what
// everybody is told about it. Pure bookkeeping: no clock, sockets or locks; only the daemon's loop calls it and
// carries out the actions that each event appends.
//
//   Create -> kStarting --(Placed, Ready)--> kAlive --(WorkerDied)--> kRestarting --(Placed, Ready)--> kAlive
//                 |                            |                          |
//                 +-------- Kill, HandlesGone, DriverDied, ConstructorFailed, no restarts left -------> kDead
//
// Invariants: (1) a name belongs to at most one actor of a namespace, and that one is not dead.
//             (2) dead is for ever, and is announced once.
//             (3) epoch == restarts used <= max_restarts, unless that is -1 (no limit).
//             (4) an actor that is not dead waits for a lease or has a worker, never both.
//             (5) one whose process dies kMostFalseRestarts times in a row before it is ready does not come back,
//                 whatever its limit: its constructor, or what it repeats, kills it.
//
// A dead actor is remembered, so that late callers learn why, until nobody has a handle: HandlesGone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "types/failure.h"
#include "types/id.h"
#include "types/status.h"

namespace manta::rules {

struct ActorPolicy {
  std::string class_name;  // for messages
  std::string name;        // empty: none
  std::string space = "default";
  bool detached = false;          // outlives handles and its job
  bool get_if_exists = false;     // needs a name
  std::int64_t max_restarts = 0;  // -1: no limit
};

// The numbers are those of wire::ActorPhase.
enum class ActorPhase : std::uint8_t { kStarting = 0, kAlive = 1, kRestarting = 2, kDead = 3 };

// Ask the LeaseQueue for a worker; tell Placed when it has one.
struct RequestLease {
  Id actor;
};
// It died before it was placed: cancel the request (or return the lease just granted).
struct CancelLease {
  Id actor;
};
// End its process; WorkerDied comes when it has ended. `force`: kill it; else let it finish what runs.
struct StopWorker {
  Id actor;
  bool force = false;
};
// Tell everybody who created or attached. With kDead: also let go of its arguments and its spec.
struct Notify {
  Id actor;
  ActorPhase phase = ActorPhase::kStarting;
  Failure failure;  // with kRestarting and kDead: why
};
using ActorAction = std::variant<RequestLease, CancelLease, StopWorker, Notify>;
using ActorActions = std::vector<ActorAction>;

inline constexpr int kMostFalseRestarts = 10;

class ActorTable {
 public:
  struct Actor {
    ActorPolicy policy;
    Id job;
    ActorPhase phase = ActorPhase::kStarting;
    bool waits = false;       // for a lease
    bool placed = false;      // has a lease, and a worker that runs, starts or was told to end
    std::uint32_t epoch = 0;  // restarts used
    Failure failure;          // the last one; with kDead the one callers get
    bool handles_gone = false;
    bool killed = false;     // by Kill(restart): explains the next WorkerDied
    int false_restarts = 0;  // in a row that ended before it was ready
  };

  // ---- events; each appends what is to be done now; an unknown or dead actor is ignored ----

  // The id of the new actor; with get_if_exists perhaps of one that lives (its options are its own, not `policy`).
  // kInvalid: name taken, id taken, get_if_exists without a name, max_restarts below -1. Check the LeaseQueue first:
  // what is infeasible is not to be created.
  Result<Id> Create(const Id& actor, const Id& job, const ActorPolicy& policy, ActorActions* actions);
  // Its lease was granted and its worker is found or started next. False if it does not wait for one (any more): return
  // the lease.
  bool Placed(const Id& actor);
  // One of another home, which is lost: as if its process had died here, in the life `epoch`. kInvalid: id or name
  // taken.
  Status Adopt(const Id& actor, const Id& job, const ActorPolicy& policy, std::uint32_t epoch, const Failure& cause,
               ActorActions* actions);
  // The constructor is done.
  void Ready(const Id& actor, ActorActions* actions);
  // It threw: dead for good, also in a restart. A constructor that always throws would restart for ever.
  void ConstructorFailed(const Id& actor, const Failure& failure, ActorActions* actions);
  // Its process is gone, or could not be started after Placed. `cause` says how ("signal 11 (SIGSEGV) …"). Restarts if
  // any are left.
  void WorkerDied(const Id& actor, const Failure& cause, ActorActions* actions);
  // Its process is gone, and what it did cannot be repeated: dead for good, with this message.
  void Lost(const Id& actor, const Failure& why, ActorActions* actions);
  // Its process is gone, and the constructor had not begun: as if it had never been placed, this costs no restart.
  // Nothing happens to one that is alive. To be called a few times in a row at most.
  void NeverBegan(const Id& actor, ActorActions* actions);
  // `restart`: its process only; nothing happens to one that has none. Otherwise dead for good, at once.
  void Kill(const Id& actor, bool restart, ActorActions* actions);
  // References says nobody holds it. A detached one lives on; others end after what they run. Forgets a dead one.
  void HandlesGone(const Id& actor, ActorActions* actions);
  // It is at home elsewhere from now on. Nobody is told: it has not died.
  void Moved(const Id& actor);
  // The job's actors die, except detached ones.
  void DriverDied(const Id& job, ActorActions* actions);

  // The living actor of that name, or kNotFound. Whoever asks is about to hold it, so its handles are not gone.
  Result<Id> Find(const std::string& name, const std::string& space);
  // The same for one that is known by its id.
  void WillBeHeld(const Id& actor);

  // ---- what is ----

  [[nodiscard]] const Actor* Get(const Id& actor) const;
  [[nodiscard]] std::size_t living() const { return living_; }
  [[nodiscard]] std::size_t size() const { return actors_.size(); }  // with the dead that are remembered
  [[nodiscard]] const std::unordered_map<Id, Actor>& actors() const { return actors_; }
  // (space, name) of the living.
  [[nodiscard]] const std::map<std::pair<std::string, std::string>, Id>& names() const { return names_; }

 private:
  struct Death {
    std::string cause;   // "killed by Kill()"
    std::string remedy;  // a sentence
    Failure origin;      // whose type and cause go on to the callers
    bool force = true;   // of StopWorker
  };

  Actor* Living(const Id& actor);
  // May forget the actor: no pointer to it is good afterwards.
  void Die(const Id& id, const Death& death, ActorActions* actions);

  std::unordered_map<Id, Actor> actors_;
  std::map<std::pair<std::string, std::string>, Id> names_;  // (space, name) of the living
  std::size_t living_ = 0;
};

}  // namespace manta::rules
