// Retry: what becomes of a call that ended without a result. Pure functions of what is known of the call and its end:
// no clock, sockets or locks. Owners (owner/failures.cc, owner/actors.cc) and the simulator carry out what they say.
//
// Whose fault was it? A process that dies may have had several calls: one that it ran, others that it had not begun, or
// whose answers were lost with it. The one that it died in uses up a retry; the others are begun again as often as that
// happens. When nobody can tell, a task's death counts; not so a call of an actor that has a journal: that is sent
// again in any case, because its answer may stand there.
//
// Invariants: (1) a call that must not be begun twice, and may have been begun, is sent again only to an actor that can
//                 tell, and refuses it then (ActorReplay).
//             (2) a call that is known not to have been begun, or died in, loses no retry.
//             (3) what is begun again is marked (`rerun`), unless it is known not to have begun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace manta::rules {

// A call that was sent and is not over.
struct OpenCall {
  std::int32_t retries = 0;  // that are left; negative: no limit
  bool cancelled = false;
  // What it is sent with (ReplayCall); and for a task whether it was begun, as far as its worker said so.
  bool rerun = false;
  bool fresh = false;
  bool begun = false;
  bool once = false;
};

enum class Ended : std::uint8_t {
  kDiedInIt,      // its process; or that has died, and nobody can tell in which call
  kDiedBesideIt,  // its process, in another call or between two
  kThrew,
  kAsksAgain,  // it threw, and what it threw is to be retried
  kRefused,    // its actor died in it as often as it may
};

enum class Fate : std::uint8_t { kAgain, kFails, kCancelled };

// With kAgain, *call is how it is to be sent.
[[nodiscard]] constexpr Fate AfterEnd(Ended ended, OpenCall* call) {
  if (call->cancelled) return Fate::kCancelled;
  if (ended == Ended::kThrew || ended == Ended::kRefused) return Fate::kFails;
  const bool counts = ended != Ended::kDiedBesideIt || (call->once && call->begun);
  if (counts && call->retries == 0) return Fate::kFails;
  if (counts && call->retries > 0) --call->retries;
  // It may have acted before, unless it asked to act again.
  if (ended == Ended::kAsksAgain) call->fresh = true;
  call->rerun = ended != Ended::kAsksAgain;
  return Fate::kAgain;
}

// An actor's process died, or the connection to it broke; another process, or connection, takes its place.
struct ActorLoss {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  bool replays = false;  // it has a journal
  bool exact = false;    // it is known in which call it died, if it was one of this caller's
  bool ahead = false;    // calls were sent before earlier ones were over: sent is not begun
  std::size_t died_in = kNone;
};

// Of the `i`-th of the calls that were sent and not answered, in the order in which they were sent. In that order they
// are sent again, before those that were not.
[[nodiscard]] constexpr Fate AfterLoss(const ActorLoss& loss, std::size_t i, OpenCall* call) {
  const bool blamed = loss.exact && i == loss.died_in;
  if (!loss.replays) {
    const bool begun = !loss.ahead || !loss.exact || (loss.died_in != ActorLoss::kNone && i <= loss.died_in);
    if (begun) return AfterEnd(Ended::kDiedInIt, call);
    return call->cancelled ? Fate::kCancelled : Fate::kAgain;
  }
  if (call->cancelled) return Fate::kCancelled;
  if (blamed) {
    call->begun = true;
    if (call->retries == 0) call->once = true;  // the actor answers it if it has run, and does not begin it again
    if (call->retries > 0) --call->retries;
  }
  call->rerun = true;
  call->fresh = false;  // it may have acted as the fresh call that it was
  return Fate::kAgain;
}

}  // namespace manta::rules
