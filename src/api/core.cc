// The seam of include/manta/internal/core.h: turns the templates' calls into the owner's, and failed
// statuses into exceptions.
#include "manta/internal/core.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/clock.h"
#include "base/per_thread.h"
#include "manta/internal/embed.h"
#include "owner/named.h"
#include "owner/owner.h"
#include "rules/actor_replay.h"

namespace manta::internal {

[[noreturn]] void Throw(const Failure& failure);

namespace {

using owner::EntryTable;
using owner::Owner;

thread_local RefScope* t_scope = nullptr;

void Check(const Status& status) {
  if (!status.ok()) Throw(ToFailure(status));
}

// The owner, which stays as long as this does.
class Here {
 public:
  Here() {
    if (visit_.owner() == nullptr) throw InvalidError("Manta is not initialised: call manta::Init() first");
  }
  // For `refs` that are not ready yet: without an owner they never will be.
  struct ToWait {};
  explicit Here(ToWait) {
    if (visit_.owner() == nullptr) throw UnavailableError(owner::kGone);
  }
  Owner* operator->() const { return visit_.owner(); }

 private:
  owner::Visit visit_;
};

// A handle inside a value: what its calls need to know.
struct ActorName {
  Id id;
  NodeNumber home = 0;
  std::int16_t retries = 0;
  std::uint16_t ways = 0;  // 1: its calls are ordered, 2: they are replayed
};
static_assert(sizeof(ActorName) == kRefBytes);

std::int64_t DeadlineOf(std::int64_t timeout_us) { return timeout_us < 0 ? -1 : base::NowMicros() + timeout_us; }

void Append(std::vector<std::byte>& to, const void* data, std::size_t size) {
  const std::size_t at = to.size();
  to.resize(at + size);
  std::memcpy(to.data() + at, data, size);
}

}  // namespace

// Also for the rest of this room.
void Throw(const Failure& failure) {
  switch (failure.code) {
    case Code::kTaskFailed:
      throw TaskError(failure.message, failure.type, failure.cause);
    case Code::kWorkerCrashed:
      if (failure.type == rules::kNotBegunAgain) throw ActorCrashedError(failure.message);
      throw WorkerCrashedError(failure.message);
    case Code::kActorDied:
      throw ActorDiedError(failure.message);
    case Code::kLost:
      if (failure.type == kNondeterminism) throw NondeterminismError(failure.message);
      throw LostError(failure.message);
    case Code::kTimedOut:
      throw TimeoutError(failure.message);
    case Code::kCancelled:
      throw CancelledError(failure.message);
    case Code::kOutOfMemory:
      throw OutOfMemoryError(failure.message);
    case Code::kInfeasible:
      throw InfeasibleError(failure.message);
    case Code::kInvalid:
      throw InvalidError(failure.message);
    case Code::kNotFound:
      throw NotFoundError(failure.message);
    case Code::kUnavailable:
      throw UnavailableError(failure.message);
    case Code::kIo:
      throw IoError(failure.message);
    default:
      throw CorruptError(failure.message);
  }
}

// ---- counts ----

void Retain(Entry* entry) noexcept { entry->refs.fetch_add(1, std::memory_order_relaxed); }

void Release(Entry* entry) noexcept {
  const std::uint32_t generation = entry->generation;  // from then on it may be anybody's
  if (entry->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  EntryTable& table = EntryTable::Get();
  if (entry->plain()) return table.FreeSmall(entry);
  const std::lock_guard lock(table.mutex);
  Owner* owner = Owner::Current();
  if (owner != nullptr && entry->session == owner->session()) {
    owner->Dispose(entry, generation);
  } else {
    table.DisposeForeign(entry);
  }
}

void Retain(ActorEntry* actor) noexcept { actor->refs.fetch_add(1, std::memory_order_relaxed); }

void Release(ActorEntry* actor) noexcept {
  // The last count goes only under the lock: until then another thread may find the actor by its id.
  // So does the last strong one: the weak ones do not keep the actor alive.
  const std::uint32_t weak = actor->weak.load(std::memory_order_relaxed);
  std::uint32_t now = actor->refs.load(std::memory_order_relaxed);
  while (now > 1 + weak) {
    if (actor->refs.compare_exchange_weak(now, now - 1, std::memory_order_release)) return;
  }
  const std::lock_guard lock(EntryTable::Get().mutex);
  const bool last = actor->refs.fetch_sub(1, std::memory_order_acq_rel) == 1;
  Owner* owner = Owner::Current();
  const bool foreign = owner == nullptr || actor->session != owner->session();
  if (last && foreign) {
    delete actor;
  } else if (last) {
    owner->Dispose(actor);
  } else if (!foreign) {
    owner->DropIfWeak(actor);
  }
}

// ---- values ----

RefScope::RefScope() : outer_(t_scope) { t_scope = this; }

RefScope::~RefScope() {
  t_scope = outer_;
  for (Entry* entry : entries) Release(entry);
  for (ActorEntry* actor : actors) Release(actor);
}

void EncodeRef(Entry* entry, std::byte* out) {
  std::memset(out, 0, kRefBytes);
  if (entry == nullptr) return;
  const Here here;
  if (entry->session != here->session()) throw InvalidError("a Ref of a cluster that was shut down cannot be sent");
  const ProcessId home = entry->origin == Origin::kBorrowed ? entry->owner : here->self();
  std::memcpy(out, &entry->id, sizeof(Id));
  std::memcpy(out + 16, &home, sizeof home);
  if (t_scope == nullptr) return;
  Retain(entry);
  t_scope->entries.push_back(entry);
}

Entry* DecodeRef(const std::byte* in) {
  Id id;
  ProcessId home = kNoProcess;
  std::memcpy(&id, in, sizeof id);
  std::memcpy(&home, in + 16, sizeof home);
  return id.empty() ? nullptr : Here()->Adopt(id, home, false);
}

void DecodeRefs(const std::byte* in, std::size_t stride, std::size_t count, Entry** out) {
  const Here here;
  std::array<shm::Contained, Owner::kMostAdopted> names;
  for (std::size_t done = 0; done < count;) {
    const std::size_t some = std::min(count - done, names.size());
    for (std::size_t i = 0; i < some; ++i, in += stride) {
      std::memcpy(&names[i].id, in, sizeof(Id));
      std::memcpy(&names[i].owner, in + 16, sizeof(ProcessId));
    }
    here->AdoptAll(std::span(names).first(some), out + done);
    done += some;
  }
}

void EncodeActor(ActorEntry* actor, std::byte* out) {
  std::memset(out, 0, kRefBytes);
  if (actor == nullptr) return;
  if (actor->session != Here()->session())
    throw InvalidError("a handle of a cluster that was shut down cannot be sent");
  ActorName name;
  {
    const std::lock_guard lock(EntryTable::Get().mutex);  // a thread that finds the actor by name writes them
    name = {actor->id, actor->home,
            static_cast<std::int16_t>(std::clamp<std::int64_t>(actor->options.max_call_retries, -1, 30000)),
            static_cast<std::uint16_t>((actor->options.ordered ? 1 : 0) | (actor->options.replay ? 2 : 0))};
  }
  std::memcpy(out, &name, sizeof name);
  if (t_scope == nullptr) return;
  Retain(actor);
  t_scope->actors.push_back(actor);
}

ActorEntry* DecodeActor(const std::byte* in) {
  ActorName name;
  std::memcpy(&name, in, sizeof name);
  if (name.id.empty()) return nullptr;
  wire::ActorOptions options;
  options.ordered = (name.ways & 1) != 0;
  options.replay = (name.ways & 2) != 0;
  options.max_call_retries = name.retries;
  return Here()->AdoptActor(name.id, name.home, &options, false);
}

Entry* PutBegin(std::size_t size, std::byte** out) {
  Result<Entry*> entry = Here()->PutBegin(size, out);
  Check(entry.status());
  return *entry;
}

void PutEnd(Entry* entry, RefScope& scope) {
  const owner::Visit visit;
  if (visit.owner() == nullptr || visit.owner()->session() != entry->session) {
    PutAbort(entry);
    throw UnavailableError("Put: the cluster was shut down meanwhile");
  }
  visit.owner()->PutEnd(entry, std::move(scope.entries), std::move(scope.actors));
  scope.entries.clear();
  scope.actors.clear();
}

void PutAbort(Entry* entry) noexcept { Owner::PutAbort(entry); }

void MakeDurable(Entry* entry) {
  const owner::Visit visit;
  if (visit.owner() == nullptr || visit.owner()->session() != entry->session) {
    throw UnavailableError("Put: the cluster was shut down meanwhile");
  }
  Check(visit.owner()->MakeDurable(entry));
}

View Await(Entry* entry, std::int64_t timeout_us, KeepAlive* keep) {
  std::int64_t deadline_us = -2;  // not known yet
  for (;;) {
    if (!entry->done()) {
      if (deadline_us == -2) deadline_us = DeadlineOf(timeout_us);
      const Here here(Here::ToWait{});
      Entry* const mine[] = {entry};
      if (entry->origin == Origin::kBorrowed) here->Subscribe(mine);
      if (!here->WaitUntil([entry] { return entry->done(); }, deadline_us, mine)) {
        throw TimeoutError(Cat("Get: the value ", ToString(entry->id), " was not there after ", timeout_us / 1000,
                               " ms; its task goes on: Get it again, or Cancel it"));
      }
    }
    switch (entry->where) {
      case Where::kInline:
        return {entry->small, entry->size};
      case Where::kHeap:
        return {entry->heap, entry->size};
      case Where::kFailure:
        Throw(*entry->failure);
      default:
        break;
    }
    bool again = false;  // it was lost, and is being made again
    Result<View> view = Here(Here::ToWait{})->Look(entry, keep, &again);
    if (view.ok()) return *view;
    if (!again) Check(view.status());
  }
}

void AwaitAll(std::span<Entry* const> entries, std::int64_t timeout_us, bool comes_again) {
  std::size_t next = 0;
  const auto done = [&] {
    for (; next < entries.size(); ++next) {
      const State state = entries[next]->state.load(std::memory_order_acquire);
      if (state == State::kPending) return false;
      if (state == State::kFailed) return true;  // the first failure in order ends the wait
    }
    return true;
  };
  const std::int64_t deadline_us = DeadlineOf(timeout_us);
  for (;;) {
    // What is known to be lost is made again all at once, and not one after the other by those who then Get it.
    {
      const owner::Visit visit;
      if (visit.owner() != nullptr && visit.owner()->Rebuild(entries)) next = 0;
    }
    if (done()) return;
    const Here here(Here::ToWait{});
    here->Subscribe(entries);
    if (here->WaitUntil(done, deadline_us, entries, comes_again)) continue;
    std::size_t ready = 0;
    for (const Entry* entry : entries) ready += entry->done() ? 1 : 0;
    throw TimeoutError(Cat("Get: ", ready, " of ", entries.size(), " values were there after ", timeout_us / 1000,
                           " ms; their tasks go on: Get them again, or Cancel them"));
  }
}

std::size_t WaitSome(std::span<Entry* const> entries, std::size_t count, std::int64_t timeout_us,
                     std::vector<bool>* ready, bool comes_again) {
  if (count > entries.size()) {
    throw InvalidError(Cat("Wait: asked for ", count, " of ", entries.size(), " values; the count cannot be larger"));
  }
  std::vector<Entry*> open(entries.begin(), entries.end());
  const auto done = [&] {
    std::erase_if(open, [](Entry* entry) { return entry->done(); });
    return entries.size() - open.size() >= count;
  };
  if (!done()) {
    const Here here(Here::ToWait{});
    here->Subscribe(open);
    const std::vector<Entry*> mine = open;
    here->WaitUntil(done, DeadlineOf(timeout_us), mine, comes_again);
  }
  ready->assign(entries.size(), false);
  std::size_t number = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i]->done()) continue;
    (*ready)[i] = true;
    ++number;
  }
  return number;
}

void Cancel(Entry* entry, bool force) { Here()->Cancel(entry, force); }
std::string IdText(const Entry* entry) { return ToHex(entry->id); }
void ThrowEmptyRef() { throw InvalidError("this Ref or handle is empty: it was default-constructed or moved from"); }

// ---- calls ----

Arguments& Arguments::ForThisThread() {
  std::vector<std::unique_ptr<Arguments>>& pool = base::PerThread<std::vector<std::unique_ptr<Arguments>>>();
  for (const std::unique_ptr<Arguments>& arguments : pool) {
    if (!arguments->in_use) {
      arguments->in_use = true;
      return *arguments;
    }
  }
  pool.push_back(std::make_unique<Arguments>());
  pool.back()->in_use = true;
  return *pool.back();
}

Arguments::~Arguments() = default;

std::byte* Arguments::AddValue(std::size_t size) {
  const std::uint64_t word = shm::ItemWord(shm::ItemKind::kValue, size);
  const std::size_t at = bytes.size();
  bytes.resize(at + 8 + shm::Padded(size));
  std::memcpy(bytes.data() + at, &word, 8);
  return bytes.data() + at + 8;
}

void Arguments::AddRef(Entry* entry) {
  if (entry->state.load(std::memory_order_acquire) == State::kReady && !entry->contains &&
      (entry->where == Where::kInline || entry->where == Where::kHeap)) {
    std::memcpy(AddValue(entry->size), entry->where == Where::kInline ? entry->small : entry->heap, entry->size);
    return;
  }
  Retain(entry);
  holes.push_back({bytes.size(), entry});
  const std::uint64_t word = 0;
  Append(bytes, &word, 8);
}

void Arguments::BeginList(std::size_t count) {
  const std::uint64_t word = shm::ItemWord(shm::ItemKind::kList, count);
  Append(bytes, &word, 8);
}

void Arguments::Done() {
  bytes.clear();
  for (const Hole& hole : holes) Release(hole.entry);
  holes.clear();
  in_use = false;
}

const Plan* Intern(const TaskOptions& options) {
  Status status;
  const Plan* plan = Here()->Intern(options, &status);
  Check(status);
  return plan;
}

void Submit(const Site& site, Arguments& arguments, RefScope& scope, const Plan* plan, std::uint32_t returns,
            Entry** out) {
  Check(Here()->Submit(site, arguments, scope, plan, returns, out));
}

ActorEntry* CreateActor(const Site& site, Arguments& arguments, RefScope& scope, const ActorSettings& settings,
                        const std::string& class_name) {
  Result<ActorEntry*> actor = Here()->CreateActor(site, arguments, scope, settings, class_name);
  Check(actor.status());
  return *actor;
}

void CallActor(ActorEntry* actor, const Site& site, Arguments& arguments, RefScope& scope, const Plan* plan,
               std::uint32_t returns, Entry** out) {
  Check(Here()->CallActor(actor, site, arguments, scope, plan, returns, out));
}

ActorEntry* FindActor(const std::string& name, const std::string& space) {
  Result<ActorEntry*> actor = Here()->FindActor(name, space);
  Check(actor.status());
  return *actor;
}

void KillActor(ActorEntry* actor, bool restart) { Check(Here()->KillActor(actor, restart)); }
std::string IdText(const ActorEntry* actor) { return ToHex(actor->id); }

void RegisterNamed(const char* name, Trampoline trampoline, std::uint64_t target) {
  owner::NamedCode::Get().Add(name, trampoline, target);
}

}  // namespace manta::internal
