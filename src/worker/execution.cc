#include "worker/execution.h"

#include <cxxabi.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <unordered_map>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/program.h"
#include "owner/named.h"
#include "worker/output.h"
#include "worker/stack.h"

namespace manta::worker {
namespace {

thread_local Execution* t_current = nullptr;

// After a call that was shorter than this, so many are not timed.
constexpr std::int64_t kShortCallNs = 50'000;
constexpr std::uint32_t kUntimed = 15;

std::string Demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string out = status == 0 ? text : name;
  std::free(text);
  return out;
}

// Of this process, as far as there are any.
std::string MemoryLimits() {
  const struct {
    __rlimit_resource_t what;
    const char* name;
  } limits[] = {{RLIMIT_AS, "addresses (ulimit -v)"}, {RLIMIT_DATA, "data (ulimit -d)"}};
  std::string text;
  for (const auto& [what, name] : limits) {
    rlimit limit{};
    if (getrlimit(what, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    text += Cat(text.empty() ? " (allowed: " : ", ", Bytes(limit.rlim_cur), " of ", name);
  }
  return text.empty() ? text : text + ")";
}

// Labels live for ever: output keeps pointers to them.
const std::string* Interned(std::string text) {
  static std::mutex mutex;
  static auto* labels = new std::unordered_map<std::string, std::unique_ptr<std::string>>();
  const std::lock_guard lock(mutex);
  std::unique_ptr<std::string>& slot = (*labels)[text];
  if (slot == nullptr) slot = std::make_unique<std::string>(std::move(text));
  return slot.get();
}

const std::string* LabelOf(const shm::SpecHeader& header, std::string_view name, std::uint64_t address,
                           ActorSelf* actor) {
  if (!name.empty()) return Interned(std::string(name));
  struct Known {
    std::uint64_t address = 0;
    const std::string* label = nullptr;
  };
  thread_local Known known[64];  // a program has few functions that it calls often
  Known& last = known[Mix(address) % 64];
  if (last.label != nullptr && last.address == address) return last.label;
  std::string text;
  if ((header.flags & shm::SpecHeader::kStableName) != 0) {
    const owner::NamedCode::Code* code = owner::NamedCode::Get().Find(header.target);
    if (code != nullptr) text = code->name;
  }
  if (text.empty()) text = FunctionName(reinterpret_cast<const void*>(address));
  if (actor != nullptr && (header.flags & shm::SpecHeader::kVirtual) != 0)
    text = actor->class_name + " (virtual method)";
  last = {address, Interned(std::move(text))};
  return last.label;
}

}  // namespace

Execution* Execution::Current() { return t_current; }

Execution::~Execution() {
  if (open_ && stored_) owner_.store().Abort(room_);
}

bool Execution::cancel_requested() const {
  if (served_ == nullptr) return outer_ != nullptr && outer_->cancel_requested();
  return (const_cast<Served*>(served_)->lane.memory().cancel.load(std::memory_order_acquire) & ~shm::kCancelTree) ==
         shm::TaskToken(header_.entry, header_.generation);
}

bool Execution::tree_cancelled() const {
  if (served_ == nullptr) return outer_ != nullptr && outer_->tree_cancelled();
  return const_cast<Served*>(served_)->lane.memory().cancel.load(std::memory_order_acquire) ==
         (shm::TaskToken(header_.entry, header_.generation) | shm::kCancelTree);
}

Status Execution::Open(const std::byte* spec, std::uint64_t available, internal::Trampoline* trampoline) {
  Result<shm::SpecReader> reader = shm::SpecReader::Open(spec, available);
  if (!reader.ok()) return reader.status();
  reader_ = *reader;
  header_ = reader_.header();
  const base::Module* module = base::ModuleByHash(header_.module);
  if (module == nullptr) {
    return Status(Code::kNotFound,
                  "the task's code is in a library that this worker has not loaded: link the program with it, "
                  "or call dlopen in a static before main");
  }
  std::uint64_t trampoline_at = module->base + header_.trampoline;
  if ((header_.flags & shm::SpecHeader::kStableName) != 0) {
    const owner::NamedCode::Code* code = owner::NamedCode::Get().Find(header_.target);
    if (code == nullptr) return Status(Code::kNotFound, "this program has no function of that MANTA_REMOTE name");
    trampoline_at = reinterpret_cast<std::uint64_t>(code->trampoline);
    target = code->target;
  } else if ((header_.flags & shm::SpecHeader::kVirtual) != 0) {
    target = header_.target;
  } else if ((header_.flags & shm::SpecHeader::kNoTarget) == 0) {
    const base::Module* home =
        header_.target_module == header_.module ? module : base::ModuleByHash(header_.target_module);
    if (home == nullptr)
      return Status(Code::kNotFound, "the task's function is in a library that this worker has not loaded");
    target = home->base + header_.target;
  }
  adjust = header_.adjust;
  if (trampoline_at < module->base || trampoline_at >= module->end) {
    if ((header_.flags & shm::SpecHeader::kStableName) == 0)
      return Status(Code::kCorrupt, "a task's code lies outside its library");
  }
  *trampoline = reinterpret_cast<internal::Trampoline>(trampoline_at);
  const bool own = (header_.flags & (shm::SpecHeader::kNoTarget | shm::SpecHeader::kVirtual)) != 0;
  // Reading a symbol table takes a millisecond: not for a name that nobody will see.
  label_ = constructing_ ? Interned(actor_->class_name)
                         : LabelOf(header_, reader_.name(), own ? trampoline_at : target, actor_);
  return {};
}

std::unique_ptr<Failure> Execution::Caught(bool* retryable) {
  auto failure = std::make_unique<Failure>();
  failure->code = Code::kTaskFailed;
  const std::type_info* type = abi::__cxa_current_exception_type();
  failure->type = type == nullptr ? "an exception" : Demangled(type->name());
  try {
    throw;
  } catch (const internal::ForeignError& error) {
    failure->code = error.code();
    failure->type = error.type();
    failure->cause = error.payload();
    failure->message = error.what();
    *retryable = error.retryable();
    return failure;
  } catch (const CancelledError& error) {
    failure->code = Code::kCancelled;
    failure->cause = error.what();
  } catch (const std::bad_array_new_length& error) {  // a wrong number: no memory would help
    failure->cause = error.what();
  } catch (const std::bad_alloc& error) {
    failure->code = Code::kOutOfMemory;
    failure->cause = Cat(error.what(), MemoryLimits());
  } catch (const std::exception& error) {
    failure->cause = error.what();
  } catch (const char* text) {
    failure->cause = text;
  } catch (const std::string& text) {
    failure->cause = text;
  } catch (...) {
    failure->cause = "(not a std::exception)";
  }
  if (header_.match != 0) {
    const base::Module* module = base::ModuleByHash(header_.module);
    using Match = bool (*)();
    *retryable = reinterpret_cast<Match>(module->base + header_.match)();
  }
  failure->message = Cat(constructing_ ? "the constructor of actor " : "task ", *label_, " (", ToString(header_.id),
                         ") failed in worker ", getpid(), ": ", failure->type, ": ", failure->cause);
  const std::string stack = DescribeThrow();
  if (!stack.empty()) failure->message += "\nthrown at\n" + stack;
  return failure;
}

std::unique_ptr<Failure> Execution::Exited(const internal::WorkerEnd& end) {
  if (served_ != nullptr || constructing_) {
    end_ = end;
    return nullptr;
  }
  auto failure = std::make_unique<Failure>();
  failure->code = Code::kWorkerCrashed;
  failure->message = Cat("task ", *label_, " (", ToString(header_.id), ") asked worker ", getpid(),
                         " to exit with status ", end.status, "; it ran there for the task that waits for its result");
  return failure;
}

std::unique_ptr<Failure> Execution::Invoke(internal::Trampoline trampoline, bool* retryable) {
  owner::Caller& caller = owner::ThisCaller();
  const owner::Caller before = caller;
  owner::Caller inner;
  inner.parent = header_.id;
  inner.session = owner_.session();
  inner.rerun = (header_.flags & shm::SpecHeader::kRerun) != 0 || repeating_ || (constructing_ && actor_->epoch > 0);
  inner.fresh = (header_.flags & shm::SpecHeader::kFresh) != 0;
  if (repeating_ || constructing_) {
    inner.need = &actor_->need;
    inner.can_block = !actor_->need.empty();
  } else if (served_ != nullptr) {
    inner.need = &served_->need;
    inner.lease = served_->lease;
    if (actor_ == nullptr) inner.maker = {header_.id, served_->owner};
    inner.can_block =
        served_->lease != 0 ? !served_->need.empty() : (actor_ != nullptr && actor_->serial && !served_->need.empty());
  } else {
    inner.need = before.need;
    inner.lease = before.lease;
    inner.can_block = before.can_block;
    inner.maker = before.maker;  // that one calls this one again
  }
  caller = inner;
  outer_ = t_current;
  t_current = this;
  SetLabel(*label_);
  const ThrowScope capture;
  internal::RefScope scope;
  scope_ = &scope;
  std::unique_ptr<Failure> failure;
  try {
    trampoline(*this);
    FlushOutput();  // before the answer: with it the job may end, and this process be killed
    if (open_) FinishReturn(true);
  } catch (const internal::WorkerExit& exit) {
    failure = Exited(exit.end());
  } catch (...) {
    failure = Caught(retryable);
  }
  if (failure != nullptr && tree_cancelled()) owner_.CancelChildren(header_.id, caller.calls);
  scope_ = nullptr;
  t_current = outer_;
  if (outer_ != nullptr) SetLabel(*outer_->label_);
  FlushOutput();
  caller = before;
  return failure;
}

void Execution::Run(const std::byte* spec, std::uint64_t available) {
  internal::Trampoline trampoline = nullptr;
  if (Status s = Open(spec, available, &trampoline); !s.ok()) {
    if (label_ == nullptr) label_ = Interned("task");
    return ReplyFailure(ToFailure(s), false);
  }
  const bool journaled = actor_ != nullptr && actor_->serial && actor_->journal != nullptr && served_ != nullptr;
  if (journaled && !Admit()) return;
  const bool timed = (header_.flags & shm::SpecHeader::kTimed) != 0 && served_ != nullptr;
  if (timed) {
    served_->lane.memory().started_us.store(base::NowMicros(), std::memory_order_relaxed);
    served_->lane.memory().running.store(shm::TaskToken(header_.entry, header_.generation), std::memory_order_release);
  }
  // An actor's calls run in order: from the one that it died in, the caller knows which had begun.
  const std::uint16_t announced = shm::SpecHeader::kTimed | (actor_ == nullptr ? shm::SpecHeader::kOnce : 0);
  if (served_ != nullptr && served_->far != nullptr && (header_.flags & announced) != 0) {
    served_->far->Started(shm::TaskToken(header_.entry, header_.generation));
  }
  if (actor_ != nullptr) self = actor_->self;
  if (served_ != nullptr) {
    owner_.bell().current.store(shm::TaskToken(header_.entry, header_.generation), std::memory_order_relaxed);
    owner_.BeginBorrowing();
  }
  if (served_ != nullptr && served_->untimed.load(std::memory_order_relaxed) == 0) began_ns_ = base::NowNanos();
  bool retryable = false;
  std::unique_ptr<Failure> failure = journaled ? Record(spec, &retryable) : nullptr;
  if (failure == nullptr) failure = Invoke(trampoline, &retryable);
  if (end_.has_value()) return;  // "current" stays: the process dies in this call
  if (timed) served_->lane.memory().running.store(0, std::memory_order_release);
  if (failure != nullptr) ReplyFailure(*failure, retryable);
  if (served_ != nullptr) owner_.bell().current.store(0, std::memory_order_release);
  if (recorded_) actor_->journal->Finished(owner_, *actor_);
}

bool Execution::Admit() {
  std::uint64_t place = 0;
  const ActorJournal::Verdict verdict = actor_->journal->Arrive(header_, &place);
  if (verdict == ActorJournal::Verdict::kRun) [[likely]]
    return true;
  const rules::ActorReplay& rules = actor_->journal->rules();
  if (verdict == ActorJournal::Verdict::kRefuse) {
    ReplyFailure(rules.Refused(header_.id), false);
    return false;
  }
  if (verdict == ActorJournal::Verdict::kDiffers) {
    ReplyFailure(rules.Differs(header_.id, *label_), false);
    return false;
  }
  CopyRecord();  // it was given to a caller on another node, who may not have got it
  std::vector<internal::Handle<internal::Entry>> entries;
  std::vector<internal::Handle<internal::ActorEntry>> actors;
  bool out_of_memory = false;
  const Failure failure = actor_->journal->ForReplies(
      header_, *label_, place, [&](const shm::ReplyHeader& reply, std::span<const std::byte> payload) {
        if (out_of_memory) return;
        if (reply.kind == shm::ReplyKind::kContained) {
          std::vector<internal::Entry*> inner;
          std::vector<internal::ActorEntry*> inner_actors;
          for (std::size_t at = 0; at + sizeof(shm::Contained) <= payload.size(); at += sizeof(shm::Contained)) {
            shm::Contained name;
            std::memcpy(&name, payload.data() + at, sizeof name);
            if (LocalOf(name.owner) == 0) {
              inner_actors.push_back(owner_.AdoptActor(name.id, NodeOf(name.owner), nullptr, false));
              actors.push_back(internal::Handle<internal::ActorEntry>::Adopt(inner_actors.back()));
            } else {
              inner.push_back(owner_.Adopt(name.id, name.owner, false));
              entries.push_back(internal::Handle<internal::Entry>::Adopt(inner.back()));
            }
          }
          owner_.HandOver(inner, inner_actors, served_->owner);
        }
        if (reply.kind != shm::ReplyKind::kValue || payload.size() <= owner::kSmallValue) {
          return Send(reply.kind, reply.flags, reply.index, payload);
        }
        Result<store::Allocation> room =
            owner_.store().Allocate(ReturnId(header_.id, reply.index), served_->stored_for, payload.size());
        if (!room.ok()) {
          out_of_memory = true;
          return ReplyFailure(ToFailure(room.status()), false);
        }
        std::memcpy(room->data, payload.data(), payload.size());
        const Place stored = owner_.store().Seal(*room);
        Send(shm::ReplyKind::kPlace, reply.flags, reply.index, std::as_bytes(std::span(&stored, 1)));
      });
  if (!failure.ok()) ReplyFailure(failure, false);
  return false;
}

std::unique_ptr<Failure> Execution::Record(const std::byte* spec, bool* retryable) {
  try {
    recorded_ = actor_->journal->Begin(owner_, header_, spec, served_->reruns);
    return nullptr;
  } catch (...) {
    return Caught(retryable);
  }
}

Failure Execution::Repeat(const std::byte* spec, std::uint64_t available, bool* failed) {
  internal::Trampoline trampoline = nullptr;
  repeating_ = true;
  if (Status s = Open(spec, available, &trampoline); !s.ok()) return ToFailure(s);
  recorded_ = true;
  self = actor_->self;
  bool retryable = false;
  owner_.BeginBorrowing();
  const std::unique_ptr<Failure> failure = Invoke(trampoline, &retryable);
  *failed = failure != nullptr;
  if (failure != nullptr) ReplyFailure(*failure, retryable);
  owner_.EndBorrowing();
  return {};
}

void Execution::Resume(internal::Trampoline rest) {
  deferred_ = false;
  bool retryable = false;
  const std::unique_ptr<Failure> failure = Invoke(rest, &retryable);
  if (failure != nullptr && !end_.has_value()) ReplyFailure(*failure, retryable);
}

Failure Execution::Construct(const std::byte* spec, std::uint64_t available) {
  internal::Trampoline trampoline = nullptr;
  constructing_ = true;
  if (Status s = Open(spec, available, &trampoline); !s.ok()) return ToFailure(s);
  bool retryable = false;
  owner_.BeginBorrowing();
  const std::unique_ptr<Failure> failure = Invoke(trampoline, &retryable);
  owner_.EndBorrowing();
  if (failure != nullptr) return *failure;
  actor_->self = self;
  actor_->destroy = destroy;
  actor_->save = save;
  actor_->load = load;
  return {};
}

internal::View Execution::Next(KeepAlive* keep) {
  Result<shm::SpecReader::Item> item = reader_.Next();
  if (!item.ok()) throw CorruptError(item.status().message());
  if (item->kind == shm::ItemKind::kValue) return {item->data, item->length};
  if (item->kind != shm::ItemKind::kStored) throw CorruptError("a list stands where one argument should be");
  shm::StoredItem stored;
  std::memcpy(&stored, item->data, sizeof stored);
  // An actor's calls come in order: it waits. A task would keep a worker from the very tasks that make its input again.
  return owner_.LookAtArgument(stored, keep, actor_ != nullptr);
}

std::int64_t Execution::NextList() {
  Result<shm::SpecReader::Item> item = reader_.Peek();
  if (!item.ok()) throw CorruptError(item.status().message());
  if (item->kind != shm::ItemKind::kList) return -1;
  static_cast<void>(reader_.Next());
  return static_cast<std::int64_t>(item->length);
}

std::byte* Execution::Return(std::uint32_t index, std::size_t size) {
  if (open_) FinishReturn(false);
  open_ = true;
  compared_ = true;
  index_ = index;
  size_ = size;
  stored_ = size > owner::kSmallValue && !repeating_;
  if (!stored_) {
    if (size <= sizeof small_) return small_;
    scratch_.resize(size);
    return scratch_.data();
  }
  const ProcessId owner = served_ == nullptr ? owner_.self() : served_->stored_for;
  Result<store::Allocation> room = owner_.store().Allocate(ReturnId(header_.id, index), owner, size);
  if (!room.ok()) {
    open_ = false;
    throw OutOfMemoryError(room.status().message());
  }
  room_ = *room;
  return room_.data;
}

void Execution::FinishReturn(bool last) {
  if (last && !repeating_) base::Failpoint("task.ran");
  open_ = false;
  const bool contains = !scope_->entries.empty() || !scope_->actors.empty();
  const std::span<const std::byte> bytes(size_ <= sizeof small_ ? small_ : scratch_.data(), size_);
  const std::uint8_t flags = last ? shm::ReplyHeader::kLast : 0;
  Place place;
  if (recorded_) {
    if (contains) ReplyContained();
    if (!compared_) actor_->journal->NotCompared();
    actor_->journal->Reply(shm::ReplyKind::kValue, flags, index_,
                           stored_ ? std::span<const std::byte>(room_.data, size_) : bytes);
    if (last && !repeating_) {
      if (owner_.KeepBorrowed(actor_->id)) actor_->journal->Holds();
      actor_->journal->Commit(false);
    }
  }
  if (repeating_) return;
  if (last && recorded_) CopyRecord();
  if (recorded_) base::Failpoint("actor.kept");
  if (stored_) place = owner_.store().Seal(room_);
  if (served_ == nullptr) {
    internal::Entry* first = owner_.EntryOf(header_);
    if (first == nullptr) return;
    if (contains) owner_.DeliverContained(first, index_, std::move(scope_->entries), std::move(scope_->actors));
    scope_->entries.clear();
    scope_->actors.clear();
    if (stored_) {
      owner_.DeliverPlace(first, index_, place, last);
    } else {
      owner_.DeliverValue(first, index_, bytes, last);
    }
    return;
  }
  if (contains && !recorded_) ReplyContained();
  // Whatever the task borrowed and still uses is held before the answer lets go of the arguments.
  if (last) owner_.EndBorrowing(served_->owner);
  if (stored_) {
    Send(shm::ReplyKind::kPlace, flags, index_, std::as_bytes(std::span(&place, 1)));
  } else {
    Send(shm::ReplyKind::kValue, flags, index_, bytes);
  }
}

// A caller on this node may tell the world of the answer, and outlive us both there: the record must not die with this
// node. (Worker::Flush does the same for callers on other nodes, many answers at a time.)
void Execution::CopyRecord() {
  if (served_ != nullptr && served_->far == nullptr && actor_->copy) actor_->copy();
}

void Execution::ReplyContained() {
  if (!repeating_) owner_.HandOver(scope_->entries, scope_->actors, served_->owner);
  std::vector<shm::Contained> names;
  for (internal::Entry* entry : scope_->entries) {
    shm::Contained inner;
    inner.id = entry->id;
    inner.owner = entry->origin == internal::Origin::kBorrowed ? entry->owner : owner_.self();
    names.push_back(inner);
  }
  for (internal::ActorEntry* actor : scope_->actors) {
    shm::Contained inner;
    inner.id = actor->id;
    inner.owner = actor->owner();
    names.push_back(inner);
  }
  if (recorded_) actor_->journal->Contained(names, scope_->entries);
  for (internal::Entry* entry : scope_->entries) internal::Release(entry);
  for (internal::ActorEntry* actor : scope_->actors) internal::Release(actor);
  scope_->entries.clear();
  scope_->actors.clear();
  constexpr std::size_t kPerRecord = 1000;  // a record must fit the ring
  for (std::size_t at = 0; at < names.size(); at += kPerRecord) {
    const std::size_t count = std::min(kPerRecord, names.size() - at);
    const std::span<const std::byte> part = std::as_bytes(std::span(names).subspan(at, count));
    if (recorded_) actor_->journal->Reply(shm::ReplyKind::kContained, 0, index_, part);
    if (!repeating_) Send(shm::ReplyKind::kContained, 0, index_, part);
  }
}

void Execution::ReplyFailure(const Failure& failure, bool retryable) {
  Failure cut = failure;
  for (std::string* text : {&cut.message, &cut.type, &cut.cause}) {
    constexpr std::size_t kMost = internal::kMostPayload;
    constexpr std::size_t kRest = kMost - 64;  // beside the note
    if (text->size() > kMost) {
      const std::string note = Cat("… (", Bytes(text->size() - kRest), " more were cut)");
      text->replace(kRest, std::string::npos, note);
    }
  }
  if (served_ == nullptr && !repeating_) {
    if (internal::Entry* first = owner_.EntryOf(header_); first != nullptr)
      owner_.DeliverFailure(first, cut, retryable);
    return;
  }
  std::vector<std::byte> bytes(EncodedSize(cut));
  Encode(cut, bytes);
  const auto flags =
      static_cast<std::uint8_t>(shm::ReplyHeader::kLast | (retryable ? shm::ReplyHeader::kRetryable : 0));
  if (recorded_) {
    actor_->journal->Reply(shm::ReplyKind::kFailure, flags, 0, bytes, cut.type);
    if (repeating_) return;
    if (owner_.KeepBorrowed(actor_->id)) actor_->journal->Holds();
    actor_->journal->Commit(true);
    CopyRecord();
  }
  owner_.EndBorrowing(served_->owner);
  Send(shm::ReplyKind::kFailure, flags, 0, bytes);
}

std::uint16_t Execution::RunTime(std::uint8_t flags) {
  if ((flags & shm::ReplyHeader::kLast) == 0) return 0;
  if (began_ns_ == 0) {
    const std::uint32_t left = served_->untimed.load(std::memory_order_relaxed);
    if (left > 0) served_->untimed.store(left - 1, std::memory_order_relaxed);
    return 0;
  }
  const std::int64_t ns = base::NowNanos() - began_ns_;
  served_->untimed.store(ns < kShortCallNs ? kUntimed : 0, std::memory_order_relaxed);
  return shm::PackRun(ns);
}

void Execution::Send(shm::ReplyKind kind, std::uint8_t flags, std::uint32_t index, std::span<const std::byte> payload) {
  if (served_->far != nullptr) {
    shm::ReplyHeader record;
    record.entry = header_.entry;
    record.generation = header_.generation;
    record.index = index;
    record.kind = kind;
    record.flags = flags;
    record.run = RunTime(flags);
    served_->far->Reply(record, payload);
    return;
  }
  const std::lock_guard lock(served_->lane_mutex);
  shm::ReplyHeader* header = nullptr;
  for (int tries = 0; (header = served_->lane.Begin(payload.size())) == nullptr; ++tries) {
    // The owner is behind. It looks at its lanes every few milliseconds at the latest, if it lives.
    served_->bell->Ring();
    if (tries < 100) {
      sched_yield();
      continue;
    }
    const timespec pause{0, 200000};
    nanosleep(&pause, nullptr);
    // Ten seconds and the daemon wants the lease back: the owner is gone.
    if (tries > 50000 && (owner_.bell().flags.load() & shm::Doorbell::kRevoke) != 0) return;
  }
  header->entry = header_.entry;
  header->generation = header_.generation;
  header->index = index;
  header->kind = kind;
  header->flags = flags;
  header->run = RunTime(flags);
  if (!payload.empty()) std::memcpy(header + 1, payload.data(), payload.size());
  served_->lane.Commit(header);
  served_->lane.Publish();
  served_->bell->Ring();
}

}  // namespace manta::worker
