#include "rules/actor_replay.h"

#include "types/text.h"

namespace manta::rules {

ActorReplay::ActorReplay(ReplayPolicy policy, std::int64_t now_us) : policy_(std::move(policy)), saved_us_(now_us) {
  if (!policy_.can_save) {
    policy_.every_calls = 0;
    policy_.every_us = 0;
  }
  SetDue();
}

void ActorReplay::SetDue() {
  constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  bytes_due_ = policy_.most_bytes;
  calls_due_ = kNever;
  if (policy_.can_save) {
    bytes_due_ = std::min(bytes_due_, std::max(policy_.tidy_bytes, kStateShare * state_bytes_));
    if (policy_.every_calls != 0) calls_due_ = policy_.every_calls;
  }
  if (retry_bytes_ != 0) {
    bytes_due_ = std::min(policy_.most_bytes, retry_bytes_);
    calls_due_ = kNever;
  }
  if (given_up_) bytes_due_ = kNever;
}

ActorReplay::Verdict ActorReplay::Arrive(const ReplayCall& call, std::uint64_t* place) const {
  if (call.fresh || call.read_only || !(call.rerun || indexed_)) return Verdict::kRun;
#ifdef MANTA_NO_DEDUP  // only to show that manta-chaos notices (cmake/room.cmake)
  const auto it = answers_.end();
#else
  const auto it = answers_.find(call.id);
#endif
  if (it == answers_.end()) return call.begun && call.once ? Verdict::kRefuse : Verdict::kRun;
  *place = it->second.place;
  return call.comparable && it->second.digest != call.digest ? Verdict::kDiffers : Verdict::kAnswer;
}

ActorReplay::Next ActorReplay::Decide(std::int64_t now_us) {
  if (given_up_) return Next::kNothing;
  const bool late = policy_.every_us != 0 && retry_bytes_ == 0 && now_us - saved_us_ >= policy_.every_us;
  if (calls_ < calls_due_ && bytes_ < bytes_due_ && !late) return Next::kNothing;
  if (!policy_.can_save) {
    given_up_ = true;
    SetDue();
    return Next::kGiveUp;
  }
  return Next::kCheckpoint;
}

void ActorReplay::Checkpointed(std::uint64_t state_bytes, std::int64_t now_us) {
  calls_ = 0;
  bytes_ = 0;
  state_bytes_ = state_bytes;
  retry_bytes_ = 0;
  saved_us_ = now_us;
  SetDue();
}

void ActorReplay::CannotSave() {
  if (bytes_ >= policy_.most_bytes) policy_.can_save = false;
  retry_bytes_ = std::max<std::uint64_t>(2 * bytes_, 4096);
  SetDue();
}

void ActorReplay::Restored(std::uint64_t state_bytes, std::uint64_t record_bytes, std::uint64_t calls) {
  calls_ = calls;
  bytes_ = record_bytes;
  state_bytes_ = state_bytes;
  SetDue();
}

Failure ActorReplay::Replayed(const ReplayedCall& call) {
  ++replayed_;
  if (call.failed == call.failed_now && call.digest == call.digest_now) return {};
  const auto outcome = [](bool failed) { return failed ? "threw" : "answered"; };
  return Failure{
      Code::kActorDied,
      Cat("actor ", policy_.actor, " cannot come back: after its process died, ", call.method, " (call ",
          ToString(call.id), ", the ", replayed_, ". that was repeated) ", outcome(call.failed_now),
          " differently than before, when it ", outcome(call.failed),
          ". Methods must give the same answers to the same calls: no clocks, random numbers or other "
          "outside input, unless it comes as an argument; mark those that change nothing as read-only (const, "
          "ReadOnly(); in Python @manta.method(read_only=True)), save the state more often "
          "(CheckpointEvery, checkpoint_every=), or switch replay off (SetReplay(false), replay=False)"),
      kNondeterminism,
      {}};
}

Failure ActorReplay::Refused(const Id& call) const {
  return Failure{Code::kWorkerCrashed,
                 Cat("actor ", policy_.actor, " died in call ", ToString(call),
                     ", which may not be begun again; raise SetMaxCallRetries (max_task_retries) to allow it"),
                 kNotBegunAgain,
                 {}};
}

Failure ActorReplay::Differs(const Id& call, std::string_view method) const {
  return Failure{Code::kTaskFailed,
                 Cat("actor ", policy_.actor, " was asked for ", method, " (call ", ToString(call),
                     ") again, with another method or other arguments than the first time: the task that calls ran "
                     "again after a crash and did not do the same. Tasks that call actors must be deterministic, or "
                     "must not be retried (SetRetries(0), max_retries=0)"),
                 kNondeterminism,
                 {}};
}

Failure ActorReplay::NotKept(const Id& call, std::string_view method) const {
  return Failure{Code::kLost,
                 Cat("actor ", policy_.actor, " was asked for ", method, " (call ", ToString(call),
                     ") again by a task that ran again after a crash. It has run that call, and does not run it twice; "
                     "but its answer was too large, or too long ago, to be kept. Put large answers into the store and "
                     "return the Ref"),
                 {},
                 {}};
}

Failure ActorReplay::TooMuch(std::uint64_t calls) const {
  return Failure{Code::kActorDied,
                 Cat("actor ", policy_.actor, " cannot come back: the calls since it was made, ", calls,
                     " of them, were more than the ", Bytes(policy_.most_bytes),
                     " that are kept, and its state was never saved. Give its class fields that can be sent, or "
                     "Save() and Load() (in Python: attributes that can be pickled, or __manta_save__ and "
                     "__manta_load__); or switch replay off (SetReplay(false), replay=False) and set how often it may "
                     "restart"),
                 {},
                 {}};
}

}  // namespace manta::rules
