#include "sim/recovery_world.h"

#include <algorithm>

#include "types/text.h"

namespace manta::sim {

RecoveryWorld::RecoveryWorld(const RecoveryModel& model) : model_(model), random_(model.seed) {
  nodes_.push_back(nullptr);
  for (std::uint32_t i = 0; i < model_.nodes; ++i) {
    auto made = std::make_unique<SimNode>();
    made->offset_us = static_cast<std::int64_t>(random_.Below(1'000'000));
    made->rate = 1 + model_.clock_skew * (2 * random_.Unit() - 1);
    nodes_.push_back(std::move(made));
  }
}

RecoveryFigures RecoveryWorld::Run() {
  StartHead();
  for (NodeNumber i = 1; i <= model_.nodes; ++i) StartNode(i);
  time_.RunUntil(20'000, [] { return false; });
  StartDriver();
  if (model_.fault_us > 0) ScheduleFault();
  const auto over = [this] { return !figures_.violations.empty(); };
  time_.RunUntil(model_.trouble_us, over);
  Heal();
  if (!time_.RunUntil(model_.trouble_us + model_.rest_us, [&] { return over() || AtRest(); })) {
    Violation(Cat(done_ ? "left over: " : "stuck: ", WhatIsLeft()));
  }
  if (figures_.violations.empty()) CheckActors();
  figures_.seconds = static_cast<double>(time_.now_us()) / 1e6;
  figures_.events = time_.events();
  figures_.trace = time_.trace();
  return figures_;
}

// ---- time and processes ----

std::int64_t RecoveryWorld::Now(NodeNumber number) const {
  const SimNode& at = *nodes_[number];
  return at.offset_us + static_cast<std::int64_t>(static_cast<double>(time_.now_us()) * at.rate);
}

// Most are quick; some are not.
std::int64_t RecoveryWorld::Delay(std::int64_t typical_us) {
  const double slow = trouble_ && Chance(model_.slow) ? 50 : 1;
  return 1 + static_cast<std::int64_t>(random_.Exponential(static_cast<double>(typical_us)) * slow);
}

Process* RecoveryWorld::Find(ProcessId pid) {
  const auto it = processes_.find(pid);
  return it == processes_.end() || it->second->pid == kNoProcess ? nullptr : it->second.get();
}

Process& RecoveryWorld::Start(NodeNumber number) {
  const ProcessId pid = OnNode(number, ++last_local_);
  auto& process = processes_[pid];
  process = std::make_unique<Process>();
  process->pid = pid;
  return *process;
}

void RecoveryWorld::Violation(const std::string& what) {
  if (figures_.violations.size() < 5) {
    figures_.violations.push_back(Cat("at ", time_.now_us() / 1000, " ms: ", what));
  }
}

// ---- messages ----

void RecoveryWorld::Send(ProcessId from, ProcessId to, Then what) {
  if (from == to) return what();  // a daemon's order to itself
  const NodeNumber a = NodeOf(from);
  const NodeNumber b = NodeOf(to);
  std::uint64_t epoch = 0;
  if (a != b) {
    if (!Reaches(a, b)) return;
    epoch = LinkOf(a, b).epoch;
  }
  std::int64_t& last = last_sent_[{from, to}];
  last = std::max(last + 1, time_.now_us() + Delay(a == b ? 30 : 150));
  On(b, last - time_.now_us(), [this, from, to, epoch, life = node(b).life, what = std::move(what)] {
    if (NodeOf(from) != NodeOf(to) && LinkOf(NodeOf(from), NodeOf(to)).epoch != epoch) return;
    const bool daemon = LocalOf(to) == 0;
    if (daemon ? !node(NodeOf(to)).up || node(NodeOf(to)).life != life : Find(to) == nullptr) return;
    time_.Trace((from << 20) ^ to);
    what();
  });
}

void RecoveryWorld::On(NodeNumber number, std::int64_t delay_us, Then what) {
  time_.After(delay_us, [this, number, what = std::move(what)] {
    if (!node(number).still) return what();
    node(number).held.push_back(what);
  });
}

void RecoveryWorld::ToDaemon(ProcessId from, Then what) {
  const NodeNumber number = NodeOf(from);
  node(number).sockets[from].push_back(std::move(what));
  On(number, Delay(30), [this, number, from, life = node(number).life] {
    if (node(number).life == life) ReadSocket(number, from);
  });
}

void RecoveryWorld::ReadSocket(NodeNumber number, ProcessId from) {
  auto& sockets = node(number).sockets;
  const auto it = sockets.find(from);
  if (it == sockets.end()) return;  // read before its time, by ReadAll
  const Then what = std::move(it->second.front());
  it->second.pop_front();
  if (it->second.empty()) sockets.erase(it);
  time_.Trace(from);
  what();
}

void RecoveryWorld::ReadAll(NodeNumber number) {
  std::vector<std::pair<ProcessId, std::size_t>> there;
  for (const auto& [from, messages] : node(number).sockets) there.emplace_back(from, messages.size());
  for (const auto& [from, count] : there) {
    for (std::size_t i = 0; i < count; ++i) ReadSocket(number, from);
  }
}

// ---- links ----

NodeLink& RecoveryWorld::LinkOf(NodeNumber a, NodeNumber b) { return links_[{std::min(a, b), std::max(a, b)}]; }

std::uint64_t RecoveryWorld::EpochOf(ProcessId a, ProcessId b) {
  return NodeOf(a) == NodeOf(b) ? 0 : LinkOf(NodeOf(a), NodeOf(b)).epoch;
}

bool RecoveryWorld::Reaches(NodeNumber from, NodeNumber to) {
  if (from == to) return true;
  const NodeLink& link = LinkOf(from, to);
  return link.up[0] && link.up[1] && !link.broken;
}

void RecoveryWorld::BreakLink(NodeNumber a, NodeNumber b, std::int64_t cut_us) {
  NodeLink& link = LinkOf(a, b);
  ++figures_.links_broken;
  ++link.epoch;
  link.broken = true;
  if (cut_us > 0) {
    link.cut = true;
    time_.After(cut_us, [this, a, b] {
      LinkOf(a, b).cut = false;
      TryLinks();
    });
  }
  const std::int64_t notice_us = cut_us > 0 ? 60'000 : 2'000;
  On(a, Delay(notice_us), [this, a, b] { LinkDown(a, b); });
  On(b, Delay(notice_us), [this, a, b] { LinkDown(b, a); });
}

void RecoveryWorld::LinkDown(NodeNumber self, NodeNumber other) {
  NodeLink& link = LinkOf(self, other);
  bool& up = link.up[self < other ? 0 : 1];
  if (!up) return;
  up = false;
  ++link.epoch;
  // The other one sees it closed, if it can see anything.
  On(other, Delay(link.cut ? 60'000 : 2'000), [this, self, other] { LinkDown(other, self); });
  if (node(self).up) Unreachable(self, other);
  time_.After(Delay(8'000), [this] { TryLinks(); });
}

void RecoveryWorld::TryLinks() {
  for (NodeNumber a = 1; a <= model_.nodes; ++a) {
    for (NodeNumber b = a + 1; b <= model_.nodes; ++b) {
      NodeLink& link = LinkOf(a, b);
      if (link.cut || link.up[0] || link.up[1]) continue;
      const auto knows = [&](NodeNumber one, NodeNumber other) {
        const auto it = node(one).view.find(other);
        return node(one).up && node(one).incarnation != 0 && it != node(one).view.end() &&
               it->second == node(other).incarnation;
      };
      if (!knows(a, b) || !knows(b, a)) continue;
      ++link.epoch;
      link.broken = false;
      link.up[0] = link.up[1] = true;
      for (const auto& [pid, process] : processes_) {
        if (Find(pid) == nullptr || (NodeOf(pid) != a && NodeOf(pid) != b)) continue;
        for (const auto& [actor, line] : process->lines) {
          if (line.attached) Attach(*process, actor);
        }
        Pump(*process);
      }
    }
  }
}

// ---- deaths ----

// The memory stays for those who are just being called.
void RecoveryWorld::Exit(ProcessId pid) {
  Process* process = Find(pid);
  if (process == nullptr) return;
  process->pid = kNoProcess;
  ToDaemon(pid, [this, pid, lease = process->lease, served = process->serves] {
    ProcessDied(NodeOf(pid), pid, lease, served);
  });
}

void RecoveryWorld::KillAll(NodeNumber number) {
  for (const auto& [pid, process] : processes_) {
    if (NodeOf(pid) == number && Find(pid) != nullptr) Exit(pid);
  }
}

// ---- faults ----

void RecoveryWorld::ScheduleFault() {
  time_.After(1 + static_cast<std::int64_t>(random_.Exponential(model_.fault_us)), [this] {
    if (!trouble_) return;
    Fault();
    ScheduleFault();
  });
}

ProcessId RecoveryWorld::SomeProcess(bool actor) {
  std::vector<ProcessId> found;
  for (const auto& [pid, process] : processes_) {
    if (Find(pid) == nullptr || pid == driver_ || (process->acting != nullptr) != actor) continue;
    if (actor || process->busy) found.push_back(pid);
  }
  return found.empty() ? kNoProcess : found[random_.Below(found.size())];
}

void RecoveryWorld::Fault() {
  const double which = random_.Unit();
  const auto other = static_cast<NodeNumber>(2 + random_.Below(model_.nodes - 1));
  const auto any = static_cast<NodeNumber>(1 + random_.Below(model_.nodes));
  const auto length = static_cast<std::int64_t>(random_.Below(Chance(0.2) ? 5'000'000 : 400'000));
  if (which < 0.32) {
    if (const ProcessId pid = SomeProcess(false); pid != kNoProcess) {
      ++figures_.workers_killed;
      Exit(pid);
    }
  } else if (which < 0.58) {
    if (const ProcessId pid = SomeProcess(true); pid != kNoProcess) {
      ++figures_.actors_killed;
      Find(pid)->acting->doomed = Chance(0.5);
      if (!Find(pid)->acting->doomed) Exit(pid);
    }
  } else if (which < 0.72) {
    CrashNode(other, length / 4);
  } else if (which < 0.88) {
    if (any != other) BreakLink(any, other, Chance(0.5) ? 0 : length / 4);
  } else if (which < 0.94) {
    if (node(other).head_cut) return;
    node(other).head_cut = true;
    time_.After(length, [this, other] { node(other).head_cut = false; });
  } else if (which < 0.96) {
    StallHead(Chance(0.3) ? 5'000'000 : length);
  } else {
    CrashHead(length / 8);
  }
}

void RecoveryWorld::CrashNode(NodeNumber number, std::int64_t down_us) {
  if (!node(number).up) return;
  ++figures_.nodes_killed;
  const std::uint64_t incarnation = node(number).incarnation;
  StopNode(number);
  // Its machine closes its connections, unless that is gone, too.
  if (Chance(0.8)) {
    time_.After(Delay(1'000), [this, number, incarnation] { ConnectionClosed(number, incarnation); });
    for (NodeNumber i = 1; i <= model_.nodes; ++i) {
      if (i != number) On(i, Delay(1'000), [this, i, number] { LinkDown(i, number); });
    }
  }
  time_.After(10'000 + down_us, [this, number] {
    if (!node(number).up) StartNode(number);
  });
}

void RecoveryWorld::Heal() {
  trouble_ = false;
  for (auto& [pair, link] : links_) link.cut = false;
  for (NodeNumber i = 1; i <= model_.nodes; ++i) {
    node(i).head_cut = false;
    if (!node(i).up) StartNode(i);
  }
  if (!head_up_) StartHead();
  TryLinks();
}

// ---- the end ----

bool RecoveryWorld::AtRest() { return done_ && WhatIsLeft().empty(); }

std::string RecoveryWorld::WhatIsLeft() {
  std::string text;
  if (!done_) text += Cat("the driver waits for ", open_, " things; ");
  for (NodeNumber i = 1; i <= model_.nodes; ++i) {
    const SimNode& at = node(i);
    if (!at.up || at.incarnation == 0) continue;
    if (!at.leases->leases().empty()) text += Cat("node ", i, " has ", at.leases->leases().size(), " leases; ");
    if (at.leases->waiting() > 0) text += Cat("node ", i, " has ", at.leases->waiting(), " requests; ");
    if (!at.store.empty()) text += Cat("node ", i, " stores ", at.store.size(), " values; ");
    if (at.references.size() > 0) text += Cat("node ", i, " counts holders of ", at.references.size(), " objects; ");
    if (!at.guests.empty()) text += Cat("node ", i, " has ", at.guests.size(), " actors; ");
  }
  if (table_.size() > 0) text += Cat(table_.size(), " actors are known; ");
  for (const auto& [pid, process] : processes_) {
    if (Find(pid) == nullptr) continue;
    const Owning& owning = process->owning;
    if (pid != driver_) {
      text += Cat("process ", LocalOf(pid), " of node ", NodeOf(pid), " lives, serves ", LocalOf(process->serves),
                  " of ", NodeOf(process->serves), process->busy ? ", busy" : "", process->leaving ? ", leaving" : "",
                  ", ", process->souvenirs, " Refs kept; ");
    }
    if (const Acting* acting = process->acting.get()) {
      text += Cat("it is actor ", acting->actor, acting->ready ? "" : ", not ready", acting->busy ? ", busy" : "", ", ",
                  acting->queue.size(), " calls wait; ");
    }
    for (const auto& [actor, line] : process->lines) {
      if (line.pending.empty()) continue;
      text += Cat("process ", LocalOf(pid), " has ", line.pending.size(), " calls open with actor ", actor,
                  ", process ", LocalOf(line.worker), "; ");
    }
    if (!owning.values.empty()) text += Cat("process ", LocalOf(pid), " owns ", owning.values.size(), " values; ");
    for (const auto& [value, entry] : owning.values) {
      text += Cat("value ", ToString(entry.spec.id), entry.done ? ": done" : ": pending",
                  entry.missing ? ", missing" : "", entry.escaped ? ", escaped" : "", ", refs ", entry.refs,
                  ", lineage ", entry.lineage, ", lacks ", entry.lacking, "; ");
    }
    if (!owning.lanes.empty()) text += Cat("process ", LocalOf(pid), " has ", owning.lanes.size(), " workers; ");
    if (!owning.asked.empty()) text += Cat("process ", LocalOf(pid), " asks for ", owning.asked.size(), " leases; ");
  }
  return text;
}

void RecoveryFigures::Add(const RecoveryFigures& other) {
  violations.insert(violations.end(), other.violations.begin(), other.violations.end());
  trace = Mix(trace ^ other.trace);
  events += other.events;
  tasks += other.tasks;
  runs += other.runs;
  rebuilt += other.rebuilt;
  calls += other.calls;
  replayed += other.replayed;
  answered_again += other.answered_again;
  refused += other.refused;
  checkpoints += other.checkpoints;
  leases += other.leases;
  workers_killed += other.workers_killed;
  actors_killed += other.actors_killed;
  nodes_killed += other.nodes_killed;
  fenced += other.fenced;
  stood_still += other.stood_still;
  went_on += other.went_on;
  heads_killed += other.heads_killed;
  links_broken += other.links_broken;
  seconds += other.seconds;
}

std::string RecoveryFigures::Describe() const {
  return Cat(static_cast<std::uint64_t>(seconds), " virtual seconds, ", events, " events; ", tasks, " tasks in ", runs,
             " runs, ", rebuilt, " of them to rebuild values; ", calls, " calls of actors, ", replayed, " replayed, ",
             answered_again, " answered again, ", refused, " refused, ", checkpoints, " checkpoints; ", leases,
             " leases; killed: ", workers_killed, " workers, ", actors_killed, " actors, ", nodes_killed, " nodes, ",
             heads_killed, " heads; ", stood_still, " nodes stood still, ", went_on, " of them went on; ", fenced,
             " nodes fenced, ", links_broken, " links broken");
}

RecoveryFigures RunRecovery(const RecoveryModel& model) { return RecoveryWorld(model).Run(); }

RecoveryModel RecoveryModelOf(std::uint64_t seed) {
  RecoveryModel model;
  model.seed = seed;
  model.nodes = 3 + static_cast<std::uint32_t>(seed % 3);
  model.trees = 1 + static_cast<std::uint32_t>(seed / 3 % 2);
  model.fault_us = seed % 5 == 0 ? 300'000 : 120'000;
  if (seed % 4 == 0) model.trouble_us = 7'000'000;  // long enough for a node that is cut off to be given up
  return model;
}

}  // namespace manta::sim
