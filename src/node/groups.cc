#include "node/groups.h"

#include <algorithm>

#include "base/clock.h"

namespace manta::node {
namespace {

Status NoSuchGroup(const Id& group) {
  return {Code::kNotFound, Cat("placement group (", ToString(group), ") was removed, or never made in this cluster")};
}

}  // namespace

Groups::Groups(base::Loop& loop, Peers& peers, Leases& leases, KnowsJob knows_job)
    : loop_(loop), peers_(peers), leases_(leases), knows_job_(std::move(knows_job)) {}

Groups::~Groups() {
  *alive_ = false;
  loop_.Cancel(timer_);
  for (const auto& [key, held] : held_) loop_.Cancel(held.deadline);
}

// ---- what the head says ----

bool Groups::OnHeadFrame(const wire::Frame& frame) {
  if (const Result<wire::GroupsView> view = frame.As<wire::GroupsView>(); view.ok()) {
    if (view.value().whole) Whole(view.value());
    for (const GroupFacts& facts : view.value().groups) Learn(facts);
  } else if (const Result<wire::ReserveBundle> reserve = frame.As<wire::ReserveBundle>(); reserve.ok()) {
    Reserve(reserve.value());
  } else if (const Result<wire::CommitBundle> commit = frame.As<wire::CommitBundle>(); commit.ok()) {
    Commit(commit.value().group, commit.value().attempt, commit.value().bundle);
  } else if (const Result<wire::ReleaseBundle> release = frame.As<wire::ReleaseBundle>(); release.ok()) {
    Release(release.value().group, release.value().attempt, release.value().bundle, "its placement group was removed");
  } else {
    return false;
  }
  return true;
}

// The head is (again) there: what it does not know of is nobody's.
void Groups::Whole(const wire::GroupsView& view) {
  std::map<Id, const GroupFacts*> there;
  for (const GroupFacts& facts : view.groups) there[facts.group] = &facts;
  std::vector<std::pair<Id, std::string>> gone;
  for (const auto& [id, facts] : known_) {
    if (!there.contains(id)) gone.emplace_back(id, NameOf(facts));
  }
  for (const auto& [id, name] : gone) Removed(id, name, "the head does not know it any more");
  std::vector<Key> release;
  for (const auto& [key, held] : held_) {
    const auto& [group, bundle, attempt] = key;
    const auto it = there.find(group);
    const bool mine = it != there.end() && bundle < it->second->nodes.size() && it->second->nodes[bundle] == self();
    if (!mine || held.state != Held::State::kCommitted) release.push_back(key);
  }
  for (const Key& key : release) End(key, held_[key], "its placement group was removed");
  for (const auto& [id, facts] : there) {
    if (facts->home == self() && !facts->detached && !knows_job_(facts->job)) {
      cluster_->Tell(wire::JobGone{facts->job});
    }
  }
}

// ---- bundles of this node ----

void Groups::Reserve(const wire::ReserveBundle& order) {
  const auto& [group, attempt, bundle, need, job, home, quota] = order;
  const Key key{group, bundle, attempt};
  if (const auto it = held_.find(key); it != held_.end()) {
    if (it->second.state == Held::State::kReserved) Answer(key, wire::BundleAnswer::What::kReserved);
    return;
  }
  if (draining_ || !leases_.Check(need, "a bundle").ok()) return Answer(key, wire::BundleAnswer::What::kRefused);
  held_[key].need = need;
  if (!quota.empty() && on_quota_) on_quota_(job, home, quota);
  const Result<std::uint64_t> request = leases_.Reserve(
      need,
      [this, key](std::uint64_t lease, const std::vector<std::uint32_t>& gpus) {
        const auto it = held_.find(key);
        if (it == held_.end()) return leases_.EndReservation(lease);
        it->second.state = Held::State::kReserved;
        it->second.lease = lease;
        it->second.gpus = gpus;
        loop_.Cancel(std::exchange(it->second.deadline, 0));
        // Not from within the queue: the answer may lead to the next request at once.
        loop_.After(0, [this, alive = alive_, key] {
          if (*alive && held_.contains(key)) Answer(key, wire::BundleAnswer::What::kReserved);
        });
      },
      job);
  Held& held = held_[key];
  if (!request.ok()) {
    held_.erase(key);
    return Answer(key, wire::BundleAnswer::What::kRefused);
  }
  held.request = request.value();
  if (held.state != Held::State::kAsked) return;
  held.deadline = loop_.After(kReserveUs, [this, key] {
    const auto it = held_.find(key);
    if (it == held_.end() || it->second.state != Held::State::kAsked) return;
    leases_.CancelReservation(it->second.request);
    held_.erase(it);
    Answer(key, wire::BundleAnswer::What::kRefused);
  });
}

void Groups::Commit(const Id& group, std::uint64_t attempt, std::uint32_t bundle) {
  const Key key{group, bundle, attempt};
  const auto it = held_.find(key);
  if (it == held_.end() || it->second.state == Held::State::kAsked || it->second.state == Held::State::kEnding) {
    return Answer(key, wire::BundleAnswer::What::kRefused);
  }
  if (it->second.state == Held::State::kReserved) {
    it->second.state = Held::State::kCommitted;
    leases_.AddBundle(BundlePool(it->second.need, group, static_cast<std::int32_t>(bundle)), it->second.gpus);
  }
  Answer(key, wire::BundleAnswer::What::kCommitted);
}

void Groups::Release(const Id& group, std::uint64_t attempt, std::uint32_t bundle, const std::string& why) {
  std::vector<Key> keys;
  for (const auto& [key, held] : held_) {
    // After a restart the head knows the bundles of a group by the last attempt of any.
    if (std::get<0>(key) == group && std::get<1>(key) == bundle && std::get<2>(key) <= attempt) keys.push_back(key);
  }
  for (const Key& key : keys) End(key, held_[key], why);
}

void Groups::End(const Key& key, Held& held, const std::string& why) {
  const auto [group, bundle, attempt] = key;
  loop_.Cancel(std::exchange(held.deadline, 0));
  switch (held.state) {
    case Held::State::kAsked: {
      const std::uint64_t request = held.request;
      held_.erase(key);
      return leases_.CancelReservation(request);
    }
    case Held::State::kReserved: {
      const std::uint64_t lease = held.lease;
      held_.erase(key);
      return leases_.EndReservation(lease);
    }
    case Held::State::kEnding:
      return;
    case Held::State::kCommitted:
      break;
  }
  held.state = Held::State::kEnding;
  ++ending_;
  const auto known = known_.find(group);
  const std::string name =
      known == known_.end() ? Cat("placement group (", ToString(group), ")") : NameOf(known->second);
  const Failure failure{Code::kNotFound, Cat("it ran in bundle ", bundle, " of ", name, ": ", why), {}, {}};
  leases_.EmptyBundle(group, static_cast<std::int32_t>(bundle), failure);
  if (OnlyOne(key)) {
    leases_.EmptyBundle(group, -1, Failure{Code::kNotFound, Cat("it ran in ", name, ": ", why), {}, {}});
  }
  loop_.After(0, [] {});  // for EndRound
}

bool Groups::OnlyOne(const Key& key) const {
  return std::none_of(held_.begin(), held_.end(), [&](const auto& entry) {
    return std::get<0>(entry.first) == std::get<0>(key) && entry.second.state == Held::State::kCommitted &&
           entry.first != key;
  });
}

bool Groups::TryGiveBack(const Key& key, Held& held) {
  const auto& [group, number, attempt] = key;
  const auto bundle = static_cast<std::int32_t>(number);
  const bool last = OnlyOne(key);
  if (leases_.InBundleNow(group, bundle) || (last && leases_.InBundleNow(group, -1))) return false;
  if (!leases_.RemoveBundle(BundlePool(held.need, group, bundle), held.gpus)) {
    // Tasks of any bundle use so much that what stays cannot hold them all.
    if (held.state == Held::State::kEnding) {
      leases_.EmptyBundle(group, -1, Failure{Code::kNotFound, "a bundle of its placement group was released", {}, {}});
    }
    return false;
  }
  leases_.EndReservation(held.lease);
  return true;
}

void Groups::EndRound() {
  if (ending_ > 0 || (draining_ && !held_.empty())) {
    for (auto it = held_.begin(); it != held_.end();) {
      const bool ends = it->second.state == Held::State::kEnding;
      const bool goes = ends || (draining_ && it->second.state == Held::State::kCommitted);
      if (!goes || !TryGiveBack(it->first, it->second)) {
        ++it;
        continue;
      }
      if (ends) --ending_;
      it = held_.erase(it);
    }
  }
  if (cluster_ != nullptr) return;
  const bool waits = std::any_of(table_.all().begin(), table_.all().end(),
                                 [](const auto& entry) { return entry.second.state == GroupState::kWaiting; });
  if (waits) Hear();
}

void Groups::Answer(const Key& key, wire::BundleAnswer::What what) {
  const auto& [group, bundle, attempt] = key;
  wire::BundleAnswer answer{group, attempt, bundle, what, {}};
  if (what == wire::BundleAnswer::What::kRefused) answer.available = Plain(leases_.queue().loose());
  if (cluster_ == nullptr) return Answered(answer);
  cluster_->Tell(answer);
}

bool Groups::Holds(const Strategy& strategy) const {
  return std::any_of(held_.begin(), held_.end(), [&](const auto& entry) {
    return std::get<0>(entry.first) == strategy.group && entry.second.state == Held::State::kCommitted &&
           (strategy.bundle < 0 || std::get<1>(entry.first) == static_cast<std::uint32_t>(strategy.bundle));
  });
}

// ---- what is known of groups ----

void Groups::Learn(const GroupFacts& facts) {
  if (facts.state == GroupState::kRemoved) return Removed(facts.group, NameOf(facts), facts.why);
  GroupFacts& known = known_[facts.group];
  if (known.changes >= facts.changes) return;
  known = facts;
  if (const auto it = watchers_.find(facts.group); it != watchers_.end()) {
    for (const ProcessId process : it->second) Tell(process, facts);
  }
  if (facts.state != GroupState::kReady) return;
  const auto it = waiting_.find(facts.group);
  if (it == waiting_.end()) return;
  const std::vector<Waiter> waiters = std::move(it->second);
  waiting_.erase(it);
  for (const Waiter& waiter : waiters) WhenReady(waiter.strategy, waiter.need, waiter.done);
}

void Groups::Removed(const Id& group, const std::string& name, const std::string& why) {
  known_.erase(group);
  if (const auto it = watchers_.find(group); it != watchers_.end()) {
    GroupFacts facts;
    facts.group = group;
    facts.state = GroupState::kRemoved;
    facts.why = Cat(name, ": ", why);
    for (const ProcessId process : it->second) Tell(process, facts);
    watchers_.erase(it);
  }
  const auto it = waiting_.find(group);
  if (it == waiting_.end()) return;
  const std::vector<Waiter> waiters = std::move(it->second);
  waiting_.erase(it);
  for (const Waiter& waiter : waiters) waiter.done(Status(Code::kNotFound, Cat(name, ": ", why)));
}

void Groups::Tell(ProcessId process, const GroupFacts& facts) { peers_.Send(process, wire::GroupChanged{facts}); }

void Groups::WhenReady(const Strategy& strategy, const Resources& need, OnReady done) {
  const auto it = known_.find(strategy.group);
  if (it == known_.end()) {
    if (cluster_ == nullptr) return done(NoSuchGroup(strategy.group));
    // Made a moment ago, by somebody on another node.
    cluster_->Ask<wire::GroupMade>(
        wire::FindGroup{strategy.group, {}, {}},
        [this, alive = alive_, strategy, need, done = std::move(done)](const Result<wire::GroupMade>& found) {
          if (!*alive) return;
          if (!found.ok()) return done(found.status());
          Learn(found.value().facts);
          if (!known_.contains(strategy.group)) return done(NoSuchGroup(strategy.group));
          WhenReady(strategy, need, done);
        });
    return;
  }
  const GroupFacts& facts = it->second;
  const Result<std::vector<std::uint32_t>> able = rules::AbleBundles(facts, strategy.bundle, need);
  if (!able.ok()) return done(able.status());
  if (facts.state != GroupState::kReady) {
    waiting_[strategy.group].push_back({strategy, need, std::move(done)});
    return;
  }
  std::vector<NodeNumber> nodes;
  for (const std::uint32_t bundle : able.value()) {
    if (std::find(nodes.begin(), nodes.end(), facts.nodes[bundle]) == nodes.end()) nodes.push_back(facts.nodes[bundle]);
  }
  done(std::move(nodes));
}

// ---- processes ----

template <typename Reply, typename M>
void Groups::Forward(Peer& peer, std::uint64_t call, const M& message, const std::function<void(const Reply&)>& first) {
  cluster_->Ask<Reply>(message,
                       [this, alive = alive_, process = peer.process, call, first](const Result<Reply>& reply) {
                         if (!*alive) return;
                         if (!reply.ok()) return peers_.Send(process, wire::Failed{ToFailure(reply.status())}, call);
                         if (first) first(reply.value());
                         peers_.Send(process, reply.value(), call);
                       });
}

void Groups::Create(Peer& peer, std::uint64_t call, wire::CreateGroup message, NodeNumber home,
                    const Resources& quota) {
  message.facts.quota = quota;
  message.facts.job = peer.job;
  message.facts.home = home;
  if (cluster_ != nullptr) {
    return Forward<wire::GroupMade>(peer, call, message, [this](const wire::GroupMade& made) { Learn(made.facts); });
  }
  Hear();
  rules::GroupTable::Out out;
  const Status made = table_.Create(message.facts, true, base::NowMicros(), &out);
  if (made.ok()) {
    peer.connection->Send(wire::GroupMade{*table_.Find(message.facts.group)}, call);
  } else {
    peer.connection->Fail(call, made);
  }
  Carry(std::move(out));
}

void Groups::Remove(Peer& peer, std::uint64_t call, const wire::RemoveGroup& message) {
  if (cluster_ != nullptr) return Forward<wire::Done>(peer, call, message);
  rules::GroupTable::Out out;
  table_.Remove(message.group, "it was removed", base::NowMicros(), &out);
  Carry(std::move(out));
  peer.connection->Send(wire::Done{}, call);
}

void Groups::Find(Peer& peer, std::uint64_t call, const wire::FindGroup& message) {
  if (cluster_ != nullptr) {
    return Forward<wire::GroupMade>(peer, call, message, [this](const wire::GroupMade& found) { Learn(found.facts); });
  }
  const GroupFacts* facts =
      message.group.empty() ? table_.Find(message.name, message.space) : table_.Find(message.group);
  if (facts != nullptr) return peer.connection->Send(wire::GroupMade{*facts}, call);
  peer.connection->Fail(call, message.group.empty()
                                  ? Status(Code::kNotFound, Cat("there is no placement group named '", message.name,
                                                                "' in namespace '", message.space, "'"))
                                  : NoSuchGroup(message.group));
}

void Groups::List(Peer& peer, std::uint64_t call) {
  if (cluster_ != nullptr) return Forward<wire::GroupList>(peer, call, wire::ListGroups{});
  wire::GroupList list;
  for (const auto& [id, facts] : table_.all()) list.groups.push_back(facts);
  peer.connection->Send(list, call);
}

void Groups::Watch(Peer& peer, const wire::WatchGroup& message) {
  const auto it = known_.find(message.group);
  if (it != known_.end()) {
    watchers_[message.group].insert(peer.process);
    return Tell(peer.process, it->second);
  }
  const auto gone = [this, id = message.group, process = peer.process](const Status& why) {
    GroupFacts facts;
    facts.group = id;
    facts.state = GroupState::kRemoved;
    facts.why = why.message();
    Tell(process, facts);
  };
  if (cluster_ == nullptr) return gone(NoSuchGroup(message.group));
  cluster_->Ask<wire::GroupMade>(
      wire::FindGroup{message.group, {}, {}},
      [this, alive = alive_, gone, process = peer.process](const Result<wire::GroupMade>& found) {
        if (!*alive || peers_.Find(process) == nullptr) return;
        if (!found.ok()) return gone(found.status());
        watchers_[found.value().facts.group].insert(process);
        Learn(found.value().facts);
        Tell(process, found.value().facts);
      });
}

void Groups::ProcessDied(ProcessId process) {
  for (auto& [id, watchers] : watchers_) watchers.erase(process);
}

void Groups::JobEnded(const Id& job) {
  if (cluster_ != nullptr) {
    cluster_->Tell(wire::JobGone{job});
    return;
  }
  rules::GroupTable::Out out;
  table_.JobEnded(job, base::NowMicros(), &out);
  Carry(std::move(out));
}

// ---- alone ----

void Groups::Carry(rules::GroupTable::Out&& out) {
  // Orders first: what is ended by them is still known by its name.
  for (const rules::GroupAction& order : out.orders) {
    if (const auto* reserve = std::get_if<rules::ReserveBundle>(&order)) {
      const GroupFacts* facts = table_.Find(reserve->group);
      const GroupFacts none;
      const GroupFacts& known = facts == nullptr ? none : *facts;
      Reserve({reserve->group, reserve->attempt, reserve->bundle, reserve->need, known.job, known.home, known.quota});
    } else if (const auto* commit = std::get_if<rules::CommitBundle>(&order)) {
      Commit(commit->group, commit->attempt, commit->bundle);
    } else if (const auto* release = std::get_if<rules::ReleaseBundle>(&order)) {
      Release(release->group, release->attempt, release->bundle, "its placement group was removed");
    }
  }
  for (const GroupFacts& facts : out.changed) Learn(facts);
  Arm();
}

void Groups::Answered(const wire::BundleAnswer& answer) {
  rules::GroupTable::Out out;
  const std::int64_t now = base::NowMicros();
  switch (answer.what) {
    case wire::BundleAnswer::What::kReserved:
      table_.Reserved(answer.group, answer.attempt, answer.bundle, kAlone, now, &out);
      break;
    case wire::BundleAnswer::What::kCommitted:
      table_.Committed(answer.group, answer.attempt, answer.bundle, kAlone, now, &out);
      break;
    case wire::BundleAnswer::What::kRefused:
      table_.Refused(answer.group, answer.attempt, answer.bundle, kAlone, answer.available, now, &out);
      break;
  }
  Carry(std::move(out));
}

void Groups::Hear() {
  rules::GroupTable::Out out;
  table_.NodeHeard(kAlone, leases_.queue().total(), Plain(leases_.queue().loose()), base::NowMicros(), &out);
  Carry(std::move(out));
}

void Groups::Arm() {
  const std::int64_t now = base::NowMicros();
  const std::int64_t due = table_.NextTick(now);
  loop_.Cancel(std::exchange(timer_, 0));
  if (due == rules::PlacementGroups::kNever) return;
  timer_ = loop_.After(std::max<std::int64_t>(due - now, 0), [this] {
    timer_ = 0;
    rules::GroupTable::Out out;
    table_.Tick(base::NowMicros(), &out);
    Carry(std::move(out));
  });
}

}  // namespace manta::node
