// Submitting: from arguments to a record in the log and a slot in a queue.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/program.h"
#include "manta/internal/embed.h"
#include "owner/named.h"
#include "owner/owner.h"
#include "rules/waking.h"

namespace manta::owner {
namespace {

// Pushes between two looks at workers that have plenty to do.
constexpr std::uint32_t kLookEvery = 16;
// Without movement for so long, somebody is woken or asked for; …
constexpr std::int64_t kStallUs = 20;
// … and for so long, the workers we have are stuck in long tasks.
constexpr std::int64_t kStuckUs = 10000;
// Until one more worker is asked for after the daemon could not start one.
constexpr std::int64_t kRefusedUs = 100'000;
// Arguments on another node beyond this are worth a question where to run: they take longer to come than an answer does
// (rules::SpillOver::Options::fetch_threshold_us, at the speed that nodes guess).
constexpr std::uint64_t kWorthAsking = 512U << 10;

std::uint64_t Digest(const shm::SpecHeader& header, std::span<const std::byte> arguments) {
  std::uint64_t hash = header.trampoline ^ (header.target * 0x9e3779b97f4a7c15ULL) ^ header.module;
  std::size_t i = 0;
  for (; i + 8 <= arguments.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, arguments.data() + i, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

Status Amount(const std::string& name, double value, Resources* out) {
  if (!std::isfinite(value) || value < 0 || value > 1e9) {
    return Status(Code::kInvalid, Cat("one cannot ask for ", value, " of ", name, ": give a number from 0 to 1e9"));
  }
  const double units = value * static_cast<double>(kUnit);
  if (std::abs(units - std::round(units)) > 1e-6 * std::max(1.0, units)) {
    return Status(Code::kInvalid,
                  Cat("asked for ", value, " of ", name, ": fractions finer than 0.0001 are not counted"));
  }
  out->Set(name, std::llround(units));
  return {};
}

}  // namespace

std::uint16_t RerunFlags() {
  const Caller& caller = ThisCaller();
  return static_cast<std::uint16_t>((caller.rerun ? shm::SpecHeader::kRerun : 0) |
                                    (caller.fresh ? shm::SpecHeader::kFresh : 0));
}

Status ToResources(double cpus, double gpus, const std::map<std::string, double>& others, Resources* out) {
  if (Status s = Amount("CPU", cpus, out); !s.ok()) return s;
  if (Status s = Amount("GPU", gpus, out); !s.ok()) return s;
  for (const auto& [name, value] : others) {
    if (name.empty()) return Status(Code::kInvalid, "a resource needs a name");
    if (Status s = Amount(name, value, out); !s.ok()) return s;
  }
  return {};
}

const Plan* Owner::Intern(const TaskOptions& options, Status* status) {
  std::string key = Cat(options.name, '\n', options.cpus, ' ', options.gpus, ' ', options.retries, ' ',
                        options.retry_match, ' ', options.timeout.count(), ' ', options.priority);
  if (options.call_retries) key += Cat("\ncalls ", *options.call_retries);
  for (const auto& [name, value] : options.resources) key += Cat('\n', name, '=', value);
  const Placement& placement = options.placement;
  if (placement != Placement{}) {
    key += Cat('\n', placement.node, '\n', placement.soft, placement.spread, placement.group, ' ', placement.bundle);
    for (const std::vector<LabelRule>* rules : {&placement.labels, &placement.prefer}) {
      key += '\n';
      for (const LabelRule& rule : *rules) {
        key += Cat('\n', static_cast<int>(rule.is), rule.key);
        for (const std::string& value : rule.values) key += Cat('\r', value);
      }
    }
  }
  const Lock lock(mutex_);
  // Never freed, because callers keep them past Shutdown; one per set of options, whichever the cluster.
  static auto* plans = new std::unordered_map<std::string, std::unique_ptr<Plan>>();
  const auto known = plans->find(key);
  if (known != plans->end() && known->second->session.load(std::memory_order_relaxed) == session_) {
    return known->second.get();
  }
  auto plan = std::make_unique<Plan>();
  plan->options = options;
  *status = ToResources(options.cpus, options.gpus, options.resources, &plan->need);
  if (!status->ok()) return nullptr;
  Strategy strategy;
  *status = ToStrategy(placement, &strategy);
  if (!status->ok()) return nullptr;
  if (options.call_retries && *options.call_retries < -1) {
    *status =
        Status(Code::kInvalid, Cat("retries of a call are a count, or -1 for no limit; not ", *options.call_retries));
    return nullptr;
  }
  if (options.timeout.count() < 0) {
    *status = Status(Code::kInvalid, "a task's timeout cannot be negative");
    return nullptr;
  }
  if (options.name.size() > 4096) {
    *status = Status(Code::kInvalid, Cat("a task's name of ", options.name.size(), " bytes is too long: 4096 at most"));
    return nullptr;
  }
  std::unique_ptr<ClassQueue>& queue = queues_[{plan->need, options.priority, strategy}];
  if (queue == nullptr) {
    queue = std::make_unique<ClassQueue>();
    queue->need = plan->need;
    queue->priority = options.priority;
    queue->strategy = strategy;
    const Resources& total = setup_.welcome.total;
    const bool alone = setup_.welcome.number == 0;  // else another node may have what this one lacks
    if (alone && !total.Covers(plan->need)) {
      queue->refused = Failure{Code::kInfeasible,
                               Cat("a task asks for ", ToString(plan->need), ", but the cluster has ", ToString(total),
                                   " in all; ask for less, or start Manta with more (Config::cpus, gpus, resources)"),
                               {},
                               {}};
    }
    std::int64_t most = 64;
    for (const auto& [name, amount] : plan->need.amounts()) {
      if (alone) most = std::min(most, total.Get(name) / amount);
    }
    queue->most_lanes = static_cast<std::uint32_t>(std::max<std::int64_t>(most, 1));
    all_queues_.push_back(queue.get());
  }
  if (options.timeout.count() > 0) queue->timed = true;
  Plan* made =
      known != plans->end() ? known->second.get() : plans->emplace(std::move(key), std::move(plan)).first->second.get();
  made->queue = queue.get();
  made->session.store(session_, std::memory_order_release);
  return made;
}

Status Owner::FillSpec(const internal::Site& site, const Plan* plan, std::uint32_t returns, shm::SpecHeader* header) {
  using shm::SpecHeader;
  header->returns = returns & ~(0x80000000U | internal::kReadOnlyCall | internal::kLooseCall);
  if ((returns & 0x80000000U) != 0) header->flags |= SpecHeader::kWhole;
  if ((returns & internal::kReadOnlyCall) != 0) header->flags |= SpecHeader::kReadOnly;
  if ((returns & internal::kLooseCall) != 0) header->flags |= SpecHeader::kLoose;
  const base::Module* module = base::ModuleOf(reinterpret_cast<const void*>(site.trampoline));
  if (module == nullptr) return Status(Code::kInvalid, "the task's code is in no file that a worker could load");
  header->module = module->hash;
  header->trampoline = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(site.trampoline) - module->base);
  header->adjust = static_cast<std::uint32_t>(site.adjust);
  if (const std::uint64_t name = NamedCode::Get().HashOf(site.trampoline, site.target); name != 0) {
    header->flags |= SpecHeader::kStableName;
    header->target = name;
  } else if (site.target == 0) {
    header->flags |= SpecHeader::kNoTarget;
  } else if (!site.target_is_address) {
    header->flags |= SpecHeader::kVirtual;
    header->target = site.target;
  } else {
    const base::Module* home = module;
    if (site.target < module->base || site.target >= module->end) {
      home = base::ModuleOf(reinterpret_cast<const void*>(site.target));
      if (home == nullptr) return Status(Code::kInvalid, "the task's function is in no file that a worker could load");
    }
    header->target_module = home->hash;
    header->target = site.target - home->base;
  }
  if (plan != nullptr) {
    header->name_bytes = static_cast<std::uint16_t>(plan->options.name.size());
    if (header->name_bytes > 0) header->flags |= SpecHeader::kNamed;
    if (plan->options.timeout.count() > 0) header->flags |= SpecHeader::kTimed;
    if (plan->options.retry_match != 0) {
      header->match = static_cast<std::uint32_t>(plan->options.retry_match - module->base);
    }
  }
  return {};
}

Entry* Owner::NewCall(const shm::SpecHeader& header, const Plan* plan, internal::RefScope& scope, Entry** out) {
  // Counted twice: by the Ref, and by the task until it is over.
  Entry* entry = table_.Allocate(header.id, Origin::kTask, 2, session_);
  entry->plan = plan;
  entry->retries = static_cast<std::int16_t>(plan == nullptr ? TaskOptions{}.retries : plan->options.retries);
  out[0] = entry;
  for (std::uint32_t i = 1; i < header.returns; ++i) {
    Entry* sibling = table_.Allocate(ReturnId(header.id, i), Origin::kSibling, 2, session_);
    entry->more().siblings.push_back(sibling);
    out[i] = sibling;
  }
  if (!scope.entries.empty() || !scope.actors.empty()) {
    entry->more().arguments = std::move(scope.entries);
    entry->more().actor_arguments = std::move(scope.actors);
    scope.entries.clear();
    scope.actors.clear();
  }
  if (recorder_ != nullptr) {
    for (std::uint32_t i = 0; i < header.returns; ++i) RecordOf(out[i]) = 0;
  }
  ++submitted_;
  bell_->submitted.store(submitted_, std::memory_order_relaxed);
  return entry;
}

Status Owner::Submit(const internal::Site& site, internal::Arguments& arguments, internal::RefScope& scope,
                     const Plan* plan, std::uint32_t returns, Entry** out) {
  if (plan != nullptr && plan->session.load(std::memory_order_acquire) != session_) {
    Status status;
    plan = Intern(plan->options, &status);  // its caller was made for a cluster that was shut down
    if (!status.ok()) return status;
  }
  if (behind_.load(std::memory_order_relaxed)) {
    if (Status s = AwaitRoomToRecord(); !s.ok()) return s;
  }
  shm::SpecHeader header;
  if (Status s = FillSpec(site, plan, returns, &header); !s.ok()) return s;
  header.id = NextId();
  header.flags |= RerunFlags();
  if (!scope.entries.empty() || !scope.actors.empty()) Announce(scope.entries, scope.actors);
  const std::string_view name = plan == nullptr ? std::string_view() : std::string_view(plan->options.name);
  bool read = false;
  {
    const Lock lock(mutex_);
    if (!lost_.ok()) return Status(lost_.code, lost_.message);
    ClassQueue* queue = plan == nullptr ? plain_ : plan->queue;
    if (!queue->refused.ok()) return Status(queue->refused.code, queue->refused.message);
    Entry* entry = NewCall(header, plan, scope, out);
    entry->queue = queue;
    read = Launch(entry, header, name, arguments);
  }
  if (read) NotifyWaiters();
  return {};
}

bool Owner::Launch(Entry* entry, shm::SpecHeader& header, std::string_view name, internal::Arguments& arguments) {
  header.entry = entry->index;
  header.generation = entry->generation;
  if (entry->retries == 0) header.flags |= shm::SpecHeader::kOnce;
  if (setup_.recall != nullptr && Recalled(entry, header, arguments)) {
    SettleDoomed();
    return false;
  }
  const Caller& caller = ThisCaller();
  const CallOrigin origin{caller.parent, caller.path, caller.calls - 1};
  if (arguments.holes.empty()) {
    if (Status s = Write(entry, header, name, arguments.bytes, origin); !s.ok()) FailCall(entry, ToFailure(s));
  } else {
    entry->more().origin = origin;
    Park(entry, header, name, arguments);
    if (entry->extra->missing == 0) Unpark(entry);
  }
  SettleDoomed();
  // Now and then look at the answers: the rings of the workers are not endless.
  const bool read = (submitted_ & 63) == 0 && PumpLocked();
  if (background_idle_.load(std::memory_order_relaxed)) WakeBackground();
  return read;
}

void Owner::WakeBackground() {
  if (!background_idle_.exchange(false)) return;
  const std::lock_guard lock(background_mutex_);
  background_wake_.notify_all();
}

Status Owner::Write(Entry* entry, shm::SpecHeader header, std::string_view name, std::span<const std::byte> arguments,
                    const CallOrigin& origin) {
  header.bytes = static_cast<std::uint32_t>(sizeof header + shm::Padded(name.size()) + shm::Padded(arguments.size()));
  header.digest = Digest(header, arguments);
  const std::uint64_t offset = log_.Append(header.bytes);
  if (offset == 0) {
    return Status(Code::kOutOfMemory, Cat("too many unfinished calls: the ", Bytes(shm::kArenaBytes),
                                          " for them are used up; wait for some results first"));
  }
  std::byte* at = log_.at(offset);
  std::memcpy(at, &header, sizeof header);
  if (!name.empty()) std::memcpy(at + sizeof header, name.data(), name.size());
  if (!arguments.empty())
    std::memcpy(at + sizeof header + shm::Padded(name.size()), arguments.data(), arguments.size());
  entry->spec = offset;
  if (entry->extra != nullptr) {
    for (Entry* sibling : entry->extra->siblings) {
      sibling->spec = offset;
      log_.Keep(offset);
    }
  }
  if (recorder_ != nullptr) RecordCall(entry, origin, header, name, arguments);
  ActorEntry* actor = entry->queue->actor;
  if (actor == nullptr || actor->order.empty()) {
    Push(entry);
  } else if (actor->options.ordered) {
    CallOrder(actor);
  }
  return {};
}

void Owner::Park(Entry* entry, const shm::SpecHeader& header, std::string_view name, internal::Arguments& arguments) {
  Extra& extra = entry->more();
  extra.header.resize(sizeof header + name.size());
  std::memcpy(extra.header.data(), &header, sizeof header);
  if (!name.empty()) std::memcpy(extra.header.data() + sizeof header, name.data(), name.size());
  extra.parked = arguments.bytes;
  entry->stage = Stage::kParked;
  std::string frames;
  for (const internal::Arguments::Hole& hole : arguments.holes) {
    extra.holes.push_back({hole.at, hole.entry});  // the count moves along
    Want(hole.entry);
    if (!hole.entry->done()) {
      ++extra.missing;
      entry->refs.fetch_add(1, std::memory_order_relaxed);
      hole.entry->more().dependents.push_back(entry);
      SubscribeLocked(hole.entry, &frames);
    }
  }
  arguments.holes.clear();
  if (!frames.empty()) static_cast<void>(link().SendBytes(frames, {}));
}

// All values are there: puts them into the arguments and sends the call on its way.
void Owner::Unpark(Entry* entry) {
  if (entry->spec != 0) return Resend(entry);
  Extra& extra = *entry->extra;
  // What was there may have been lost since.
  for (const Extra::Hole& hole : extra.holes) {
    if (!hole.entry->missing()) continue;
    Want(hole.entry);
    if (hole.entry->done()) continue;
    ++extra.missing;
    entry->refs.fetch_add(1, std::memory_order_relaxed);
    hole.entry->more().dependents.push_back(entry);
  }
  if (extra.missing > 0) return;
  entry->stage = Stage::kNone;
  for (const Extra::Hole& hole : extra.holes) {
    if (hole.entry->where == Where::kFailure) return FailCall(entry, *hole.entry->failure);
    if (hole.entry->where == Where::kStore && hole.entry->session != session_) {
      return FailCall(entry, Failure{Code::kUnavailable, kGone, {}, {}});
    }
  }
  std::vector<std::byte> arguments;
  arguments.reserve(extra.parked.size() + extra.holes.size() * 64);
  std::size_t copied = 0;
  const auto append = [&](const void* data, std::size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    arguments.insert(arguments.end(), bytes, bytes + size);
  };
  std::string frames;
  const std::size_t others = extra.inputs.size();
  bool stored = false;
  for (const Extra::Hole& hole : extra.holes) {
    append(extra.parked.data() + copied, hole.at - copied);
    copied = hole.at + 8;
    Entry* value = hole.entry;
    AnnounceContents(value, &frames);
    if (value->where == Where::kStore) {
      shm::StoredItem item;
      item.object = value->id;
      item.place = value->place;
      item.owner = value->origin == Origin::kBorrowed ? value->owner : self();
      value->flags |= Entry::kSharedPlace;
      const std::uint64_t word = shm::ItemWord(shm::ItemKind::kStored, sizeof item);
      append(&word, 8);
      append(&item, sizeof item);
      ++value->lineage;
      stored = true;
      extra.inputs.push_back(value);
      if ((value->flags & Entry::kMapped) == 0) {  // whoever finds it lost knows its name only
        value->flags |= Entry::kMapped;
        by_id_[value->id] = value;
      }
    } else {
      const std::byte* data = value->where == Where::kHeap ? value->heap : value->small;
      const std::uint64_t word = shm::ItemWord(shm::ItemKind::kValue, value->size);
      append(&word, 8);
      append(data, value->size);
      arguments.resize(shm::Padded(arguments.size()));
      if (value->contains) {
        extra.arguments.push_back(value);
      } else {
        Unref(value);
      }
    }
  }
  append(extra.parked.data() + copied, extra.parked.size() - copied);
  extra.holes.clear();
  extra.parked = {};
  entry->queue = &Located(*entry->queue, std::span(extra.inputs).subspan(others));
  shm::SpecHeader header;
  std::memcpy(&header, extra.header.data(), sizeof header);
  if (stored) header.flags |= shm::SpecHeader::kLoose;
  const std::string name(reinterpret_cast<const char*>(extra.header.data()) + sizeof header,
                         extra.header.size() - sizeof header);
  extra.header = {};
  if (!frames.empty()) static_cast<void>(link().SendBytes(frames, {}));
  if (Status s = Write(entry, header, name, arguments, extra.origin); !s.ok()) FailCall(entry, ToFailure(s));
}

ClassQueue& Owner::Located(ClassQueue& queue, std::span<Entry* const> arguments) {
  const NodeNumber here = setup_.welcome.number;
  if (here == 0 || queue.actor != nullptr || !queue.strategy.empty() || !queue.input_nodes.empty()) return queue;
  std::vector<NodeNumber> nodes;
  std::vector<std::uint64_t> bytes;
  for (const Entry* value : arguments) {
    if (value->where != Where::kStore || value->place.nowhere()) continue;
    const NodeNumber node = value->place.node == 0 ? here : value->place.node;
    const auto at = static_cast<std::size_t>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
    if (at == nodes.size()) {
      nodes.push_back(node);
      bytes.push_back(0);
    }
    bytes[at] += value->place.size;
  }
  if (nodes.empty()) return queue;
  const auto most = static_cast<std::size_t>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
  const auto mine = std::find(nodes.begin(), nodes.end(), here);
  const std::uint64_t local = mine == nodes.end() ? 0 : bytes[static_cast<std::size_t>(mine - nodes.begin())];
  if (nodes[most] == here || bytes[most] < local + kWorthAsking) return queue;
  std::unique_ptr<ClassQueue>& located = located_[{&queue, nodes[most]}];
  if (located == nullptr) {
    located = std::make_unique<ClassQueue>();
    located->need = queue.need;
    located->priority = queue.priority;
    located->most_lanes = queue.most_lanes;
    all_queues_.push_back(located.get());
  }
  located->timed = queue.timed;
  located->input_nodes = std::move(nodes);
  located->input_bytes = std::move(bytes);
  return *located;
}

Status Owner::MakeQueue(ClassQueue& queue) {
  queue.offset = chunks_.Allocate(sizeof(shm::QueueMemory));
  if (queue.offset == 0)
    return Status(Code::kOutOfMemory, "too many kinds of tasks and actors at once for one process");
  queue.ring = shm::QueueOwner(setup_.arena->at(queue.offset));
  return {};
}

void Owner::Push(Entry* entry) {
  ClassQueue& queue = *entry->queue;
  if (queue.offset == 0) {
    if (Status s = MakeQueue(queue); !s.ok()) return FailCall(entry, ToFailure(s));
  }
  if (!queue.backlog.empty() || !PushToRing(queue, entry)) {
    entry->stage = Stage::kBacklog;
    queue.backlog.push_back({entry, entry->generation});
  }
  AskForWorkers(queue);
}

bool Owner::PushToRing(ClassQueue& queue, Entry* entry) {
  shm::QueueOwner::Displaced displaced;
  if (!queue.ring.Push(entry->spec, &entry->position, &displaced)) return false;
  entry->stage = Stage::kRing;
  if (displaced.yes) {
    shm::SpecHeader header;
    std::memcpy(&header, log_.at(displaced.spec), sizeof header);
    if (Entry* away = table_.Find(header.entry, header.generation); away != nullptr && !away->over()) {
      queue.away.push_back({away, header.generation, displaced.lane});
    }
  }
  return true;
}

void Owner::Refill(ClassQueue& queue) {
  while (!queue.backlog.empty()) {
    const ClassQueue::Waiting next = queue.backlog.front();
    const bool stale = next.entry->generation != next.generation || next.entry->stage != Stage::kBacklog;
    if (!stale && !PushToRing(queue, next.entry)) return;
    queue.backlog.pop_front();
  }
}

void Owner::AskForWorkers(ClassQueue& queue, bool sleeps) {
  if (queue.actor != nullptr) {
    Lane* lane = queue.actor->lane;
    if (lane == nullptr) return;
    if (lane->far != nullptr) return Feed(*lane);
    Wake(*lane);
    return;
  }
  if (queue.offset == 0) return;
  if (queue.unwatched > 0 && !sleeps) {
    --queue.unwatched;
    return;
  }
  if (queue.far_lanes > 0) FeedAll(queue);
  const std::uint64_t waiting = queue.ring.backlog() + queue.backlog.size();
  if (waiting == 0) return;
  if (queue.strategy.spread) return AskToSpread(queue, waiting);
  const auto lanes = static_cast<std::uint32_t>(queue.lanes.size());
  if (lanes == 0) {
    if (queue.requests == 0) RequestLease(queue, false);
    return;
  }
  std::uint32_t awake = 0;
  Lane* asleep = nullptr;
  for (Lane* lane : queue.lanes) {
    if (lane->reader.memory().asleep.load(std::memory_order_seq_cst) == 0) {
      ++awake;
    } else {
      asleep = lane;
    }
  }
  const rules::QueueLook look{waiting, awake, setup_.node->header().cores, !sleeps};
  const bool pays = rules::OneMorePays(look, queue.call_us);
  // All are at it, and for a while: each look costs a cache line that they write.
  if ((!pays || asleep == nullptr) && awake > 0 && waiting >= 2 * kLookEvery) queue.unwatched = kLookEvery;
  if (!pays) return;
  if (asleep != nullptr) {
    Wake(*asleep);
    return;
  }
  if (lanes < queue.most_lanes && MayAsk(queue)) RequestLease(queue, false);
}

// A queue that is served can do without one more worker, if there is none to be had just now.
bool Owner::MayAsk(const ClassQueue& queue) {
  if (queue.requests > 0) return false;
  return queue.lanes.empty() || queue.refused_us == 0 || base::NowMicros() - queue.refused_us >= kRefusedUs;
}

// A lease for each: it ends with its task, and the head gives the next one elsewhere.
void Owner::AskToSpread(ClassQueue& queue, std::uint64_t waiting) {
  std::uint64_t coming = queue.requests;
  for (Lane* lane : queue.lanes) {
    if (lane->far != nullptr) {
      if (!lane->far->spent && !lane->far->bye && !lane->far->over) ++coming;
      continue;
    }
    bool claimed = false;
    queue.ring.ForClaimed(lane->index, [&](std::uint64_t, std::uint64_t) { claimed = true; });
    if (claimed) continue;
    Wake(*lane);
    ++coming;
  }
  while (coming < std::min<std::uint64_t>(waiting, queue.most_lanes)) {
    const std::uint32_t before = queue.requests;
    RequestLease(queue, false);
    if (queue.requests == before) return;
    ++coming;
  }
}

std::uint64_t Owner::FunctionOf(std::uint64_t spec) const {
  shm::SpecHeader header;
  std::memcpy(&header, setup_.arena->at(spec), sizeof header);
  return Mix(header.trampoline ^ (header.target * 0x9e3779b97f4a7c15ULL) ^ header.module);
}

void Owner::Ran(Lane& lane, const Entry* entry, std::uint16_t run) {
  if (lane.queue == nullptr || lane.queue->actor != nullptr || entry->spec == 0) return;
  constexpr std::size_t kMostFunctions = 4096;  // code that is made at run time has no end
  if (run_us_.size() >= kMostFunctions) run_us_.clear();
  const double us = static_cast<double>(shm::UnpackRun(run)) / 1000;
  run_us_[FunctionOf(entry->spec)].Add(us);
  lane.queue->call_us.Add(us);
}

void Owner::RequestLease(ClassQueue& queue, bool stalled) {
  Lane* lane = TakeLane();
  if (lane == nullptr) return;  // thousands of workers already
  lane->queue = &queue;
  lane->request = next_request_++;
  lane->active = true;
  lane->cancelled = false;
  active_lanes_.push_back(lane);
  lanes_by_request_[lane->request] = lane;
  ++queue.requests;
  wire::LeaseRequest message;
  message.request = lane->request;
  message.need = queue.need;
  message.strategy = queue.strategy;
  message.priority = queue.priority;
  message.queue = queue.offset;
  message.lane = lane->offset;
  message.stalled = stalled;
  message.waiting = queue.waiting();
  if (queue.need_hash == 0) queue.need_hash = Mix(std::hash<std::string>()(ToString(queue.need))) | 1;
  const std::uint64_t head = queue.ring.head();
  std::uint64_t first = 0;
  if (head < queue.ring.tail()) {
    first = queue.ring.memory().slots[head % shm::kQueueSlots].spec.load(std::memory_order_relaxed);
  } else if (!queue.backlog.empty() && queue.backlog.front().entry->generation == queue.backlog.front().generation) {
    first = queue.backlog.front().entry->spec;
  }
  if (first != 0) {
    const std::uint64_t function = FunctionOf(first);
    message.function = function ^ queue.need_hash;
    if (const auto known = run_us_.find(function); known != run_us_.end()) message.mean_run_us = known->second.Or(0);
  }
  message.input_nodes = queue.input_nodes;
  message.input_bytes = queue.input_bytes;
  queue.asked_stalled = stalled;
  static_cast<void>(link().Send(message));
}

// Wakes the lane's worker if it sleeps. A word of its own, because the doorbell is also the worker's
// for other purposes.
bool Owner::Wake(Lane& lane) {
  if (lane.reader.memory().asleep.load(std::memory_order_seq_cst) == 0) return false;
  setup_.node->bell(lane.reader.memory().worker.load(std::memory_order_relaxed)).Ring();
  return true;
}

Lane* Owner::TakeLane() {
  if (!free_lanes_.empty()) {
    Lane* lane = free_lanes_.back();
    free_lanes_.pop_back();
    lane->reader = shm::LaneReader(setup_.arena->at(lane->offset));
    lane->reader.memory().index = lane->index;
    return lane;
  }
  if (lanes_.size() >= shm::kMaxLanes) return nullptr;
  const std::uint64_t offset = chunks_.Allocate(shm::kLaneBytes);
  if (offset == 0) return nullptr;
  auto lane = std::make_unique<Lane>();
  lane->index = static_cast<std::uint32_t>(lanes_.size());
  lane->offset = offset;
  lane->reader = shm::LaneReader(setup_.arena->at(offset));
  lane->reader.memory().index = lane->index;
  lanes_.push_back(std::move(lane));
  return lanes_.back().get();
}

void Owner::ReleaseLane(Lane* lane) {
  if (lane->request != 0) lanes_by_request_.erase(lane->request);
  lane->request = 0;
  lane->active = false;
  lane->worker = kNoProcess;
  lane->queue = nullptr;
  if (lane->far != nullptr && lane->far->dial != nullptr) {
    far_thread_->Post(
        [dial = std::shared_ptr<wire::Dial>(std::move(lane->far->dial))] {});  // where it may be destroyed
  }
  lane->far = nullptr;
  lane->broken = 0;
  lane->sent_far = false;
  std::erase(active_lanes_, lane);
  free_lanes_.push_back(lane);
}

// Work waits and nobody takes it: wake somebody, or ask for one more worker even beyond the CPUs (those
// that have a lease may all be asleep inside their tasks).
void Owner::Balance(ClassQueue& queue, std::int64_t now_us, bool sleeps) {
  if (queue.offset == 0) return;
  if (!queue.backlog.empty()) Refill(queue);
  if (queue.far_lanes > 0) {
    for (Lane* lane : queue.lanes) {
      if (lane->far != nullptr) BalanceFar(*lane, now_us);
    }
  }
  if (queue.actor != nullptr && queue.actor->lane != nullptr && queue.actor->lane->far != nullptr) {
    return Feed(*queue.actor->lane);
  }
  const std::uint64_t head = queue.ring.head();
  if (queue.waiting() == 0 || head != queue.last_head) {
    queue.last_head = head;
    queue.head_since_us = now_us;
    queue.balanced_us = now_us;
    if (queue.waiting() == 0 && queue.requests > 0 && queue.actor == nullptr) CancelRequests(queue);
    if (queue.actor == nullptr && !queue.strategy.spread) AskForWorkers(queue, sleeps);
    return;
  }
  if (now_us - queue.balanced_us < kStallUs) return;
  queue.balanced_us = now_us;
  if (queue.actor != nullptr) {
    if (queue.actor->lane != nullptr) Wake(*queue.actor->lane);
    return;
  }
  for (Lane* lane : queue.lanes) {
    if (Wake(*lane)) return;
  }
  const bool stalled = !queue.lanes.empty() && now_us - queue.head_since_us >= kStuckUs;
  if (queue.requests == 0) {
    if (MayAsk(queue)) RequestLease(queue, stalled);
  } else if (stalled && !queue.asked_stalled) {
    CancelRequests(queue);  // the new one says how things are; the old one comes back as LeaseEnded
    RequestLease(queue, true);
  }
}

void Owner::CancelRequests(ClassQueue& queue) {
  for (Lane* lane : active_lanes_) {
    if (lane->queue != &queue || lane->request == 0 || lane->worker != kNoProcess || lane->cancelled) continue;
    lane->cancelled = true;
    wire::LeaseCancel message;
    message.request = lane->request;
    static_cast<void>(link().Send(message));
  }
}

}  // namespace manta::owner
