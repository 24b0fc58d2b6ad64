// How the detached actors that are at home on this node leave it when it is drained: what Actors and FarActors do for
// that.
//
//   Hold: its process ends --> KeptActors::Leave: nothing of its journal is under way, the head appoints another home,
//   which gets all that is kept and goes on --> Move: who calls it is told where it is at home now
//
// If nobody else can be its home, this node is appointed like any other, and begins anew with what the head has: it
// cannot know whether another one had it meanwhile.
//
// From its death on the process has acted as if this node had been lost: what the head does not have, nobody has seen.
// So nothing can be lost or come twice, whoever dies meanwhile.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "node/actors.h"
#include "node/far_actors.h"

namespace manta::node {
namespace {

constexpr std::int64_t kTryAgainUs = 60'000'000;  // of one that no other node could have: each time costs a restart

}  // namespace

// ---- Actors ----

std::vector<Id> Actors::MayMove(const std::function<bool(const wire::ActorOptions&)>& place) const {
  std::vector<Id> out;
  for (const auto& [id, record] : records_) {
    const rules::ActorTable::Actor* known = table_.Get(id);
    if (record.held || known == nullptr || known->phase != rules::ActorPhase::kAlive) continue;
    const wire::ActorOptions& options = record.options;
    const bool again = options.max_restarts < 0 || static_cast<std::int64_t>(known->epoch) < options.max_restarts;
    if (!again || !options.replay || options.concurrency != 1 || !elsewhere_->Keeps(id)) continue;
    // Whether a group has room for it elsewhere is known when it runs there.
    if (record.host == 0 && !options.strategy.group.empty()) continue;
    if (place(options)) out.push_back(id);
  }
  return out;
}

void Actors::Hold(const Id& actor, const Failure& why, std::function<void()> stopped) {
  Record& record = records_.at(actor);
  record.held = true;
  record.stopped = std::move(stopped);
  if (record.host != 0) return elsewhere_->Stop(record.host, wire::FarStopActor{actor, record.epoch, true, why});
  if (record.worker != nullptr) return pool_.Kill(*record.worker, why);
  Stopped(record);
}

void Actors::Stopped(Record& record) {
  if (const auto stopped = std::exchange(record.stopped, nullptr)) stopped();
}

void Actors::Bury(const Id& actor, const Failure& why) {
  const auto it = records_.find(actor);
  if (it == records_.end()) return;
  it->second.held = false;
  const rules::ActorTable::Actor* known = table_.Get(actor);
  if (known == nullptr || known->phase == rules::ActorPhase::kDead) TellGone(actor, it->second);
  rules::ActorActions actions;
  table_.Lost(actor, why, &actions);
  Perform(actions);
  Tidy(actor);
}

Actors::Moved Actors::Move(const Id& actor) {
  const auto node = records_.extract(actor);
  const Record& record = node.mapped();
  table_.Moved(actor);
  directory_.Empty(actor);
  return {record.options, record.job, record.watchers, record.nodes};
}

// ---- FarActors ----

void FarActors::LeaveHomes() {
  const std::int64_t now = base::NowMicros();
  const auto place = [this](const wire::ActorOptions& options) {
    const std::vector<rules::NodeOffer> offers = Offers(options.strategy);
    return std::any_of(offers.begin(), offers.end(), [&](const rules::NodeOffer& offer) {
      if (offer.node == self() || offer.draining) return false;
      return !options.strategy.group.empty() || offer.CanHold(options.need);
    });
  };
  const Failure drained{Code::kActorDied, Cat("node ", parts_.cluster.self().name, " is drained"), {}, {}};
  for (const Id& actor : parts_.actors.MayMove(place)) {
    if (const auto it = staying_.find(actor); it != staying_.end() && now < it->second) continue;
    parts_.actors.Hold(actor, drained, [this, alive = alive_, actor] {
      // From the loop: its process is just being buried.
      parts_.loop.After(0, [this, alive, actor] {
        if (!*alive) return;
        kept_.Leave(actor, [this, alive, actor](const Result<NodeNumber>& home) {
          if (*alive) Left(actor, home);
        });
      });
    });
  }
}

void FarActors::Left(const Id& actor, const Result<NodeNumber>& home) {
  const Status why(Code::kWorkerCrashed, Cat("node ", parts_.cluster.self().name, " is drained"));
  if (!home.ok()) {  // it was killed meanwhile, or cannot come back
    return parts_.actors.Bury(actor, ToFailure(home.status().code() == Code::kNotFound ? why : home.status()));
  }
  staying_[actor] = base::NowMicros() + kTryAgainUs;
  if (!IsHere(home.value())) TakeOut(actor, home.value());
  const auto it = moved_.find(actor);
  if (it == moved_.end()) return;
  Gone& gone = it->second;
  gone.home = home.value();
  if (gone.killed && IsHere(gone.home)) parts_.actors.Kill(actor, false);
  if (gone.killed && !IsHere(gone.home)) {
    parts_.cluster.links().Send(gone.home, wire::FarKillActor{actor, false});
  }
  for (const NodeNumber node : gone.nodes) {
    if (parts_.cluster.Find(node) == nullptr) continue;
    parts_.cluster.links().Send(node, wire::ActorMoved{actor, gone.home});
  }
  if (IsHere(gone.home)) {
    moved_.erase(it);
  } else if (seen_.contains(actor)) {
    HomeFound(actor, gone.home, why);
  }
}

// Nothing of it is left here. `home`: where it is now; 0: it comes back.
void FarActors::TakeOut(const Id& actor, NodeNumber home) {
  if (!parts_.actors.Knows(actor)) return;
  const bool killed = !parts_.actors.IsDetached(actor);
  spread_.Remove(actor);
  Actors::Moved moved = parts_.actors.Move(actor);
  if (!moved.watchers.empty()) seen_[actor].watchers = std::move(moved.watchers);
  moved_[actor] = Gone{home, killed, std::move(moved.options), std::move(moved.nodes)};
  host_.check_job(moved.job);
}

void FarActors::OnMoved(NodeNumber from, const wire::ActorMoved& message) {
  const auto it = seen_.find(message.actor);
  if (it == seen_.end() || it->second.home != from) return;
  const Status why(Code::kWorkerCrashed, Cat("node ", parts_.cluster.NameOf(from), " is drained"));
  const bool known = IsHere(message.home) ? kept_.Has(message.actor) : parts_.cluster.Find(message.home) != nullptr;
  if (known) return HomeFound(message.actor, message.home, why);
  it->second.home = 0;
  LookForHome(message.actor, from, why);
}

}  // namespace manta::node
