#include "worker/actor_journal.h"

#include <cstdio>
#include <cstring>
#include <exception>

#include "base/clock.h"
#include "base/failpoint.h"
#include "worker/execution.h"

namespace manta::worker {
namespace {

constexpr std::size_t kMostDigested = 64U << 10;     // of one value
constexpr std::uint64_t kCopyBytes = 16ULL << 20;    // in one message
constexpr std::uint64_t kNamedBytes = 256ULL << 10;  // that are sent rather than named

std::uint64_t DigestOf(std::uint64_t hash, std::span<const std::byte> bytes) {
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  for (; i < bytes.size(); ++i) hash = (hash ^ static_cast<std::uint64_t>(bytes[i])) * 0x100000001b3ULL;
  return hash;
}

// The spec with what its items had in the store inside.
std::uint64_t WholeBytes(shm::SpecReader reader, std::uint64_t bytes) {
  for (Result<shm::SpecReader::Item> item = reader.Next(); item.ok(); item = reader.Next()) {
    if (item->kind != shm::ItemKind::kStored) continue;
    shm::StoredItem stored;
    std::memcpy(&stored, item->data, sizeof stored);
    bytes += shm::Padded(stored.place.size) - shm::Padded(sizeof stored);
  }
  return bytes;
}

void WriteWhole(owner::Owner& owner, shm::SpecReader reader, const std::byte* spec, std::uint64_t bytes,
                std::byte* out) {
  std::byte* const begin = out;
  const std::byte* copied = spec;
  for (Result<shm::SpecReader::Item> item = reader.Next(); item.ok(); item = reader.Next()) {
    if (item->kind != shm::ItemKind::kStored) continue;
    shm::StoredItem stored;
    std::memcpy(&stored, item->data, sizeof stored);
    KeepAlive keep;
    const internal::View view = owner.LookAtArgument(stored, &keep, true);
    if (view.size != stored.place.size) throw CorruptError("an argument is not as large as it was said to be");
    const auto before = static_cast<std::size_t>(item->data - 8 - copied);
    std::memcpy(out, copied, before);
    out += before;
    const std::uint64_t word = shm::ItemWord(shm::ItemKind::kValue, view.size);
    std::memcpy(out, &word, 8);
    std::memcpy(out + 8, view.data, view.size);
    out += 8 + shm::Padded(view.size);
    copied = item->data + shm::Padded(sizeof stored);
  }
  std::memcpy(out, copied, static_cast<std::size_t>(spec + bytes - copied));
  out += spec + bytes - copied;
  const auto whole = static_cast<std::uint32_t>(out - begin);
  std::memcpy(begin, &whole, sizeof whole);  // SpecHeader::bytes
}

}  // namespace

Result<std::unique_ptr<ActorJournal>> ActorJournal::Open(base::Fd fd, const wire::ActorStart& start) {
  Result<shm::Journal> journal = shm::Journal::Open(std::move(fd));
  if (!journal.ok()) return journal.status();
  std::unique_ptr<ActorJournal> made(new ActorJournal(std::move(*journal)));
  const wire::ActorOptions& options = start.options;
  made->replays_ = options.replay;
  made->keeps_all_ = options.detached;
  made->policy_.actor = Cat(options.class_name, " (", ToString(start.actor), ")");
  made->policy_.every_calls = options.checkpoint_calls;
  made->policy_.every_us = options.checkpoint_us;
  return made;
}

Failure ActorJournal::Recover(owner::Owner& owner, ActorSelf& actor) {
  policy_.can_save = actor.save != nullptr;
  replay_ = rules::ActorReplay(policy_, base::NowMicros());
  if (const std::uint64_t calls = journal_.given_up(); calls != 0) return replay_.TooMuch(calls - 1);
  if (journal_.has_state()) {
    std::string why;
    if (actor.load == nullptr) why = "its class has no way to load it";
    owner.BeginBorrowing();
    try {
      if (why.empty()) actor.load(&actor.self, journal_.state());
    } catch (const std::exception& error) {
      why = error.what();
    } catch (...) {
      why = "an exception";
    }
    owner.EndBorrowing();
    if (!why.empty()) {
      return Failure{Code::kActorDied,
                     Cat("actor ", policy_.actor, " cannot come back: its saved state (",
                         Bytes(journal_.state().size()), ") could not be loaded: ", why),
                     {},
                     {}};
    }
    has_kept_ = true;  // as far as we know
  }
  replay_.Restored(journal_.state().size(), journal_.call_bytes(), journal_.calls());
  if (!journal_.has_state() && journal_.calls() == 0) return {};
  BuildIndex();
  Failure failure;
  const Status read = journal_.ForCalls([&](const shm::CallRecord& was, const std::byte* spec, std::uint64_t bytes) {
    digest_ = 0;
    answer_.clear();
    entries_.clear();
    named_ = false;
    opaque_ = false;
    loose_ = false;
    answered_ = true;
    Execution execution(owner, nullptr, &actor);
    base::Failpoint("actor.repeating");
    bool failed = false;
    if (failure = execution.Repeat(spec, bytes, &failed); !failure.ok()) return false;
    call_ = execution.id();
    std::memcpy(&call_digest_, spec + offsetof(shm::SpecHeader, digest), sizeof call_digest_);
    failure = replay_.Replayed({call_, execution.label(), was.digest, was.failed != 0, digest_, failed});
    if (!failure.ok()) return false;
    // Refs inside have got another owner.
    if (named_ || !replay_.Knows(call_)) KeepAnswer();
    return true;
  });
  if (!read.ok()) return ToFailure(read);
  if (failure.ok()) Decided(replay_.Recovered(base::NowMicros()), owner, actor);
  return failure;
}

void ActorJournal::BuildIndex() {
  replay_.Forget();
  journal_.ForAnswers([this](const shm::AnswerRecord& record, std::uint64_t place) {
    replay_.Remember(record.call, record.digest, place);
  });
  replay_.Indexed();
  index_most_ = std::max<std::size_t>(1U << 18, 2 * replay_.remembered());
}

ActorJournal::Verdict ActorJournal::Arrive(const shm::SpecHeader& header, std::uint64_t* place) {
  using shm::SpecHeader;
  if ((header.flags & SpecHeader::kRerun) == 0 && !replay_.indexed()) [[likely]]
    return Verdict::kRun;
  if (!replays_) return Verdict::kRun;
  rules::ReplayCall call;
  call.id = header.id;
  call.digest = header.digest;
  call.comparable = (header.flags & SpecHeader::kLoose) == 0;
  call.read_only = (header.flags & SpecHeader::kReadOnly) != 0;
  call.rerun = (header.flags & SpecHeader::kRerun) != 0;
  call.fresh = (header.flags & SpecHeader::kFresh) != 0;
  call.begun = (header.flags & SpecHeader::kBegun) != 0;
  call.once = (header.flags & SpecHeader::kOnce) != 0;
  if (replay_.NeedsIndex(call)) BuildIndex();
  return replay_.Arrive(call, place);
}

bool ActorJournal::Begin(owner::Owner& owner, const shm::SpecHeader& header, const std::byte* spec, bool answered) {
  if (!replays_ || (header.flags & shm::SpecHeader::kReadOnly) != 0) return false;
  call_ = header.id;
  call_digest_ = header.digest;
  answered_ = answered || keeps_all_;
  digest_ = 0;
  named_ = false;
  opaque_ = false;
  loose_ = false;
  answer_.clear();
  if (given_up_) return answered_;
  const std::uint64_t bytes = header.bytes;
  std::byte* room = nullptr;
  if ((header.flags & shm::SpecHeader::kLoose) == 0) [[likely]] {
    room = journal_.Begin(bytes);
    if (room != nullptr) std::memcpy(room, spec, bytes);
  } else {
    Result<shm::SpecReader> reader = shm::SpecReader::Open(spec, bytes);
    if (!reader.ok()) throw CorruptError(reader.status().message());
    room = journal_.Begin(WholeBytes(*reader, bytes));
    if (room != nullptr) WriteWhole(owner, *reader, spec, bytes, room);
  }
  if (room == nullptr) GiveUp();
  return room != nullptr || answered_;
}

void ActorJournal::Contained(std::span<const shm::Contained> names, const std::vector<internal::Entry*>& entries) {
  opaque_ = true;
  named_ = true;
  for (const shm::Contained& name : names) digest_ = DigestOf(digest_, std::as_bytes(std::span(&name.id, 1)));
  if (!answered_) return;
  for (internal::Entry* entry : entries) {
    internal::Retain(entry);
    entries_.push_back(internal::Handle<internal::Entry>::Adopt(entry));
  }
}

void ActorJournal::Reply(shm::ReplyKind kind, std::uint8_t flags, std::uint32_t index,
                         std::span<const std::byte> payload, std::string_view failure_type) {
  if (kind == shm::ReplyKind::kFailure) {
    digest_ = DigestOf(digest_ ^ 1, std::as_bytes(std::span(failure_type)));
  } else if (kind == shm::ReplyKind::kValue) {
    const std::size_t compared = std::exchange(opaque_, false) ? 0 : std::min(payload.size(), kMostDigested);
    if (!std::exchange(loose_, false)) digest_ = DigestOf(digest_ ^ payload.size(), payload.first(compared));
  }
  if (!answered_ || answer_.size() > shm::kMostKept) return;
  shm::ReplyHeader header;
  header.kind = kind;
  header.flags = flags;
  header.index = index;
  header.size = static_cast<std::uint32_t>(payload.size());
  const std::size_t at = answer_.size();
  if (payload.size() > shm::kMostKept) {
    answer_.resize(shm::kMostKept + 1);  // too large, as KeepAnswer will see
    return;
  }
  answer_.resize(at + sizeof header + shm::Padded(payload.size()));
  std::memcpy(answer_.data() + at, &header, sizeof header);
  if (!payload.empty()) std::memcpy(answer_.data() + at + sizeof header, payload.data(), payload.size());
}

void ActorJournal::Commit(bool failed) {
  if (!given_up_) {
    const std::lock_guard lock(writing_);
    journal_.Commit(digest_, failed);
  }
  base::Failpoint("actor.recorded");
  if (answered_) KeepAnswer();
}

void ActorJournal::KeepAnswer() {
  std::uint64_t place = 0;
  {
    const std::lock_guard lock(writing_);
    place = journal_.Keep(call_, call_digest_, answer_);
  }
  if (!entries_.empty()) held_.push_back({place, std::move(entries_)});
  entries_.clear();
  while (!held_.empty() && held_.front().place < journal_.oldest_answer()) held_.pop_front();
  if (!replay_.indexed()) return;
  replay_.Remember(call_, call_digest_, place);
  if (replay_.remembered() > index_most_) BuildIndex();
}

void ActorJournal::Finished(owner::Owner& owner, ActorSelf& actor) {
  if (given_up_) return;
  const rules::ActorReplay::Next next = replay_.Ran(journal_.open_bytes(), replay_.timed() ? base::NowMicros() : 0);
  if (next != rules::ActorReplay::Next::kNothing) [[unlikely]]
    Decided(next, owner, actor);
}

bool ActorJournal::Count(std::uint64_t calls) {
  const std::int64_t now = calls > 0 && replay_.timed() ? base::NowMicros() : 0;
  bool due = false;
  for (std::uint64_t i = 0; i < calls; ++i) due = replay_.Ran(0, now) == rules::ActorReplay::Next::kCheckpoint;
  return due;
}

void ActorJournal::Decided(rules::ActorReplay::Next next, owner::Owner& owner, ActorSelf& actor) {
  if (next == rules::ActorReplay::Next::kCheckpoint) Checkpoint(owner, actor);
  if (next == rules::ActorReplay::Next::kGiveUp) GiveUp();
}

void ActorJournal::Copy(bool by_range, const Send& send) {
  std::unique_lock lock(writing_);
  std::vector<JournalRange> ranges = shm::RangesOf(journal_.data(), &copied_);
  if (ranges.empty()) return;
  if (by_range && shm::BytesOf(ranges) > kNamedBytes) return send({}, std::move(ranges));
  std::vector<JournalPart> parts = shm::Read(journal_.data(), ranges);
  lock.unlock();
  if (shm::BytesOf(ranges) <= kCopyBytes) return send(std::move(parts), {});
  for (std::vector<JournalPart>& group : shm::Split(parts, kCopyBytes)) send(std::move(group), {});
}

void ActorJournal::GiveUp() {
  const std::lock_guard lock(writing_);
  journal_.GiveUp();
  given_up_ = true;
}

void ActorJournal::Checkpoint(owner::Owner& owner, ActorSelf& actor) {
  internal::RefScope scope;
  std::string why;
  try {
    state_.clear();
    actor.save(actor.self, &state_);
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
    why = "an exception";
  }
  // A value that this process owns ends with it. Repeating the calls makes it again.
  if (why.empty() && owner.OwnsAny(scope.entries)) why = "it has Refs to values that the actor itself made";
  if (why.empty()) {
    const std::lock_guard lock(writing_);
    if (!journal_.Checkpoint(state_)) why = Cat("it is too large: ", Bytes(state_.size()));
  }
  if (!why.empty()) {
    if (!std::exchange(complained_, true)) {
      std::fprintf(stderr, "manta: the state of actor %s cannot be saved: %s\n", policy_.actor.c_str(), why.c_str());
    }
    return replay_.CannotSave();
  }
  replay_.Checkpointed(state_.size(), base::NowMicros());
  if (state_.size() > (1U << 20)) state_ = {};
  // Only now: until then the former checkpoint needed what it had.
  if (has_kept_ || !scope.entries.empty() || !scope.actors.empty()) {
    owner.KeepForActor(actor.id, scope.entries, scope.actors);
    has_kept_ = true;
  }
}

}  // namespace manta::worker
