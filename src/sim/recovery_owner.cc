// What a process does that submits tasks, in the simulated cluster. What it decides, src/rules decides, as for
// owner/rebuild.cc and owner/failures.cc; how it is carried out is modelled after them, and after owner/far.cc, which
// are entangled with shared memory.
#include <algorithm>

#include "rules/lineage.h"
#include "sim/recovery_world.h"
#include "types/text.h"

namespace manta::sim {
namespace {

struct ValueGraph {
  const Owning& owning;

  [[nodiscard]] rules::Presence PresenceOf(std::uint32_t value) const {
    const OwnedValue& entry = owning.values.at(value);
    return rules::PresenceOf({entry.done, false, entry.missing, entry.kept, entry.rebuilds});
  }
  [[nodiscard]] static std::uint32_t TaskOf(std::uint32_t value) { return value; }
  [[nodiscard]] std::uint32_t InputOf(std::uint32_t task, std::size_t i) const {
    const TaskSpec& spec = owning.values.at(task).spec;
    if (i < spec.inputs.size()) return owning.by_id.at(spec.inputs[i]);
    return i == spec.inputs.size() && !spec.lent.empty() ? owning.by_id.at(spec.lent) : 0;
  }
};

}  // namespace

// ---- values ----

std::uint32_t RecoveryWorld::Submit(Process& process, TaskSpec spec) {
  Owning& owning = process.owning;
  const std::uint32_t value = ++owning.last;
  specs_.try_emplace(spec.id, spec);
  owning.by_id[spec.id] = value;
  OwnedValue& entry = owning.values[value];
  entry.spec = std::move(spec);
  entry.refs = 2;  // the caller's, and while the task is under way
  for (const Id& input : entry.spec.inputs) ++owning.values.at(owning.by_id.at(input)).refs;
  if (!entry.spec.lent.empty()) {
    OwnedValue& lent = owning.values.at(owning.by_id.at(entry.spec.lent));
    ++lent.refs;
    if (!lent.escaped) HoldOwn(process, &lent);
  }
  Resend(process, value);
  return value;
}

void RecoveryWorld::Unref(Process& process, std::uint32_t value) {
  OwnedValue& entry = process.owning.values.at(value);
  if (--entry.refs == 0) {
    if (entry.escaped) {
      Drop(process, entry.spec.id, process.pid);
    } else {
      Settle(process, value);
    }
  }
}

void RecoveryWorld::HoldOwn(Process& process, OwnedValue* entry) {
  entry->escaped = true;
  ++entry->holds;
  Hold(process, entry->spec.id, process.pid, [] {});
}

void RecoveryWorld::Revive(Process& process, OwnedValue* entry) {
  if (++entry->refs == 1 && entry->escaped) HoldOwn(process, entry);
}

// The daemon says that nobody has a Ref to it.
void RecoveryWorld::Unheld(Process& process, const Id& id, std::uint64_t holds) {
  const auto it = process.owning.by_id.find(id);
  if (it == process.owning.by_id.end()) return;
  OwnedValue& entry = process.owning.values.at(it->second);
  if (entry.refs > 0 || entry.holds != holds) return;  // it was wanted again meanwhile
  entry.escaped = false;
  Settle(process, it->second);
}

void RecoveryWorld::DropLineage(Process& process, std::uint32_t value) {
  OwnedValue& entry = process.owning.values.at(value);
  --entry.lineage;
  Settle(process, value);
}

// Perhaps nobody needs it any more.
void RecoveryWorld::Settle(Process& process, std::uint32_t value) {
  OwnedValue& entry = process.owning.values.at(value);
  if (entry.refs > 0 || entry.escaped || !entry.done) return;
  if (entry.lineage == 0) return Destroy(process, value);
  if (!entry.kept || entry.missing) return;
  // What was made from it may have to be made again; then it is, too.
  FreeSpot(process, entry.spot);
  entry.missing = true;
}

void RecoveryWorld::Destroy(Process& process, std::uint32_t value) {
  Owning& owning = process.owning;
  const OwnedValue entry = std::move(owning.values.at(value));
  owning.values.erase(value);
  owning.by_id.erase(entry.spec.id);
  if (entry.spot.serial != 0 && !entry.missing) FreeSpot(process, entry.spot);
  if (!entry.kept) return;
  for (const Id& input : entry.spec.inputs) DropLineage(process, owning.by_id.at(input));
  if (!entry.spec.lent.empty()) DropLineage(process, owning.by_id.at(entry.spec.lent));
}

void RecoveryWorld::FreeSpot(Process& process, const Spot& spot) {
  const auto free = [this, spot] { node(spot.node).store.erase(spot.serial); };
  const NodeNumber here = NodeOf(process.pid);
  ToDaemon(process.pid, [this, here, spot, free] {
    if (here == spot.node) return free();
    Send(DaemonOf(here), DaemonOf(spot.node), free);
  });
}

// ---- making it again ----

void RecoveryWorld::Want(Process& process, std::uint32_t value) {
  Owning& owning = process.owning;
  if (!owning.values.at(value).missing) return;
  const rules::RebuildPlan<std::uint32_t> plan = rules::PlanRebuild(ValueGraph{owning}, value);
  if (plan.hopeless != 0) {
    const OwnedValue& lost = owning.values.at(plan.hopeless);
    return Violation(Cat("value ", ToString(lost.spec.id), " is lost, after ", lost.rebuilds, " rebuilds"));
  }
  if (model_.faults.rebuild_without_inputs) return Restart(process, value);
  for (const std::uint32_t task : plan.tasks) Restart(process, task);
}

void RecoveryWorld::Restart(Process& process, std::uint32_t task) {
  Owning& owning = process.owning;
  OwnedValue& entry = owning.values.at(task);
  ++figures_.rebuilt;
  entry.done = false;
  entry.missing = false;
  entry.spot = {};
  entry.got = 0;
  ++entry.rebuilds;
  entry.spec.rerun = true;
  Revive(process, &entry);
  for (const Id& input : entry.spec.inputs) Revive(process, &owning.values.at(owning.by_id.at(input)));
  if (!entry.spec.lent.empty()) {
    OwnedValue& lent = owning.values.at(owning.by_id.at(entry.spec.lent));
    Revive(process, &lent);
    if (!lent.escaped) HoldOwn(process, &lent);
  }
  Resend(process, task);
}

// When its inputs are there.
void RecoveryWorld::Resend(Process& process, std::uint32_t task) {
  Owning& owning = process.owning;
  const std::vector<Id> inputs = owning.values.at(task).spec.inputs;
  owning.values.at(task).lacking = 0;
  for (const Id& id : inputs) {
    const std::uint32_t input = owning.by_id.at(id);
    if (!model_.faults.rebuild_without_inputs) Want(process, input);
    if (owning.values.at(input).done) continue;
    owning.values.at(input).dependents.push_back(task);
    ++owning.values.at(task).lacking;
  }
  if (owning.values.at(task).lacking > 0) return;
  owning.values.at(task).waits = true;
  owning.queue.push_back(task);
  Pump(process);
}

// ---- workers ----

void RecoveryWorld::Pump(Process& process) {
  Owning& owning = process.owning;
  for (auto& [worker, lane] : owning.lanes) {
    if (owning.queue.empty()) break;
    if (lane.task != 0) continue;
    const std::uint32_t task = owning.queue.front();
    owning.queue.pop_front();
    Assign(process, worker, task);
  }
  while (owning.asked.size() < std::min<std::size_t>(owning.queue.size(), 3)) AskForLease(process);
}

void RecoveryWorld::AskForLease(Process& process) {
  const ProcessId pid = process.pid;
  std::vector<NodeNumber> reached;
  for (NodeNumber i = 1; i <= model_.nodes; ++i) {
    if (Reaches(NodeOf(pid), i)) reached.push_back(i);
  }
  const NodeNumber there = reached[random_.Below(reached.size())];
  rules::LeaseWant want;
  want.key = {pid, ++process.owning.last_request};
  want.need.Set("CPU", kUnit);
  want.queue = 1;
  process.owning.asked[want.key.request] = there;
  const NodeNumber here = NodeOf(pid);
  ToDaemon(pid, [this, here, there, want] {
    Send(DaemonOf(here), DaemonOf(there), [this, there, want] { AskedForLease(there, want); });
  });
  // There may be nothing to be had there: elsewhere, after a while.
  On(here, 40'000 + Delay(20'000), [this, pid, here, there, request = want.key.request] {
    Process* owner = Find(pid);
    if (owner == nullptr || owner->owning.asked.erase(request) == 0) return;
    ToDaemon(pid, [this, pid, here, there, request] {
      Send(DaemonOf(here), DaemonOf(there), [this, pid, there, request] {
        rules::LeaseActions actions;
        node(there).leases->Cancel({pid, request}, Now(there), &actions);
        PerformLeases(there, actions);
      });
    });
    Pump(*owner);
  });
}

void RecoveryWorld::LaneCame(Process& process, std::uint64_t request, ProcessId worker) {
  Owning& owning = process.owning;
  owning.asked.erase(request);  // or it was given up, and comes all the same
  owning.lanes[worker].node = NodeOf(worker);
  Pump(process);
  LaneIdle(process, worker);
}

// One that has nothing to do goes after a while.
void RecoveryWorld::LaneIdle(Process& process, ProcessId worker) {
  const auto it = process.owning.lanes.find(worker);
  if (it == process.owning.lanes.end() || it->second.task != 0) return;
  On(NodeOf(process.pid), 30'000, [this, pid = process.pid, worker, since = it->second.since] {
    Process* owner = Find(pid);
    if (owner == nullptr) return;
    const auto lane = owner->owning.lanes.find(worker);
    if (lane == owner->owning.lanes.end() || lane->second.task != 0 || lane->second.since != since) return;
    owner->owning.lanes.erase(lane);
    Send(pid, worker, [this, worker] {
      Find(worker)->leaving = true;
      LeaveIfAsked(*Find(worker));
    });
  });
}

void RecoveryWorld::Assign(Process& process, ProcessId worker, std::uint32_t task) {
  Owning& owning = process.owning;
  OwnedValue& entry = owning.values.at(task);
  entry.waits = false;
  std::vector<std::pair<std::uint64_t, Spot>> inputs;
  for (const Id& id : entry.spec.inputs) {
    const OwnedValue& input = owning.values.at(owning.by_id.at(id));
    // Lost since it was found to be there.
    if ((!input.done || input.missing) && !model_.faults.rebuild_without_inputs) return Resend(process, task);
    inputs.emplace_back(input.missing ? 0 : input.value, input.missing ? Spot{} : input.spot);
  }
  Lane& lane = owning.lanes.at(worker);
  lane.task = task;
  ++lane.since;
  const bool lends = !entry.spec.lent.empty();
  const Id lent = entry.spec.lent;
  Send(process.pid, worker, [this, worker, spec = entry.spec, inputs] { Receive(*Find(worker), spec, inputs); });
  if (lends && model_.faults.drop_lent_early) Unref(process, owning.by_id.at(lent));
}

void RecoveryWorld::LoseLane(Process& process, ProcessId worker, rules::Ended ended) {
  Owning& owning = process.owning;
  const auto it = owning.lanes.find(worker);
  if (it == owning.lanes.end()) return Pump(process);  // it may have died before it came
  const std::uint32_t task = it->second.task;
  const NodeNumber there = it->second.node;
  owning.lanes.erase(it);
  if (task == 0) return Pump(process);
  OwnedValue& entry = owning.values.at(task);
  rules::OpenCall call;
  call.retries = -1;
  call.rerun = entry.spec.rerun;
  if (rules::AfterEnd(ended, &call) != rules::Fate::kAgain) Violation("a task without a limit was given up");
  entry.spec.rerun = call.rerun;
  // What the dead worker may have stored for it is nobody's.
  const NodeNumber here = NodeOf(process.pid);
  ToDaemon(process.pid, [this, here, there, worker, id = entry.spec.id] {
    const auto free = [this, there, worker, id] {
      FreeIf(there, [&](const Stored& stored) { return stored.maker == worker && stored.id == id; });
    };
    if (here == there) return free();
    Send(DaemonOf(here), DaemonOf(there), free);
  });
  Resend(process, task);
}

void RecoveryWorld::Answered(Process& process, ProcessId worker, const Id& id, const TaskResult& result) {
  Owning& owning = process.owning;
  const auto lane = owning.lanes.find(worker);
  if (lane == owning.lanes.end()) return;  // it was given up, with all that it made
  const std::uint32_t task = std::exchange(lane->second.task, 0);
  ++lane->second.since;
  OwnedValue& entry = owning.values.at(task);
  if (entry.spec.id != id || entry.done) {
    return Violation(Cat("task ", ToString(id), " was answered, and ", ToString(entry.spec.id), " was asked for"));
  }
  if (!result.lost.empty()) {
    const std::uint32_t input = owning.by_id.at(result.lost);
    Lose(process, input, result.spot);
    Resend(process, task);
    Pump(process);
    return LaneIdle(process, worker);
  }
  if (++entry.got > 1) Violation(Cat("the value of ", ToString(id), " came ", entry.got, " times"));
  entry.done = true;
  entry.value = result.value;
  entry.spot = result.spot;
  if (entry.spot.serial == 0) SawValue(entry.spec, entry.value, "in an answer");
  const bool kept = std::exchange(entry.kept, entry.spot.serial != 0);
  // Inputs: lineage first, then the counts of the task that ran.
  const TaskSpec spec = entry.spec;
  std::vector<std::uint32_t> inputs;
  inputs.reserve(spec.inputs.size() + 1);
  for (const Id& input : spec.inputs) inputs.push_back(owning.by_id.at(input));
  if (!spec.lent.empty()) inputs.push_back(owning.by_id.at(spec.lent));
  for (const std::uint32_t input : inputs) {
    OwnedValue& made_from = owning.values.at(input);
    if (entry.kept && !kept) ++made_from.lineage;
    made_from.rebuilds = 0;  // it was good for something
  }
  const bool lent_dropped = !spec.lent.empty() && model_.faults.drop_lent_early;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (lent_dropped && i + 1 == inputs.size()) continue;
    Unref(process, inputs[i]);
  }
  for (const std::uint32_t dependent : std::exchange(owning.values.at(task).dependents, {})) {
    const auto it = owning.values.find(dependent);
    if (it == owning.values.end() || --it->second.lacking > 0) continue;
    it->second.waits = true;
    owning.queue.push_back(dependent);
  }
  const std::vector<Then> waiters = std::exchange(owning.values.at(task).waiters, {});
  for (const Then& waiter : waiters) waiter();
  Unref(process, task);
  Pump(process);
  LaneIdle(process, worker);
}

// ---- reading ----

// It is not there, nor anywhere else.
void RecoveryWorld::Lose(Process& process, std::uint32_t value, const Spot& spot) {
  if (model_.faults.keep_lost_places) return;
  OwnedValue& entry = process.owning.values.at(value);
  if (!entry.done || entry.spot.serial != spot.serial || entry.missing) return;
  FreeSpot(process, spot);  // it may just be out of reach of who looked
  entry.missing = true;
}

// `value` has a Ref until then.
void RecoveryWorld::Get(Process& process, std::uint32_t value, const ThenValue& then) {
  OwnedValue& entry = process.owning.values.at(value);
  const ProcessId pid = process.pid;
  Want(process, value);
  if (!entry.done) {
    entry.waiters.push_back([this, pid, value, then] { Get(*Find(pid), value, then); });
    return;
  }
  if (entry.spot.serial == 0) return then(entry.value);
  Fetch(process, entry.spot, then, [this, pid, value, then, spot = entry.spot] {
    Lose(*Find(pid), value, spot);
    Get(*Find(pid), value, then);
  });
}

void RecoveryWorld::Fetch(Process& process, const Spot& spot, const ThenValue& then, const Then& lost) {
  const ProcessId pid = process.pid;
  const std::uint64_t question = ++process.last_question;
  constexpr std::uint64_t kLost = ~std::uint64_t{0};
  process.fetches[question] = {spot.node, [then, lost](std::uint64_t value) {
                                 if (value == kLost) return lost();
                                 then(value);
                               }};
  const auto answer = [this, pid, question](std::uint64_t value) {
    Process* asked = Find(pid);
    if (asked == nullptr) return;
    const auto node = asked->fetches.extract(question);
    if (!node.empty()) node.mapped().second(value);
  };
  if (!Reaches(NodeOf(pid), spot.node)) {
    // It may be back soon, and all that is lost so often is given up in the end (rules::kMostRebuilds).
    On(NodeOf(pid), 100'000, [answer] { answer(kLost); });
    return;
  }
  Send(pid, DaemonOf(spot.node), [this, pid, spot, answer] {
    const auto it = node(spot.node).store.find(spot.serial);
    const std::uint64_t value = it == node(spot.node).store.end() ? kLost : it->second.value;
    Send(DaemonOf(spot.node), pid, [answer, value] { answer(value); });
  });
}

// ---- what is lost with a node ----

void RecoveryWorld::NodeLost(Process& process, NodeNumber other) {
  Owning& owning = process.owning;
  if (!model_.faults.keep_lost_places) {
    for (auto& [value, entry] : owning.values) {
      if (entry.done && entry.spot.node == other && entry.spot.serial != 0) entry.missing = true;
    }
  }
  std::vector<ProcessId> workers;
  for (const auto& [worker, lane] : owning.lanes) {
    if (lane.node == other) workers.push_back(worker);
  }
  for (const ProcessId worker : workers) LoseLane(process, worker, rules::Ended::kDiedBesideIt);
  std::erase_if(owning.asked, [other](const auto& entry) { return entry.second == other; });
  std::vector<ThenValue> fetches;
  for (auto it = process.fetches.begin(); it != process.fetches.end();) {
    if (it->second.first != other) {
      ++it;
      continue;
    }
    fetches.push_back(std::move(it->second.second));
    it = process.fetches.erase(it);
  }
  for (const ThenValue& fetch : fetches) fetch(~std::uint64_t{0});
  for (auto& [actor, line] : process.lines) {
    if (NodeOf(line.worker) == other) line.worker = kNoProcess;
  }
  Pump(process);
}

// A worker's task is over, and with it all that it owned.
void RecoveryWorld::EndOwning(Process& process) {
  Owning& owning = process.owning;
  for (const auto& [worker, lane] : owning.lanes) {
    Send(process.pid, worker, [this, pid = worker] {
      Find(pid)->leaving = true;
      LeaveIfAsked(*Find(pid));
    });
  }
  owning.lanes.clear();
  const NodeNumber here = NodeOf(process.pid);
  for (const auto& [request, there] : owning.asked) {
    ToDaemon(process.pid, [this, pid = process.pid, here, there = there, request = request] {
      Send(DaemonOf(here), DaemonOf(there), [this, pid, there, request] {
        rules::LeaseActions actions;
        node(there).leases->Cancel({pid, request}, Now(there), &actions);
        PerformLeases(there, actions);
      });
    });
  }
  owning.asked.clear();
}

}  // namespace manta::sim
