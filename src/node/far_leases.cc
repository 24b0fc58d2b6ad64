#include "node/far_leases.h"

#include <algorithm>

#include "base/clock.h"

namespace manta::node {
namespace {

constexpr std::int64_t kAskAgainUs = 50'000;   // the head said: wait where you are
constexpr std::int64_t kMostAskUs = 400'000;   // … of one that has waited in another node's queue for long
constexpr std::int64_t kHeadGoneUs = 100'000;  // before asking a head that was out of reach
constexpr std::int64_t kManyBouncesUs = 20'000;
constexpr std::size_t kManyBounces = 8;
constexpr int kManyLost = 3;
constexpr double kBytesPerUs = 1'000;  // as the global scheduler guesses

std::uint64_t ClassOf(std::uint64_t function, const Resources& need) {
  if (function != 0) return function;
  return Mix(std::hash<std::string>()(ToString(need))) | 1;
}

}  // namespace

FarLeases::FarLeases(base::Loop& loop, Cluster& cluster, Peers& peers, Leases& leases, Programs& programs,
                     Placer& placer, Host host)
    : loop_(loop),
      cluster_(cluster),
      peers_(peers),
      leases_(leases),
      programs_(programs),
      placer_(placer),
      host_(std::move(host)),
      load_(leases.queue().total()) {
  Register();
  RegisterAnswers();
}

FarLeases::~FarLeases() {
  *alive_ = false;
  loop_.Cancel(look_timer_);
  for (const auto& [key, far] : far_) loop_.Cancel(far.retry);
}

// ---- owners of this node ----

void FarLeases::Request(Peer& peer, const wire::LeaseRequest& message) {
  const Key key{peer.process, message.request};
  if (far_.contains(key)) {
    peer.connection->Close(Status(Code::kCorrupt, Cat("lease request ", message.request, " was made twice")));
    return;
  }
  ++counts_.requests;
  if (!message.strategy.group.empty()) {  // its bundle says where; the load does not matter
    Far& far = far_[key];
    far.job = peer.job;
    far.message = message;
    return Place(key);
  }
  // What waits for its job's quota is no load: others find the node as free as it is.
  const bool idle = leases_.QuotaUsedUp(peer.job, message.need);
  const auto tasks = std::max<std::int64_t>(static_cast<std::int64_t>(message.waiting), 1);
  const std::size_t index = Count(peer.process, message.queue, message.request, message.function, message.need,
                                  idle ? 0 : tasks, message.mean_run_us);
  if (GoesUp(peer.process, peer.job, message, index)) {
    Far& far = far_[key];
    far.job = peer.job;
    far.message = message;
    return Place(key);
  }
  leases_.Request(peer, message);
  if (!leases_.queue().IsWaiting(key)) return;
  const auto patience = static_cast<std::int64_t>(spill_over_.options().threshold_us);
  kept_[key] = Kept{peer.job, message, base::NowMicros() + patience};
  ArmLook();
}

bool FarLeases::GoesUp(ProcessId owner, const Id& job, const wire::LeaseRequest& message, std::size_t index) {
  const bool fits = FitsHere(message);
  if (fits && (!cluster_.HasOthers() || placer_.PinnedHere(message.strategy))) return false;
  if (fits && leases_.QuotaUsedUp(job, message.need)) return false;  // so it is elsewhere
  rules::SpillOver::Asked asked;
  asked.waiting = std::max<std::int64_t>(static_cast<std::int64_t>(message.waiting), 1);
  asked.draining = draining_;
  asked.elsewhere = !placer_.AllowsHere(message.strategy) || placer_.PrefersOthers(message.strategy);
  for (std::size_t i = 0; i < std::min(message.input_nodes.size(), message.input_bytes.size()); ++i) {
    if (message.input_nodes[i] == cluster_.self().number) continue;
    asked.fetch_us += static_cast<double>(message.input_bytes[i]) / kBytesPerUs;
  }
  return spill_over_.Decide(load_, index, leases_.FreeFor(owner, message.queue), asked).up > 0;
}

bool FarLeases::FitsHere(const wire::LeaseRequest& message) const {
  if (draining_ || !placer_.AllowsHere(message.strategy)) return false;
  return !message.strategy.group.empty() || leases_.queue().total().Covers(message.need);
}

rules::PlaceRequest FarLeases::RequestOf(const Far& far) const {
  rules::PlaceRequest request;
  request.function = ClassOf(far.message.function, far.message.need);
  request.need = far.message.need;
  request.from = cluster_.self().number;
  request.refused = far.refused;
  request.bounces = static_cast<std::uint32_t>(far.refused.size());
  for (std::size_t i = 0; i < std::min(far.message.input_nodes.size(), far.message.input_bytes.size()); ++i) {
    request.inputs.push_back(rules::TaskInput{far.message.input_bytes[i], {far.message.input_nodes[i]}});
  }
  return request;
}

void FarLeases::Place(const Key& key) {
  const Far& far = far_[key];
  ++counts_.questions;
  const Strategy strategy = far.message.strategy;  // the answer may come at once, and be the end of `far`
  placer_.Place(strategy, RequestOf(far), [this, alive = alive_, key](const Result<rules::Placement>& placed) {
    if (*alive) Placed(key, placed);
  });
}

void FarLeases::Placed(const Key& key, const Result<rules::Placement>& placed) {
  const auto it = far_.find(key);
  if (it == far_.end() || it->second.state != Far::State::kPlacing) {
    if (placed.ok()) cluster_.Withdraw(placed.value().ticket);
    return;
  }
  Far& far = it->second;
  const bool fits_here = FitsHere(far.message);
  if (!placed.ok()) {
    const bool out_of_reach = placed.status().code() == Code::kUnavailable;
    if (far.local || (fits_here && out_of_reach && far.message.strategy.group.empty())) return Stay(key);
    if (out_of_reach) return PlaceLater(key, kHeadGoneUs);
    const Strategy& strategy = far.message.strategy;
    // A request that is pinned to a dead node fails: the node does not come back.
    const bool pinned = !strategy.node.empty() && !strategy.soft;
    if (placed.status().code() == Code::kInfeasible && strategy.group.empty() && !pinned &&
        placer_.WaitsForANode(far.job, Cat(ToString(far.message.need), ToString(strategy)), placed.status(), false,
                              &far.lacking_us)) {
      return PlaceLater(key, Placer::kLackingUs);
    }
    return Refuse(key, ToFailure(placed.status()));
  }
  far.lacking_us = 0;
  const rules::Placement& placement = placed.value();
  if (placement.node != cluster_.self().number) return AskNode(key, placement);
  if (placement.ticket != 0) arrived_.push_back(placement.ticket);
  if (!fits_here && !far.local) return PlaceLater(key, kAskAgainUs);
  Stay(key);
}

void FarLeases::Stay(const Key& key) {
  Far far = std::move(far_[key]);
  far_.erase(key);
  Peer* peer = peers_.Find(key.owner);
  if (peer == nullptr) return;
  if (!far.local) leases_.Request(*peer, far.message);
  if (!leases_.queue().IsWaiting(key)) return;
  kept_[key] = Kept{far.job, far.message, base::NowMicros() + kAskAgainUs};
  ArmLook();
}

void FarLeases::PlaceLater(const Key& key, std::int64_t after_us) {
  Far& far = far_[key];
  loop_.Cancel(far.retry);
  far.retry = loop_.After(after_us, [this, key] {
    const auto it = far_.find(key);
    if (it == far_.end()) return;
    it->second.retry = 0;
    if (it->second.state == Far::State::kPlacing) Place(key);
  });
}

void FarLeases::Anew(const Key& key, bool at_once) {
  Far& far = far_[key];
  by_number_.erase(far.number);
  cluster_.Withdraw(far.ticket);
  far.refused.push_back(far.node);
  far.state = Far::State::kPlacing;
  far.sent = false;
  far.moves = false;
  far.number = 0;
  if (at_once && far.refused.size() < kManyBounces) return Place(key);
  PlaceLater(key, kManyBouncesUs);
}

void FarLeases::AskNode(const Key& key, const rules::Placement& placement) {
  Far& far = far_[key];
  if (far.local && !leases_.TakeOut(key)) {  // granted here meanwhile
    cluster_.Withdraw(placement.ticket);
    far_.erase(key);
    return;
  }
  far.local = false;
  far.state = Far::State::kAsked;
  far.node = placement.node;
  far.ticket = placement.ticket;
  far.number = next_number_++;
  by_number_[far.number] = key;
  WhenDescribed(far.job, placement.node,
                [this, alive = alive_, key, number = far.number, placement](const Result<wire::JobFacts>& facts) {
                  if (!*alive) return;
                  const auto it = far_.find(key);
                  if (it != far_.end() && it->second.number == number) SendFarLease(key, placement, facts);
                });
}

void FarLeases::WhenDescribed(const Id& job, NodeNumber for_node, const Programs::OnFacts& done) {
  const wire::JobFacts* facts = host_.facts(job);
  const wire::NodeFacts* node = cluster_.Find(for_node);
  if (facts == nullptr) return done(Status(Code::kUnavailable, "the job has ended"));
  const bool same_machine = node != nullptr && node->machine == cluster_.self().machine;
  if (facts->home == cluster_.self().number) return programs_.Describe(job, same_machine, done);
  if (!facts->program_sha256.empty() || same_machine || for_node == facts->home) return done(*facts);
  cluster_.links().Call<wire::JobDescribed>(facts->home, wire::DescribeJob{job},
                                            [done](Result<wire::JobDescribed> described) {
                                              if (!described.ok()) return done(described.status());
                                              done(std::move(described->facts));
                                            });
}

std::uint64_t FarLeases::RequestsOf(ProcessId owner, std::uint64_t queue) const {
  std::uint64_t requests = 0;
  for (auto it = far_.lower_bound({owner, 0}); it != far_.end() && it->first.owner == owner; ++it) {
    if (it->second.message.queue == queue) ++requests;
  }
  return requests;
}

void FarLeases::SendFarLease(const Key& key, const rules::Placement& placement, const Result<wire::JobFacts>& facts) {
  if (!facts.ok()) return Refuse(key, ToFailure(facts.status()));
  Far& far = far_[key];
  wire::FarLease message;
  message.request = far.number;
  message.owner = key.owner;
  message.queue = far.message.queue;
  message.need = far.message.need;
  message.strategy = far.message.strategy;
  message.priority = far.message.priority;
  message.function = ClassOf(far.message.function, far.message.need);
  message.mean_run_us = far.message.mean_run_us;
  message.waiting = std::max<std::uint64_t>(far.message.waiting / RequestsOf(key.owner, far.message.queue), 1);
  message.ticket = placement.ticket;
  message.final = placement.final;
  message.expected_wait_us = placement.expected_wait_us;
  message.job = facts.value();
  far.sent = true;
  asked_nodes_[key.owner].insert(far.node);
  if (message.job.home == cluster_.self().number) job_nodes_[far.job].insert(far.node);
  cluster_.links().Send(far.node, message);
  LookElsewhere(key);
}

void FarLeases::LookElsewhere(const Key& key) {
  Far& far = far_[key];
  const Strategy& strategy = far.message.strategy;
  if (!strategy.group.empty() || (!strategy.node.empty() && !strategy.soft)) return;
  loop_.Cancel(far.retry);
  far.look_us = std::clamp(2 * far.look_us, kAskAgainUs, kMostAskUs);
  far.retry = loop_.After(far.look_us, [this, key, number = far.number] {
    const auto waits = [this, number](const Key& which) -> Far* {
      const auto it = far_.find(which);
      const bool same = it != far_.end() && it->second.number == number && it->second.state == Far::State::kAsked;
      return same && !it->second.moves ? &it->second : nullptr;
    };
    Far* now = waits(key);
    if (now == nullptr) return;
    now->retry = 0;
    ++counts_.questions;
    placer_.Place(now->message.strategy, RequestOf(*now),
                  [this, alive = alive_, key, waits](const Result<rules::Placement>& placed) {
                    if (!*alive) return;
                    if (placed.ok()) cluster_.Withdraw(placed.value().ticket);  // it is asked for when it is free
                    Far* still = waits(key);
                    if (still == nullptr) return;
                    const bool room =
                        placed.ok() && placed.value().node != still->node && placed.value().expected_wait_us == 0;
                    if (!room) return LookElsewhere(key);
                    still->moves = true;
                    cluster_.links().Send(still->node, wire::FarLeaseCancel{still->number});
                  });
  });
}

void FarLeases::Refuse(const Key& key, const Failure& why) {
  peers_.Send(key.owner, wire::LeaseRefused{key.request, why});
  Forget(key);
}

void FarLeases::Forget(const Key& key) {
  const auto it = far_.find(key);
  if (it == far_.end()) return;
  loop_.Cancel(it->second.retry);
  by_number_.erase(it->second.number);
  far_.erase(it);
}

void FarLeases::Cancel(Peer& peer, const wire::LeaseCancel& message) {
  const Key key{peer.process, message.request};
  const auto it = far_.find(key);
  if (it == far_.end() || it->second.local) {
    kept_.erase(key);
    Forget(key);
    return leases_.Cancel(peer, message);
  }
  if (it->second.state == Far::State::kGiven) return;
  it->second.moves = false;
  if (it->second.sent) return cluster_.links().Send(it->second.node, wire::FarLeaseCancel{it->second.number});
  if (it->second.state == Far::State::kAsked) cluster_.Withdraw(it->second.ticket);
  peer.connection->Send(wire::LeaseEnded{message.request});
  Forget(key);
}

void FarLeases::Broken(Peer& peer, const wire::LeaseBroken& message) {
  const auto it = far_.find(Key{peer.process, message.request});
  if (it == far_.end() || it->second.state != Far::State::kGiven) return;
  cluster_.links().Send(it->second.node, wire::FarLeaseBroken{it->second.number, message.why});
}

void FarLeases::OwnerDied(ProcessId owner) {
  std::erase_if(kept_, [&](const auto& entry) { return entry.first.owner == owner; });
  std::vector<Key> keys;
  for (auto it = far_.lower_bound(Key{owner, 0}); it != far_.end() && it->first.owner == owner; ++it) {
    keys.push_back(it->first);
  }
  for (const Key& key : keys) Forget(key);
  const auto nodes = asked_nodes_.find(owner);
  if (nodes == asked_nodes_.end()) return;
  for (const NodeNumber node : nodes->second) {
    if (cluster_.Find(node) != nullptr) cluster_.links().Send(node, wire::FarOwnerGone{owner});
  }
  asked_nodes_.erase(nodes);
}

void FarLeases::KillWorker(ProcessId owner, const wire::KillWorker& message) {
  cluster_.links().Send(NodeOf(message.worker), wire::FarKillWorker{owner, message});
}

void FarLeases::JobEnded(const Id& job) {
  const auto it = job_nodes_.find(job);
  if (it == job_nodes_.end()) return;
  for (const NodeNumber node : it->second) {
    if (cluster_.Find(node) == nullptr) continue;
    cluster_.links().Send(node, wire::FarJobEnded{job});
    ending_[job].insert(node);
  }
  job_nodes_.erase(it);
}

void FarLeases::EndedOn(NodeNumber node, const Id& job) {
  const auto it = ending_.find(job);
  if (it == ending_.end() || it->second.erase(node) == 0 || !it->second.empty()) return;
  ending_.erase(it);
  host_.job_gone(job);
}

void FarLeases::ArmLook() {
  if (look_timer_ != 0 || kept_.empty()) return;
  look_timer_ = loop_.After(static_cast<std::int64_t>(spill_over_.options().threshold_us), [this] {
    look_timer_ = 0;
    LookAtKept();
    ArmLook();
  });
}

void FarLeases::LookAtKept() {
  const std::int64_t now = base::NowMicros();
  std::vector<Key> up;
  for (auto it = kept_.begin(); it != kept_.end();) {
    if (!leases_.queue().IsWaiting(it->first)) {
      it = kept_.erase(it);
      continue;
    }
    const Strategy& strategy = it->second.message.strategy;
    const bool may_go = strategy.bundle < 0 && !placer_.PinnedHere(strategy) &&
                        !leases_.QuotaUsedUp(it->second.job, it->second.message.need);
    if ((now >= it->second.ask_at_us && cluster_.HasOthers() && cluster_.connected() && may_go) || draining_) {
      up.push_back(it->first);
    }
    ++it;
  }
  for (const Key& key : up) {
    Far& far = far_[key];
    far.job = kept_[key].job;
    far.message = std::move(kept_[key].message);
    far.local = true;
    kept_.erase(key);
    Place(key);
  }
}

// ---- what other nodes answer ----

FarLeases::Far* FarLeases::FindByNumber(NodeNumber from, std::uint64_t number, Key* key) {
  const auto named = by_number_.find(number);
  if (named == by_number_.end()) return nullptr;
  const auto it = far_.find(named->second);
  if (it == far_.end() || it->second.node != from) return nullptr;
  *key = it->first;
  return &it->second;
}

void FarLeases::RegisterAnswers() {
  NodeLinks& links = cluster_.links();
  links.On<wire::FarLeaseGranted>([this](NodeNumber from, const wire::FarLeaseGranted& message, std::uint64_t) {
    Key key;
    Far* far = FindByNumber(from, message.request, &key);
    if (far == nullptr || far->state != Far::State::kAsked) return;
    far->state = Far::State::kGiven;
    far->worker = message.worker;
    far->refused.clear();
    peers_.Send(key.owner, wire::LeaseGranted{key.request, message.worker, message.pid, message.address, message.pass});
  });
  links.On<wire::FarLeaseRefused>([this](NodeNumber from, const wire::FarLeaseRefused& message, std::uint64_t) {
    Key key;
    if (FindByNumber(from, message.request, &key) == nullptr) return;
    if (message.bounced) return Anew(key, true);
    Refuse(key, message.failure);
  });
  links.On<wire::FarLeaseEnded>([this](NodeNumber from, const wire::FarLeaseEnded& message, std::uint64_t) {
    Key key;
    const Far* far = FindByNumber(from, message.request, &key);
    if (far == nullptr) return;
    if (far->moves && far->state == Far::State::kAsked) return Anew(key, true);
    peers_.Send(key.owner, wire::LeaseEnded{key.request});
    Forget(key);
  });
  links.On<wire::FarLeaseLost>([this](NodeNumber from, const wire::FarLeaseLost& message, std::uint64_t) {
    Key key;
    Far* far = FindByNumber(from, message.request, &key);
    if (far == nullptr) return;
    if (far->state != Far::State::kGiven) {
      // Before it could be reached: nothing of the owner's was there. One that always dies is the program's fault.
      if (++far->lost > kManyLost) return Refuse(key, message.failure);
      return Anew(key, true);
    }
    peers_.Send(key.owner, wire::LeaseLost{key.request, message.worker, message.failure, message.token});
    Forget(key);
  });
  links.On<wire::FarJobBegun>([this](NodeNumber from, const wire::FarJobBegun& message, std::uint64_t) {
    const wire::JobFacts* facts = host_.facts(message.job);
    if (facts != nullptr && facts->home == cluster_.self().number) {
      job_nodes_[message.job].insert(from);
    } else {
      cluster_.links().Send(from, wire::FarJobEnded{message.job});
    }
  });
  links.On<wire::DescribeJob>([this](NodeNumber from, const wire::DescribeJob& message, std::uint64_t call) {
    programs_.Describe(message.job, false, [this, alive = alive_, from, call](const Result<wire::JobFacts>& facts) {
      if (!*alive) return;
      if (!facts.ok()) return cluster_.links().Fail(from, call, facts.status());
      cluster_.links().Answer(from, call, wire::JobDescribed{facts.value()});
    });
  });
}

// ---- owners of other nodes ----

void FarLeases::Register() {
  NodeLinks& links = cluster_.links();
  links.On<wire::FarLease>(
      [this](NodeNumber from, const wire::FarLease& message, std::uint64_t) { OnFarLease(from, message); });
  links.On<wire::FarLeaseCancel>([this](NodeNumber from, const wire::FarLeaseCancel& message, std::uint64_t) {
    if (const auto it = serving_.find({from, message.request}); it != serving_.end()) {
      return leases_.CancelFar(Key(it->second));
    }
    for (auto& [job, coming] : coming_) {
      const auto gone = std::erase_if(coming.waiting, [&](const auto& entry) {
        return entry.first == from && entry.second.request == message.request;
      });
      if (gone > 0) cluster_.links().Send(from, wire::FarLeaseEnded{message.request});
    }
  });
  links.On<wire::FarLeaseBroken>([this](NodeNumber from, const wire::FarLeaseBroken& message, std::uint64_t) {
    const auto it = serving_.find({from, message.request});
    if (it == serving_.end()) return;
    leases_.BreakFar(Key(it->second),
                     Failure{Code::kWorkerCrashed, Cat("its owner cannot reach it: ", message.why), {}, {}});
  });
  links.On<wire::FarOwnerGone>([this](NodeNumber from, const wire::FarOwnerGone& message, std::uint64_t) {
    if (NodeOf(message.owner) == from) OwnerGone(message.owner, false, {});
  });
  links.On<wire::FarKillWorker>([this](NodeNumber from, const wire::FarKillWorker& message, std::uint64_t) {
    const ProcessId stand_in = StandInOf(message.owner);
    if (NodeOf(message.owner) == from && stand_in != kNoProcess) host_.kill_worker(stand_in, message.order);
  });
  links.On<wire::FarJobEnded>([this](NodeNumber from, const wire::FarJobEnded& message, std::uint64_t) {
    coming_.erase(message.job);  // nobody waits for it any more, either
    if (!host_.end_job(message.job)) cluster_.links().Send(from, wire::FarJobGone{message.job});
  });
  links.On<wire::FarJobGone>(
      [this](NodeNumber from, const wire::FarJobGone& message, std::uint64_t) { EndedOn(from, message.job); });
  links.WhenDown([this](NodeNumber node, const Status& why) { NodeDown(node, why); });
  leases_.OnFar(Leases::FarEvents{
      [this](const Key& key, const wire::LeaseGranted& grant) {
        cluster_.links().Send(NodeOfStandIn(key.owner),
                              wire::FarLeaseGranted{key.request, grant.worker, grant.pid, grant.address, grant.pass});
      },
      [this](const Key& key, const Failure& why) {
        Failure named = why;
        named.message = Cat("node ", cluster_.self().name, ": ", why.message);
        cluster_.links().Send(NodeOfStandIn(key.owner), wire::FarLeaseRefused{key.request, false, named});
        Over(key);
      },
      [this](const Key& key) {
        cluster_.links().Send(NodeOfStandIn(key.owner), wire::FarLeaseEnded{key.request});
        Over(key);
      },
      [this](const Key& key, const wire::LeaseLost& lost) {
        cluster_.links().Send(NodeOfStandIn(key.owner),
                              wire::FarLeaseLost{key.request, lost.worker, lost.failure, lost.token});
        Over(key);
      },
  });
}

NodeNumber FarLeases::NodeOfStandIn(ProcessId stand_in) const {
  const auto it = owners_.find(stand_in);
  return it == owners_.end() ? 0 : it->second.node;
}

ProcessId FarLeases::StandInOf(ProcessId owner) const {
  const auto it = stand_ins_.find(owner);
  return it == stand_ins_.end() ? kNoProcess : it->second;
}

std::vector<std::pair<ProcessId, ProcessId>> FarLeases::Owners() const {
  std::vector<std::pair<ProcessId, ProcessId>> out;
  out.reserve(owners_.size());
  for (const auto& [stand_in, owner] : owners_) out.emplace_back(stand_in, owner.owner);
  return out;
}

void FarLeases::Over(const Key& key) {
  const NodeNumber node = NodeOfStandIn(key.owner);
  serving_.erase({node, key.request});
}

void FarLeases::Bounce(NodeNumber from, const wire::FarLease& message, const std::string& why) {
  cluster_.links().Send(
      from, wire::FarLeaseRefused{message.request, true,
                                  Failure{Code::kUnavailable, Cat("node ", cluster_.self().name, ": ", why), {}, {}}});
  cluster_.LoadChanged();
}

void FarLeases::OnFarLease(NodeNumber from, const wire::FarLease& message) {
  if (NodeOf(message.owner) != from) return;
  if (draining_) return Bounce(from, message, "it is being drained");
  if (const Id& group = message.strategy.group; !group.empty()) {
    if (!placer_.AllowsHere(message.strategy)) return Bounce(from, message, "it has no such bundle");
    const Resources need = InBundle(message.need, group, message.strategy.bundle);
    if (!message.final && !leases_.queue().free().Covers(need)) return Bounce(from, message, "its bundles are in use");
  } else {
    if (const Status fits = leases_.Check(message.need, "task"); !fits.ok()) {
      return Bounce(from, message, fits.message());
    }
    Recount();
    const std::size_t index = load_.Index(message.function, message.need);
    if (!spill_over_.Take(load_, index, leases_.FreeFor(kNoProcess, 0), message.expected_wait_us, message.final,
                          draining_)) {
      return Bounce(from, message, "it is too busy");
    }
  }
  if (message.ticket != 0) arrived_.push_back(message.ticket);
  if (host_.knows_job(message.job.job)) return Accept(from, message);
  Expect(message.job).waiting.emplace_back(from, message);
}

FarLeases::Coming& FarLeases::Expect(const wire::JobFacts& facts) {
  const auto [it, fresh] = coming_.try_emplace(facts.job);
  if (!fresh) return it->second;
  cluster_.links().Send(facts.home, wire::FarJobBegun{facts.job});
  // From the loop: whoever waits for it must stand in the list before it comes.
  loop_.After(0, [this, alive = alive_, facts] {
    if (!*alive) return;
    programs_.Get(facts, [this, alive, facts](Result<base::Fd> executable) {
      if (*alive) ProgramCame(facts.job, facts, std::move(executable));
    });
  });
  return it->second;
}

void FarLeases::WhenJobIsHere(const wire::JobFacts& facts, std::function<void(const Status&)> done) {
  if (host_.knows_job(facts.job)) return done({});
  Expect(facts).others.push_back(std::move(done));
}

void FarLeases::ProgramCame(const Id& job, const wire::JobFacts& facts, Result<base::Fd> executable) {
  const auto it = coming_.find(job);
  if (it == coming_.end()) return;
  const Coming coming = std::move(it->second);
  coming_.erase(it);
  const bool wanted = !coming.waiting.empty() || !coming.others.empty();
  if (executable.ok() && wanted && !host_.knows_job(job)) host_.add_job(facts, std::move(*executable));
  for (const auto& other : coming.others) other(executable.status());
  for (const auto& [from, message] : coming.waiting) {
    if (executable.ok()) {
      Accept(from, message);
    } else if (executable.status().code() == Code::kNotFound) {
      Bounce(from, message, executable.status().message());
    } else {
      cluster_.links().Send(
          from,
          wire::FarLeaseRefused{message.request, false,
                                Failure{executable.status().code(),
                                        Cat("node ", cluster_.self().name, " cannot get the program ", facts.program,
                                            " from node ", facts.home, ": ", executable.status().message()),
                                        {},
                                        {}}});
    }
  }
}

void FarLeases::Accept(NodeNumber from, const wire::FarLease& message) {
  const ProcessId stand_in = NeedStandIn(message.owner);
  if (stand_in == kNoProcess) return Bounce(from, message, "it has no room for another process");
  if (!message.strategy.group.empty() && !placer_.AllowsHere(message.strategy)) {  // gone while the program came
    return Bounce(from, message, "it has no such bundle any more");
  }
  const Key key{stand_in, message.request};
  serving_[{from, message.request}] = key;
  if (message.strategy.group.empty()) {
    Recount();
    const auto it = waiting_.find({stand_in, message.queue});
    const std::size_t requests = 1 + (it == waiting_.end() ? 0 : it->second.requests.size());
    Count(stand_in, message.queue, message.request, message.function, message.need,
          static_cast<std::int64_t>(message.waiting * requests), message.mean_run_us);
  }
  const Status status =
      leases_.RequestFar(rules::LeaseWant{key, message.need, message.priority, false, message.queue, false},
                         message.job.job, message.strategy);
  if (status.ok()) return;
  serving_.erase({from, message.request});
  cluster_.links().Send(from, wire::FarLeaseRefused{message.request, false, ToFailure(status)});
}

ProcessId FarLeases::NeedStandIn(ProcessId owner) {
  ProcessId stand_in = StandInOf(owner);
  if (stand_in != kNoProcess) return stand_in;
  stand_in = host_.stand_in();
  if (stand_in == kNoProcess) return kNoProcess;
  stand_ins_[owner] = stand_in;
  owners_[stand_in] = Owner{owner, NodeOf(owner)};
  leases_.AddFarOwner(stand_in, owner);
  return stand_in;
}

void FarLeases::OwnerGone(ProcessId owner, bool kill, const Failure& why) {
  const auto it = stand_ins_.find(owner);
  if (it == stand_ins_.end()) return;
  const ProcessId stand_in = it->second;
  stand_ins_.erase(it);
  owners_.erase(stand_in);
  leases_.RemoveFarOwner(stand_in);
  std::erase_if(serving_, [&](const auto& entry) { return entry.second.owner == stand_in; });
  if (kill) leases_.KillServing(stand_in, why);
  leases_.OwnerDied(stand_in);
  host_.gone(stand_in);
}

void FarLeases::NodeDown(NodeNumber node, const Status& why) {
  // Those it served for us.
  std::vector<std::pair<Key, Far::State>> keys;
  for (const auto& [key, far] : far_) {
    if (far.node == node && far.state != Far::State::kPlacing) keys.emplace_back(key, far.state);
  }
  const Failure failure{Code::kWorkerCrashed, Cat("its node is out of reach: ", why.message()), {}, {}};
  for (const auto& [key, state] : keys) {
    if (state == Far::State::kGiven) {
      peers_.Send(key.owner, wire::LeaseLost{key.request, far_[key].worker, failure, 0});
      Forget(key);
    } else {
      Anew(key, true);
    }
  }
  for (auto& [owner, nodes] : asked_nodes_) nodes.erase(node);
  std::vector<Id> ended;
  for (const auto& [job, nodes] : ending_) {
    if (nodes.contains(node)) ended.push_back(job);
  }
  for (const Id& job : ended) EndedOn(node, job);
  // Those we served for it.
  std::vector<ProcessId> owners;
  for (const auto& [stand_in, owner] : owners_) {
    if (owner.node == node) owners.push_back(owner.owner);
  }
  for (const ProcessId owner : owners) {
    OwnerGone(owner, true, Failure{Code::kCancelled, Cat("its owner is out of reach: ", why.message()), {}, {}});
  }
  for (auto& [job, coming] : coming_) {
    std::erase_if(coming.waiting, [&](const auto& entry) { return entry.first == node; });
  }
}

// ---- the node's load ----

std::size_t FarLeases::Count(ProcessId owner, std::uint64_t queue, std::uint64_t request, std::uint64_t function,
                             const Resources& need, std::int64_t tasks, double mean_run_us) {
  Recount();
  const auto [it, fresh] = waiting_.try_emplace({owner, queue});
  Waiting& waiting = it->second;
  if (fresh) waiting.index = load_.Index(ClassOf(function, need), need);
  waiting.requests.insert(request);
  load_.Queued(waiting.index, tasks - waiting.tasks);
  waiting.tasks = tasks;
  if (mean_run_us > 0) load_.Ran(waiting.index, mean_run_us);
  return waiting.index;
}

void FarLeases::Recount() {
  if (std::exchange(recounted_, true)) return;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Waiting& waiting = it->second;
    const ProcessId owner = it->first.first;
    std::erase_if(waiting.requests,
                  [&](std::uint64_t request) { return !leases_.queue().IsWaiting(Key{owner, request}); });
    if (!waiting.requests.empty()) {
      ++it;
      continue;
    }
    load_.Queued(waiting.index, -waiting.tasks);
    it = waiting_.erase(it);
  }
}

void FarLeases::Describe(rules::Heartbeat* heartbeat) {
  recounted_ = false;
  Recount();
  heartbeat->total = leases_.queue().total();
  heartbeat->available = heartbeat->total;
  heartbeat->available.Subtract(leases_.InUse());
  heartbeat->backlog = load_.Backlogs();
  heartbeat->classes = load_.Classes();
  heartbeat->labels = cluster_.self().labels;
  heartbeat->draining = draining_;
  heartbeat->arrived = std::exchange(arrived_, {});
  heartbeat->reservable = Plain(leases_.queue().loose());
}

void FarLeases::StartDraining() {
  if (std::exchange(draining_, true)) return;
  std::vector<std::pair<std::pair<NodeNumber, std::uint64_t>, Key>> waiting;
  for (const auto& [name, key] : serving_) {
    if (leases_.queue().IsWaiting(key)) waiting.emplace_back(name, key);
  }
  for (const auto& [name, key] : waiting) {
    if (!leases_.TakeOut(key)) continue;
    serving_.erase(name);
    cluster_.links().Send(
        name.first,
        wire::FarLeaseRefused{name.second, true, Failure{Code::kUnavailable, "the node is being drained", {}, {}}});
  }
  LookAtKept();
  leases_.RevokeAll();
  cluster_.LoadChanged();
}

void FarLeases::EndRound() {
  recounted_ = false;
  const bool full = leases_.queue().free().Get("CPU") < kUnit || leases_.queue().waiting() > 0;
  if (full == was_full_ && arrived_.empty()) return;
  was_full_ = full;
  cluster_.LoadChanged();
}

}  // namespace manta::node
