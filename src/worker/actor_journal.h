// ActorJournal keeps an actor's journal (shm/journal.h) as rules::ActorReplay says: Execution shows it every call
// before and after it runs; a worker that takes over an actor has it load and repeat what there is.
//
// Threads: the worker's main thread, which runs all calls of such an actor; Changes from any.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manta/internal/core.h"
#include "owner/owner.h"
#include "rules/actor_replay.h"
#include "shm/journal.h"
#include "shm/journal_copy.h"
#include "shm/lane.h"
#include "shm/spec.h"
#include "wire/messages.h"

namespace manta::worker {

struct ActorSelf;

class ActorJournal {
 public:
  static Result<std::unique_ptr<ActorJournal>> Open(base::Fd fd, const wire::ActorStart& start);

  // After the constructor. Not ok: the actor cannot be what it was.
  Failure Recover(owner::Owner& owner, ActorSelf& actor);
  [[nodiscard]] std::uint64_t replayed() const { return replay_.replayed(); }

  // ---- one call after the other ----

  using Verdict = rules::ActorReplay::Verdict;
  Verdict Arrive(const shm::SpecHeader& header, std::uint64_t* place);
  // It runs. `answered`: its answer is kept for a while. False: it is not recorded. Throws what reading an argument
  // from the store does.
  bool Begin(owner::Owner& owner, const shm::SpecHeader& header, const std::byte* spec, bool answered);
  // Refs and handles inside the value that Reply will name next. They stay while the answer is kept.
  void Contained(std::span<const shm::Contained> names, const std::vector<internal::Entry*>& entries);
  // Reply will name a value next that may have other bytes when the call is repeated.
  void NotCompared() { loose_ = true; }
  // A value (whole, also one that lies in the store), or a failure.
  void Reply(shm::ReplyKind kind, std::uint8_t flags, std::uint32_t index, std::span<const std::byte> payload,
             std::string_view failure_type = {});
  // All replies are there; after this they may be seen.
  void Commit(bool failed);
  // The daemon holds something for it (Owner::KeepBorrowed).
  void Holds() { has_kept_ = true; }
  // They were seen: time for a checkpoint?
  void Finished(owner::Owner& owner, ActorSelf& actor);

  // Of an actor that runs calls side by side, and records none: so many more have run. True: it is time to save it.
  bool Count(std::uint64_t calls);
  void Checkpoint(owner::Owner& owner, ActorSelf& actor);

  // Calls f(header, payload) for each reply as it was. Not ok: it is not there any more.
  template <typename F>
  Failure ForReplies(const shm::SpecHeader& header, std::string_view method, std::uint64_t place, F f) const {
    shm::AnswerRecord record;
    std::span<const std::byte> rest;
    if (!journal_.Look(place, &record, &rest) || record.call != header.id || record.none != 0) {
      return replay_.NotKept(header.id, method);
    }
    while (rest.size() >= sizeof(shm::ReplyHeader)) {
      shm::ReplyHeader reply;
      std::memcpy(&reply, rest.data(), sizeof reply);
      const std::uint64_t bytes = sizeof reply + shm::Padded(reply.size);
      if (bytes > rest.size()) return Failure{Code::kCorrupt, "an actor's journal makes no sense", {}, {}};
      f(reply, rest.subspan(sizeof reply, reply.size));
      rest = rest.subspan(bytes);
    }
    return {};
  }
  [[nodiscard]] const rules::ActorReplay& rules() const { return replay_; }

  // Calls send(parts, ranges) with what has changed since the last time (shm/journal_copy.h), in messages of a fair
  // size. `by_range`: large changes are only named, and nothing is recorded until send returns: who is told reads them
  // in the journal itself. Why not always: a call that runs meanwhile waits for that when it ends.
  using Send = std::function<void(std::vector<JournalPart> parts, std::vector<JournalRange> ranges)>;
  void Copy(bool by_range, const Send& send);

 private:
  explicit ActorJournal(shm::Journal journal) : journal_(std::move(journal)) {}
  void Decided(rules::ActorReplay::Next next, owner::Owner& owner, ActorSelf& actor);
  void GiveUp();
  void BuildIndex();
  void KeepAnswer();

  std::mutex writing_;  // held while what counts of journal_ changes or is read by Changes
  shm::Journal journal_;
  rules::ActorReplay replay_;
  rules::ReplayPolicy policy_;
  bool replays_ = true;      // calls and answers are kept
  bool given_up_ = false;    // answers only
  bool keeps_all_ = false;   // answers
  bool has_kept_ = false;    // the daemon holds Refs for the journal
  bool complained_ = false;  // that the state cannot be saved
  std::size_t index_most_ = 1U << 18;

  // The call that runs.
  Id call_;
  std::uint64_t call_digest_ = 0;
  bool answered_ = false;
  std::uint64_t digest_ = 0;
  bool opaque_ = false;  // the next value names processes: only its size is compared
  bool loose_ = false;   // … and of this one nothing at all
  bool named_ = false;   // the answer has Refs inside
  std::vector<std::byte> answer_;
  std::vector<internal::Handle<internal::Entry>> entries_;

  struct Held {
    std::uint64_t place = 0;
    std::vector<internal::Handle<internal::Entry>> entries;
  };
  std::deque<Held> held_;  // by answers with Refs inside
  std::vector<std::byte> state_;
  shm::JournalMarks copied_;
};

}  // namespace manta::worker
