// The head and the daemons of the simulated cluster: who lives, who may have which CPUs, what lies where, who holds it.
#include <algorithm>

#include "sim/recovery_world.h"
#include "types/text.h"

namespace manta::sim {

// ---- the head ----

void RecoveryWorld::StartHead() {
  head_up_ = true;
  head_stalls_ = false;
  ++head_life_;
  membership_ = rules::Membership();
  for (const auto& [number, saved] : saved_) membership_.Restore(number, saved.first, saved.second, time_.now_us());
  HeadTick(head_life_);
}

void RecoveryWorld::CrashHead(std::int64_t down_us) {
  if (!head_up_) return;
  ++figures_.heads_killed;
  head_up_ = false;
  ++head_life_;
  time_.After(5'000 + down_us, [this] {
    if (!head_up_) StartHead();
  });
}

void RecoveryWorld::StallHead(std::int64_t length_us) {
  if (!head_up_ || head_stalls_) return;
  head_stalls_ = true;
  time_.After(length_us, [this, life = head_life_] {
    if (head_life_ == life) head_stalls_ = false;
  });
}

void RecoveryWorld::ConnectionClosed(NodeNumber number, std::uint64_t incarnation) {
  if (head_stalls_) {
    time_.After(50'000, [this, number, incarnation] { ConnectionClosed(number, incarnation); });
  }
  if (incarnation == 0 || !HeadHears(number)) return;
  rules::MembershipActions actions;
  membership_.Closed(number, incarnation, &actions);
  Carry(actions);
}

void RecoveryWorld::HeadTick(std::uint64_t life) {
  if (!head_up_ || life != head_life_) return;
  if (!head_stalls_) {
    rules::MembershipActions actions;
    membership_.Tick(time_.now_us(), &actions);
    Carry(actions);
  }
  time_.After(200'000, [this, life] { HeadTick(life); });
}

void RecoveryWorld::Carry(const rules::MembershipActions& actions) {
  bool changed = false;
  for (const rules::MembershipAction& action : actions) {
    if (const auto* came = std::get_if<rules::NodeCameUp>(&action)) {
      saved_[came->node] = {came->incarnation, true};
      changed = true;
    } else if (const auto* died = std::get_if<rules::NodeDied>(&action)) {
      if (saved_[died->node].first == died->incarnation) saved_[died->node].second = false;
      changed = true;
    }
  }
  for (NodeNumber i = 1; i <= model_.nodes && changed; ++i) TellView(i);
}

void RecoveryWorld::TellView(NodeNumber number) {
  On(number, Delay(200), [this, number, life = node(number).life] {
    if (!HeadHears(number) || node(number).life != life || node(number).incarnation == 0) return;
    std::map<NodeNumber, std::uint64_t> view;
    for (const auto& [other, entry] : membership_.nodes()) {
      if (entry.phase != rules::NodePhase::kDead) view[other] = entry.incarnation;
    }
    SetView(number, view);
  });
}

// ---- membership ----

void RecoveryWorld::StartNode(NodeNumber number) {
  SimNode& at = node(number);
  at.up = true;
  ++at.life;
  at.incarnation = 0;
  at.lease = std::make_unique<rules::NodeLease>();
  Resources total;
  total.Set("CPU", std::int64_t{model_.cpus} * kUnit);
  at.leases = std::make_unique<rules::LeaseQueue>(Cat("n", number), total);
  Register(number, at.life);
}

void RecoveryWorld::StopNode(NodeNumber number) {
  SimNode& at = node(number);
  at.up = false;
  ++at.life;
  at.incarnation = 0;
  at.still = false;
  at.held.clear();
  for (auto it = processes_.begin(); it != processes_.end();) {
    it = NodeOf(it->first) == number ? processes_.erase(it) : std::next(it);
  }
  at.references = rules::References();
  at.far_holders.clear();
  at.store.clear();
  at.workers.clear();
  at.requests.clear();
  at.guests.clear();
  at.sockets.clear();
  at.view.clear();
  at.tick_us = -1;
  for (NodeNumber other = 1; other <= model_.nodes; ++other) {
    if (other == number) continue;
    NodeLink& link = LinkOf(number, other);
    ++link.epoch;
    link.up[number < other ? 0 : 1] = false;
  }
}

void RecoveryWorld::Register(NodeNumber number, std::uint64_t life) {
  if (node(number).life != life || node(number).incarnation != 0) return;
  const std::int64_t sent_us = Now(number);
  time_.After(Delay(200), [this, number, life, sent_us] {
    if (!HeadHears(number) || node(number).life != life) return;
    rules::MembershipActions actions;
    const std::uint64_t incarnation = membership_.Register(number, time_.now_us(), &actions);
    Carry(actions);
    time_.After(Delay(200), [this, number, life, sent_us, incarnation] {
      SimNode& at = node(number);
      if (at.life != life || at.head_cut || incarnation <= at.incarnation) return;
      const bool first = at.incarnation == 0;
      at.incarnation = incarnation;
      at.lease->Answered(sent_us);
      TellView(number);
      if (first) Beat(number, life);
    });
  });
  time_.After(100'000, [this, number, life] { Register(number, life); });
}

void RecoveryWorld::Beat(NodeNumber number, std::uint64_t life) {
  SimNode& at = node(number);
  if (at.life != life) return;
  const std::int64_t now = Now(number);
  if (!at.still && !at.lease->MayAct(now) && !model_.faults.ignore_fence) {
    ++figures_.stood_still;
    at.still = true;
    at.still_since_us = now;
  }
  if (at.still && now - at.still_since_us >= kStillUs) return Fence(number);
  time_.After(kBeatUs, [this, number, life] { Beat(number, life); });
  if (at.head_cut) return;
  if (!head_up_) {
    at.lease->Refused(now);
    return GoOn(number);
  }
  time_.After(Delay(200), [this, number, life, now, incarnation = at.incarnation] {
    if (!HeadHears(number) || node(number).life != life) return;
    const bool lives = membership_.Heard(number, incarnation, time_.now_us());
    time_.After(Delay(200), [this, number, life, now, lives] {
      if (node(number).head_cut || node(number).life != life) return;
      if (!lives) return Fence(number);
      node(number).lease->Answered(now);
      GoOn(number);
      TellView(number);
    });
  });
}

void RecoveryWorld::Fence(NodeNumber number) {
  if (model_.faults.ignore_fence) return;
  ++figures_.fenced;
  StopNode(number);
  for (NodeNumber i = 1; i <= model_.nodes; ++i) {
    if (i != number) On(i, Delay(1'000), [this, i, number] { LinkDown(i, number); });
  }
  StartNode(number);
}

void RecoveryWorld::GoOn(NodeNumber number) {
  SimNode& at = node(number);
  if (!at.still || !at.lease->MayAct(Now(number))) return;
  ++figures_.went_on;
  at.still = false;
  if (model_.faults.deaf_while_still) at.held.clear();
  while (!at.still && !at.held.empty()) {
    const Then what = std::move(at.held.front());
    at.held.pop_front();
    what();
  }
}

void RecoveryWorld::SetView(NodeNumber number, const std::map<NodeNumber, std::uint64_t>& view) {
  SimNode& at = node(number);
  std::vector<NodeNumber> gone;
  for (const auto& [other, incarnation] : at.view) {
    const auto it = view.find(other);
    if (other != number && (it == view.end() || it->second != incarnation)) gone.push_back(other);
  }
  const bool changed = at.view != view;
  at.view = view;
  for (const NodeNumber other : gone) LinkDown(number, other);
  if (changed) time_.After(Delay(2'000), [this] { TryLinks(); });
}

// ---- who is gone ----

void RecoveryWorld::Unreachable(NodeNumber self, NodeNumber other) {
  SimNode& at = node(self);
  // The job is at home there: nothing of it is left here.
  if (other == kHome && !model_.faults.ignore_fence) {
    const std::vector<std::pair<std::uint64_t, std::uint64_t>> waiting(at.requests.begin(), at.requests.end());
    rules::LeaseActions actions;
    for (const auto& [request, actor] : waiting) {
      if (!at.leases->Cancel({kNoProcess, request}, Now(self), &actions)) continue;
      at.requests.erase(request);
      at.guests.erase(static_cast<std::uint32_t>(actor));
    }
    PerformLeases(self, actions);
    for (auto it = at.guests.begin(); it != at.guests.end();) {
      const auto [actor, epoch] = std::pair(it->first, it->second.epoch);
      ++it;
      EndGuest(self, actor, epoch);
    }
    KillAll(self);
  }
  std::vector<ProcessId> gone;
  for (const ProcessId pid : at.far_holders) {
    if (NodeOf(pid) == other) gone.push_back(pid);
  }
  for (const ProcessId pid : gone) ProcessGone(self, pid);
  for (const auto& [pid, process] : processes_) {
    if (NodeOf(pid) == self && Find(pid) != nullptr) NodeLost(*process, other);
  }
  if (self == kHome) HostLost(other);
}

// Its socket is at its end.
void RecoveryWorld::ProcessDied(NodeNumber number, ProcessId pid, std::uint64_t lease, ProcessId served) {
  SimNode& at = node(number);
  const auto& acting = processes_.at(pid)->acting;
  const Id died_in = acting == nullptr ? Id{} : acting->running;
  processes_.erase(pid);
  for (const auto& [actor, guest] : at.guests) {
    if (guest.pid == pid) {
      GuestDied(number, actor, died_in);
      break;
    }
  }
  const auto it = at.workers.find(lease);
  if (it != at.workers.end() && it->second == pid) {
    at.workers.erase(it);
    rules::LeaseActions actions;
    if (!model_.faults.forget_lost_leases) at.leases->Lost(lease, Now(number), &actions);
    PerformLeases(number, actions);
  }
  if (served != kNoProcess) {
    Send(DaemonOf(number), served, [this, served, pid] { LoseLane(*Find(served), pid, rules::Ended::kDiedInIt); });
  }
  ProcessGone(number, pid);
  for (NodeNumber other = 1; other <= model_.nodes; ++other) {
    if (other != number) Send(DaemonOf(number), DaemonOf(other), [this, other, pid] { ProcessGone(other, pid); });
  }
}

// A process of this or another node: what it held, owned and waited for here.
void RecoveryWorld::ProcessGone(NodeNumber number, ProcessId pid) {
  SimNode& at = node(number);
  at.far_holders.erase(pid);
  if (!model_.faults.children_of_the_dead) {
    rules::LeaseActions actions;
    at.leases->OwnerDied(pid, Now(number), &actions);
    PerformLeases(number, actions);
    for (const auto& [lease, worker] : at.workers) {
      if (const Process* process = Find(worker); process != nullptr && process->serves == pid) Exit(worker);
    }
    FreeIf(number, [pid](const Stored& stored) { return stored.owner == pid; });
  }
  if (number == kHome) {
    for (ActorHome& home : homes_) home.callers.erase(pid);
  }
  at.references.ProcessDied(pid);
  TakeUnheld(number);
}

// ---- leases ----

void RecoveryWorld::AskedForLease(NodeNumber number, const rules::LeaseWant& want) {
  SimNode& at = node(number);
  if (want.key.owner != kNoProcess) at.far_holders.insert(want.key.owner);
  rules::LeaseActions actions;
  if (const Status status = at.leases->Add(want, Now(number), &actions); !status.ok()) Violation(status.message());
  PerformLeases(number, actions);
}

void RecoveryWorld::PerformLeases(NodeNumber number, const rules::LeaseActions& actions) {
  SimNode& at = node(number);
  for (const rules::LeaseAction& action : actions) {
    if (const auto* grant = std::get_if<rules::Grant>(&action)) {
      ++figures_.leases;
      if (grant->key.owner == kNoProcess) {
        const auto it = at.requests.find(grant->key.request);
        const std::uint32_t actor = it->second;
        at.requests.erase(it);
        ActorGranted(number, actor, grant->lease);
        continue;
      }
      StartWorker(number, *grant);
      if (model_.faults.grant_twice && Chance(0.2)) StartWorker(number, *grant);
    } else if (const auto* revoke = std::get_if<rules::Revoke>(&action)) {
      const ProcessId worker = at.workers[revoke->lease];
      Send(DaemonOf(number), worker, [this, worker] {
        Find(worker)->leaving = true;
        LeaveIfAsked(*Find(worker));
      });
    } else if (const auto* resume = std::get_if<rules::Resume>(&action)) {
      const ProcessId worker = at.workers[resume->lease];
      Process* process = Find(worker);
      if (process == nullptr) continue;
      process->blocked = false;
      const rules::LeaseQueue::Lease* lease = at.leases->Find(resume->lease);
      process->short_of_cpus = lease->held.Get("CPU") < lease->want.need.Get("CPU");
      Send(DaemonOf(number), worker, [this, worker] {
        if (const Then then = std::exchange(Find(worker)->resume, nullptr)) then();
      });
    }
  }
  CheckCpus(number);
  ScheduleTick(number);
}

void RecoveryWorld::StartWorker(NodeNumber number, const rules::Grant& grant) {
  Process& worker = Start(number);
  worker.lease = grant.lease;
  worker.serves = grant.key.owner;
  node(number).workers[grant.lease] = worker.pid;
  On(number, Delay(1'500), [this, pid = worker.pid, owner = grant.key.owner, request = grant.key.request] {
    if (Find(pid) == nullptr) return;
    // The daemon says so, which will also say when it is gone.
    Send(DaemonOf(NodeOf(pid)), owner, [this, owner, request, pid] { LaneCame(*Find(owner), request, pid); });
  });
}

void RecoveryWorld::ScheduleTick(NodeNumber number) {
  SimNode& at = node(number);
  if (at.tick_us >= 0 || at.leases->waiting() + at.leases->resuming() == 0) return;
  const std::int64_t now = Now(number);
  const std::int64_t next = at.leases->NextTick(now);
  const std::int64_t wait = next == rules::LeaseQueue::kNever ? 50'000 : std::max<std::int64_t>(next - now, 1'000);
  at.tick_us = time_.now_us() + wait;
  On(number, wait, [this, number, life = at.life] {
    SimNode& then = node(number);
    if (then.life != life) return;
    then.tick_us = -1;
    rules::LeaseActions actions;
    then.leases->Tick(
        Now(number),
        [&](std::uint64_t lease) {
          const auto it = then.workers.find(lease);
          const Process* process = it == then.workers.end() ? nullptr : Find(it->second);
          return process != nullptr && process->acting == nullptr && !process->busy;
        },
        &actions);
    PerformLeases(number, actions);
  });
}

// Counted by what runs, not by what the rules say that there is.
void RecoveryWorld::CheckCpus(NodeNumber number) {
  std::uint32_t running = 0;
  for (const auto& [pid, process] : processes_) {
    running += NodeOf(pid) == number && Find(pid) != nullptr && process->lease != 0 && !process->blocked &&
               !process->short_of_cpus;
  }
  if (running > model_.cpus) Violation(Cat("node ", number, " has ", model_.cpus, " CPUs and ", running, " in use"));
}

// ---- stores and references ----

void RecoveryWorld::FreeIf(NodeNumber number, const std::function<bool(const Stored&)>& which) {
  std::erase_if(node(number).store, [&](const auto& entry) { return which(entry.second); });
}

void RecoveryWorld::HoldFor(NodeNumber number, const Id& object, ProcessId process) {
  node(number).far_holders.insert(process);
  if (process == driver_) ++node(number).owner_holds[object];
  node(number).references.Hold(object, rules::Holder::Process(process));
}

void RecoveryWorld::DropFor(NodeNumber number, const Id& object, ProcessId process) {
  node(number).references.Drop(object, rules::Holder::Process(process));
  TakeUnheld(number);
}

void RecoveryWorld::TakeUnheld(NodeNumber number) {
  SimNode& at = node(number);
  if (at.reading || !at.references.HasSuspects()) return;
  if (!model_.faults.free_without_reading) {
    at.reading = true;
    ReadAll(number);
    at.reading = false;
  }
  for (const Id& id : at.references.TakeUnheld()) {
    const auto home = std::find_if(homes_.begin(), homes_.end(), [&](const ActorHome& one) { return one.id == id; });
    if (home != homes_.end()) {
      rules::ActorActions actions;
      table_.HandlesGone(id, &actions);
      CarryActors(actions);
    } else {
      Send(DaemonOf(number), driver_, [this, id, holds = at.owner_holds[id]] { Unheld(*Find(driver_), id, holds); });
    }
  }
}

void RecoveryWorld::Hold(Process& process, const Id& object, ProcessId owner, Then known) {
  const ProcessId pid = process.pid;
  const NodeNumber here = NodeOf(pid);
  const NodeNumber there = NodeOf(owner);
  if (here == there) {
    // Whoever learns of it later says so later: the daemon reads this before it frees anything.
    ToDaemon(pid, [this, here, object, pid] { HoldFor(here, object, pid); });
    return known();
  }
  const std::uint64_t question = ++process.last_question;
  process.holds[question] = std::move(known);
  ToDaemon(pid, [this, here, there, object, pid, question] {
    Send(DaemonOf(here), DaemonOf(there), [this, here, there, object, pid, question] {
      HoldFor(there, object, pid);
      Send(DaemonOf(there), DaemonOf(here), [this, here, pid, question] {
        if (Find(pid) == nullptr) return;
        Send(DaemonOf(here), pid, [this, pid, question] {
          Process& asked = *Find(pid);
          const auto node = asked.holds.extract(question);
          if (!node.empty()) node.mapped()();
        });
      });
    });
  });
}

void RecoveryWorld::Drop(Process& process, const Id& object, ProcessId owner) {
  const ProcessId pid = process.pid;
  const NodeNumber here = NodeOf(pid);
  const NodeNumber there = NodeOf(owner);
  ToDaemon(pid, [this, here, there, object, pid] {
    if (here == there) return DropFor(here, object, pid);
    Send(DaemonOf(here), DaemonOf(there), [this, there, object, pid] { DropFor(there, object, pid); });
  });
}

}  // namespace manta::sim
