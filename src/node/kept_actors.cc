#include "node/kept_actors.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/failpoint.h"
#include "base/log.h"
#include "shm/journal.h"
#include "shm/journal_copy.h"

namespace manta::node {
namespace {

constexpr std::int64_t kAgainUs = 50'000;
constexpr std::int64_t kFreeUs = 5'000;
constexpr std::int64_t kNobodyUs = 1'000'000;      // before one that no node can have is offered again
constexpr std::uint64_t kPartBytes = 16ULL << 20;  // of one message
constexpr std::uint64_t kWholeAfter = 4ULL << 20;  // and four times what it was then

std::uint64_t BytesOf(const std::vector<JournalPart>& parts) {
  std::uint64_t bytes = 0;
  for (const JournalPart& part : parts) bytes += part.bytes.size();
  return bytes;
}

// For messages of a fair size. What says how much there is comes last, with the answers that it names: as long as that
// is missing, the rest counts for nothing.
std::vector<std::vector<JournalPart>> Split(const std::vector<JournalPart>& parts) {
  std::vector<JournalPart> calls;
  std::vector<JournalPart> rest;
  for (const JournalPart& part : parts) {
    (part.offset >= shm::kJournalHeader + shm::kAnswersBytes ? calls : rest).push_back(part);
  }
  std::vector<std::vector<JournalPart>> groups = shm::Split(calls, kPartBytes);
  if (groups.empty()) groups.emplace_back();
  if (groups.size() > 1) groups.emplace_back();
  groups.back().insert(groups.back().end(), rest.begin(), rest.end());
  return groups;
}

}  // namespace

// ---- at home ----

void KeptActors::Keep(const wire::FarCreateActor& made, const Id& job, OnDone done) {
  wire::KeepActor message;
  message.made = made;
  const auto file = std::make_shared<std::string>();
  programs_.Describe(job, true, [file](const Result<wire::JobFacts>& same) {
    if (same.ok()) *file = same.value().file;
  });
  programs_.Describe(
      job, false,
      [this, alive = alive_, file, message, done = std::move(done)](const Result<wire::JobFacts>& described) mutable {
        if (!*alive) return;
        if (!described.ok()) return done(described.status());
        message.made.job.program_sha256 = described.value().program_sha256;
        message.made.job.program_bytes = described.value().program_bytes;
        message.made.job.file.clear();
        message.file = *file;
        const Id actor = message.made.order.actor;
        cluster_.Ask<wire::Done>(message, [this, alive, actor, done](const Result<wire::Done>& kept) {
          if (!*alive) return;
          if (kept.ok()) {
            kept_[actor];
          } else {
            Forget(actor);  // it may be kept, and the answer lost
          }
          done(kept.status());
        });
      });
}

void KeptActors::Forget(const Id& actor) {
  auto gone = kept_.extract(actor);
  if (!cluster_.Tell(wire::ForgetActor{actor})) forgotten_.push_back(actor);
  if (gone.empty()) return;
  for (const OnDone& done : gone.mapped().waiting) done(Status(Code::kNotFound, "the actor has ended"));
}

void KeptActors::HeadIsBack() {
  for (const Id& actor : std::exchange(forgotten_, {})) Forget(actor);
  for (const auto& [actor, kept] : kept_) {
    if (!kept.leaving) cluster_.Tell(wire::ActorAdopted{actor, {}});
  }
}

void KeptActors::Journal(const Id& actor, std::uint32_t epoch, const std::vector<JournalPart>& parts, OnDone done) {
  const auto it = kept_.find(actor);
  if (it == kept_.end()) {
    if (done) done(Status(Code::kNotFound, "this actor is another node's now"));
    return;
  }
  Kept& kept = it->second;
  kept.epoch = epoch;
  if (parts.empty() && !done) {
    cluster_.Tell(wire::KeepJournal{actor, epoch, 0, 0, {}});
    return;
  }
  kept.parts.insert(kept.parts.end(), parts.begin(), parts.end());
  kept.waiting.push_back(std::move(done));
  if (!kept.under_way) SendParts(actor);
}

void KeptActors::SendParts(const Id& actor) {
  const auto it = kept_.find(actor);
  if (it == kept_.end() || it->second.waiting.empty()) return;
  Kept& kept = it->second;
  kept.under_way = true;
  const std::vector<JournalPart> parts = std::exchange(kept.parts, {});
  auto waiting = std::make_shared<std::vector<OnDone>>(std::exchange(kept.waiting, {}));
  if (!kept.copy.valid()) {
    if (Result<base::Fd> made = shm::Journal::Make(); made.ok()) kept.copy = std::move(*made);
  }
  if (kept.copy.valid() && !shm::Write(kept.copy.get(), parts).ok()) kept.copy = {};
  kept.bytes += BytesOf(parts);
  const auto done = [this, alive = alive_, actor, waiting](const Status& status) {
    base::Failpoint("node.kept");
    for (const OnDone& one : *waiting) one(status);
    if (!*alive) return;
    const auto still = kept_.find(actor);
    if (still == kept_.end()) return;
    still->second.under_way = false;
    const bool much = still->second.bytes > kWholeAfter + 4 * still->second.whole;
    if (status.ok() && much && still->second.copy.valid()) return SendWhole(actor);
    SendParts(actor);
  };
  SendGroups(actor, std::make_shared<const Groups>(Split(parts)), 0, 0, done);
}

void KeptActors::SendGroups(const Id& actor, std::shared_ptr<const Groups> groups, std::size_t at, std::uint64_t since,
                            OnDone done) {
  const auto it = kept_.find(actor);
  if (it == kept_.end()) return done(Status(Code::kNotFound, "the actor has ended"));
  const bool last = at + 1 == groups->size();
  wire::KeepJournal message{actor, it->second.epoch, it->second.next++, last ? since : 0, (*groups)[at]};
  SendMessage(actor, std::move(message),
              [this, actor, groups = std::move(groups), at, since, last, done = std::move(done)](const Status& kept) {
                if (kept.ok() && !last) return SendGroups(actor, groups, at + 1, since, done);
                done(kept);
              });
}

void KeptActors::SendMessage(const Id& actor, wire::KeepJournal message, OnDone done) {
  const auto sent = std::make_shared<const wire::KeepJournal>(std::move(message));
  cluster_.Ask<wire::Done>(
      *sent, [this, alive = alive_, actor, sent, done = std::move(done)](const Result<wire::Done>& answer) {
        if (!*alive) return;
        if (answer.ok() || answer.status().code() == Code::kNotFound) return done(answer.status());
        // The head is down, or its disk is full: as long as that lasts.
        loop_.After(kAgainUs, [this, alive, actor, sent, done] {
          if (!*alive) return;
          if (!kept_.contains(actor)) return done(Status(Code::kNotFound, "the actor has ended"));
          SendMessage(actor, *sent, done);
        });
      });
}

void KeptActors::SendWhole(const Id& actor) {
  Kept& kept = kept_[actor];
  const Result<std::vector<JournalPart>> all = shm::AllOf(kept.copy.get());
  kept.bytes = 0;
  if (!all.ok()) return SendParts(actor);
  kept.whole = BytesOf(all.value());
  kept.under_way = true;
  SendGroups(actor, std::make_shared<const Groups>(Split(all.value())), 0, kept.next,
             [this, alive = alive_, actor](const Status&) {
               if (!*alive) return;
               const auto still = kept_.find(actor);
               if (still == kept_.end()) return;
               still->second.under_way = false;
               SendParts(actor);
             });
}

void KeptActors::Leave(const Id& actor, const OnHome& done) {
  if (const auto it = kept_.find(actor); it != kept_.end()) it->second.leaving = true;
  AskToLeave(actor, done);
}

void KeptActors::AskToLeave(const Id& actor, const OnHome& done) {
  const auto it = kept_.find(actor);
  if (it == kept_.end()) return done(Status(Code::kNotFound, "the actor has ended"));
  if (!it->second.leaving) return done(cluster_.self().number);  // it has come back
  const auto again = [this, alive = alive_, actor, done](std::int64_t after_us) {
    loop_.After(after_us, [this, alive, actor, done] {
      if (*alive) AskToLeave(actor, done);
    });
  };
  // What it did last may still be on its way, and must be there when the next home asks for all of it.
  if (it->second.under_way) return again(kFreeUs);
  base::Failpoint("node.leaving");
  cluster_.Ask<wire::ActorHome>(wire::LeaveHome{actor},
                                [this, alive = alive_, actor, done, again](const Result<wire::ActorHome>& answer) {
                                  if (!*alive) return;
                                  const Code code = answer.status().code();
                                  if (code == Code::kUnavailable) return again(kAgainUs);
                                  if (code == Code::kActorDied) return again(kNobodyUs);
                                  if (!answer.ok()) return done(answer.status());
                                  base::Failpoint("node.left");
                                  if (answer.value().home != cluster_.self().number) kept_.erase(actor);
                                  done(answer.value().home);
                                });
}

// ---- the next home ----

bool KeptActors::OnHeadFrame(const wire::Frame& frame) {
  Status wrong;
  if (frame.kind == wire::KeptJournal::kKind) {
    const Result<wire::KeptJournal> journal = frame.As<wire::KeptJournal>();
    wrong = journal.status();
    if (journal.ok()) Receive(journal.value());
  } else if (frame.kind == wire::AdoptActor::kKind) {
    const Result<wire::AdoptActor> order = frame.As<wire::AdoptActor>();
    wrong = order.status();
    if (order.ok()) Adopt(order.value());
  } else {
    return false;
  }
  if (wrong.ok()) return true;
  base::LogWarning("%s: what the head says of a detached actor makes no sense: %s", cluster_.self().name.c_str(),
                   wrong.message().c_str());
  return false;  // which ends the connection
}

void KeptActors::Receive(const wire::KeptJournal& journal) {
  Kept& coming = coming_[journal.actor];
  if (!coming.copy.valid()) {
    if (Result<base::Fd> made = shm::Journal::Make(); made.ok()) coming.copy = std::move(*made);
  }
  coming.next = std::max(coming.next, journal.number + 1);
  coming.bytes += BytesOf(journal.parts);
  base::Failpoint("node.receiving");
  Status written = coming.copy.valid() ? shm::Write(coming.copy.get(), journal.parts)
                                       : Status(Code::kOutOfMemory, "there is no memory for a copy of it");
  if (written.ok() || !coming.broken.ok()) return;
  base::LogWarning("%s: part %llu of the journal of actor %s cannot be taken: %s", cluster_.self().name.c_str(),
                   static_cast<unsigned long long>(journal.number), ToString(journal.actor).c_str(),
                   written.message().c_str());
  coming.broken = std::move(written);
}

void KeptActors::Tell(const Id& actor, const Status& adopted) {
  cluster_.Tell(wire::ActorAdopted{actor, adopted.ok() ? Failure() : ToFailure(adopted)});
}

void KeptActors::Adopt(const wire::AdoptActor& order) {
  const Id& actor = order.made.order.actor;
  if (const auto it = kept_.find(actor); it != kept_.end()) {
    if (!it->second.leaving) return Tell(actor, {});
    kept_.erase(it);
    on_return_(actor);
  }
  if (!free_(actor)) {
    loop_.After(kFreeUs, [this, alive = alive_, order] {
      if (*alive) Adopt(order);
    });
    return;
  }
  // By its path on the machine where it was made, from the home that leaves it, or from who made it.
  wire::JobFacts same = order.made.job;
  same.file = order.file;
  const auto from_maker = [this, alive = alive_, order] {
    programs_.Get(order.made.job, [this, alive, order](Result<base::Fd> executable) {
      if (*alive) Take(order, order.made.job, std::move(executable));
    });
  };
  const auto fetch = [this, alive = alive_, order, from_maker] {
    if (order.left == 0) return from_maker();
    wire::JobFacts there = order.made.job;
    there.home = order.left;
    programs_.Get(there, [this, alive, order, from_maker](Result<base::Fd> executable) {
      if (!*alive) return;
      if (!executable.ok()) return from_maker();
      Take(order, order.made.job, std::move(executable));
    });
  };
  if (same.file.empty()) return fetch();
  programs_.Get(same, [this, order, same, fetch](Result<base::Fd> executable) {
    if (!executable.ok()) return fetch();
    Take(order, same, std::move(executable));
  });
}

void KeptActors::Take(const wire::AdoptActor& order, const wire::JobFacts& job, Result<base::Fd> executable) {
  const Id& actor = order.made.order.actor;
  auto node = coming_.extract(actor);
  Kept kept = node.empty() ? Kept() : std::move(node.mapped());
  if (!executable.ok()) {
    return Tell(actor,
                Status(Code::kActorDied, Cat("actor ", order.made.order.options.class_name, " (", ToString(actor),
                                             ") cannot come back on node ", cluster_.self().name,
                                             ": its program is not to be had: ", executable.status().message())));
  }
  if (!kept.copy.valid() && kept.broken.ok()) {
    if (Result<base::Fd> made = shm::Journal::Make(); made.ok()) kept.copy = std::move(*made);
  }
  // One that its process writes, and one that is compared with nothing: what the head has.
  Result<base::Fd> journal = shm::Journal::Make();
  if (kept.broken.ok() && !kept.copy.valid())
    kept.broken = Status(Code::kOutOfMemory, "there is no memory for a journal");
  const Result<std::vector<JournalPart>> all =
      kept.broken.ok() ? shm::AllOf(kept.copy.get()) : Result<std::vector<JournalPart>>(kept.broken);
  Status status = !journal.ok() ? journal.status() : all.status();
  if (status.ok()) status = shm::Write(journal->get(), all.value());
  if (!status.ok()) return Tell(actor, status);
  kept.epoch = order.epoch;
  kept.bytes = 0;
  kept.whole = BytesOf(all.value());
  kept_[actor] = std::move(kept);
  status = on_adopt_(order, job, std::move(*executable), std::move(*journal));
  base::Failpoint("node.adopting");
  if (!status.ok()) kept_.erase(actor);
  Tell(actor, status);
}

}  // namespace manta::node
