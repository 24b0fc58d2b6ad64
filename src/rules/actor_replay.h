// ActorReplay decides what exactly-once means for one serial actor: which calls run and which are answered from memory,
// when its state is saved, and whether what was repeated after a death is what was before. Pure bookkeeping: no clock,
// sockets or locks. The actor's worker drives it and keeps the records (worker/actor_journal.h).
//
//   a call comes ---Arrive---> runs ---Ran---> its record is complete, then its answer may be seen; perhaps a
//   checkpoint
//                     |--> answered as before, refused, or found to be another call under the same name
//   the actor dies; its successor: constructor, the last checkpoint, then each record in order ---Replayed---> the
//   same?
//
// Why the answer waits for the record and not the other way round: an answer that was seen and whose call is not
// repeated is a lost effect; a call that is repeated and whose answer nobody saw is answered when it is sent again.
//
// Who sends a call again: a caller whose actor died before it answered, and a task that is run again and makes the
// same calls, with the same ids, because ids are derived. Both say so (`rerun`), so that in a life without deaths
// nothing is looked up. Once one has said so, every call is looked up: the first copy may still be under way.
//
// Invariants: (1) no id runs twice, unless its caller says `fresh`, or its answer was forgotten (Forget).
//             (2) what is repeated are the calls since the last checkpoint, in their order, and no read-only ones.
//             (3) a call that the actor died in runs again unless it must not be begun twice; then it is refused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>

#include "types/failure.h"
#include "types/id.h"

namespace manta::rules {

struct ReplayPolicy {
  std::string actor;                     // as messages call it
  bool can_save = false;                 // else there are no checkpoints
  std::uint64_t every_calls = 0;         // a checkpoint after so many calls; 0: does not matter
  std::int64_t every_us = 0;             // … or so long; 0: does not matter
  std::uint64_t tidy_bytes = 1U << 20;   // … or when the records are so large, and kStateShare times the state
  std::uint64_t most_bytes = 32U << 20;  // of records. Beyond it, without a checkpoint, nothing can be repeated
};

struct ReplayCall {
  Id id;
  std::uint64_t digest = 0;  // of its code and arguments
  bool comparable = true;    // the digest is the same wherever the call is made
  bool read_only = false;
  bool rerun = false;  // it may have been made before
  bool fresh = false;  // it was made before, and is to run again all the same: its task asked to be retried
  bool begun = false;  // the actor died in it
  bool once = false;   // it must not be begun twice
};

// What was and what is.
struct ReplayedCall {
  Id id;
  std::string_view method;
  std::uint64_t digest = 0;  // of the answer
  bool failed = false;
  std::uint64_t digest_now = 0;
  bool failed_now = false;
};

// Failure::type of Refused: the caller knows better why the actor died.
inline constexpr char kNotBegunAgain[] = "manta::NotBegunAgain";

class ActorReplay {
 public:
  static constexpr std::uint64_t kStateShare = 8;

  enum class Verdict : std::uint8_t {
    kRun = 0,
    kAnswer = 1,   // as before
    kRefuse = 2,   // it was begun, and must not be again
    kDiffers = 3,  // this id was another call
  };
  enum class Next : std::uint8_t {
    kNothing = 0,
    kCheckpoint = 1,  // save the state now, then say Checkpointed or CannotSave
    kGiveUp = 2,      // record no more; a death is the end of the actor
  };

  ActorReplay() = default;
  ActorReplay(ReplayPolicy policy, std::int64_t now_us);

  // ---- calls ----

  // Must the answers that are kept be named (Remember, each; then Indexed) before Arrive can tell?
  [[nodiscard]] bool NeedsIndex(const ReplayCall& call) const { return call.rerun && !indexed_; }
  void Remember(const Id& call, std::uint64_t digest, std::uint64_t place) { answers_[call] = {digest, place}; }
  void Indexed() { indexed_ = true; }
  [[nodiscard]] bool indexed() const { return indexed_; }
  [[nodiscard]] bool Knows(const Id& call) const { return answers_.contains(call); }
  [[nodiscard]] std::size_t remembered() const { return answers_.size(); }
  // All of them, so that those that are still kept can be named again.
  void Forget() { answers_.clear(); }

  // With kAnswer and kDiffers, *place is that of the answer.
  Verdict Arrive(const ReplayCall& call, std::uint64_t* place) const;

  // A call that is not read-only has run, and its record has so many bytes. `now_us` matters only with every_us.
  Next Ran(std::uint64_t bytes, std::int64_t now_us) {
    bytes_ += bytes;
    if (++calls_ < calls_due_ && bytes_ < bytes_due_ && policy_.every_us == 0) [[likely]]
      return Next::kNothing;
    return Decide(now_us);
  }
  [[nodiscard]] bool timed() const { return policy_.every_us != 0; }
  void Checkpointed(std::uint64_t state_bytes, std::int64_t now_us);
  // Not now; it is tried again later, and given up when the records are too large.
  void CannotSave();

  // ---- after a death ----

  // What the journal says: a checkpoint of so many bytes and records of so many.
  void Restored(std::uint64_t state_bytes, std::uint64_t record_bytes, std::uint64_t calls);
  // All is repeated: a checkpoint may be due at once, so that the next one has less to do.
  Next Recovered(std::int64_t now_us) { return Decide(now_us); }
  // Not ok: the actor does not answer as it did, and must end.
  Failure Replayed(const ReplayedCall& call);
  [[nodiscard]] std::uint64_t replayed() const { return replayed_; }

  // ---- messages ----

  [[nodiscard]] Failure Refused(const Id& call) const;
  [[nodiscard]] Failure Differs(const Id& call, std::string_view method) const;
  [[nodiscard]] Failure NotKept(const Id& call, std::string_view method) const;  // its answer
  [[nodiscard]] Failure TooMuch(std::uint64_t calls) const;                      // it was given up after so many

 private:
  struct Answer {
    std::uint64_t digest = 0;
    std::uint64_t place = 0;
  };
  Next Decide(std::int64_t now_us);
  void SetDue();

  ReplayPolicy policy_;
  bool indexed_ = false;
  std::unordered_map<Id, Answer> answers_;
  std::uint64_t calls_ = 0;  // since the checkpoint
  std::uint64_t bytes_ = 0;
  std::uint64_t state_bytes_ = 0;
  std::uint64_t calls_due_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t bytes_due_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t retry_bytes_ = 0;  // after CannotSave: not before there are so many
  std::int64_t saved_us_ = 0;
  bool given_up_ = false;
  std::uint64_t replayed_ = 0;
};

}  // namespace manta::rules
