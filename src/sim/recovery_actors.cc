// Actors of the simulated cluster: at their home (node/actors.h, node/far_actors.h), on their hosts (node/guests.h,
// worker/actor_journal.h) and for their callers (owner/actors.cc).
#include <algorithm>

#include "rules/actor_placement.h"
#include "sim/recovery_world.h"
#include "types/text.h"

namespace manta::sim {
namespace {

Resources OneCpu() {
  Resources need;
  need.Set("CPU", kUnit);
  return need;
}

}  // namespace

// ---- at home ----

std::uint32_t RecoveryWorld::ActorOf(const Id& id) const {
  const auto it = std::find_if(homes_.begin(), homes_.end(), [&](const ActorHome& home) { return home.id == id; });
  return static_cast<std::uint32_t>(it - homes_.begin());
}

void RecoveryWorld::CreateActors() {
  homes_.resize(model_.actors);
  for (std::uint32_t i = 0; i < model_.actors; ++i) {
    ActorHome& home = homes_[i];
    home.id = DeriveId(job_, 9, i);
    home.every_calls = i % 3 == 0 ? 0 : 1 + random_.Below(5);
    rules::ActorPolicy policy;
    policy.class_name = "Counter";
    policy.max_restarts = -1;
    Hold(*Find(driver_), home.id, driver_, [] {});
    rules::ActorActions actions;
    if (const Result<Id> made = table_.Create(home.id, job_, policy, &actions); !made.ok()) {
      Violation(made.status().message());
    }
    CarryActors(actions);
  }
}

void RecoveryWorld::CarryActors(const rules::ActorActions& actions) {
  const auto end = [this](std::uint32_t actor, std::uint32_t epoch) {
    const NodeNumber host = homes_[actor].host;
    Send(DaemonOf(kHome), DaemonOf(host), [this, host, actor, epoch] { EndGuest(host, actor, epoch); });
  };
  for (const rules::ActorAction& action : actions) {
    if (const auto* request = std::get_if<rules::RequestLease>(&action)) {
      PlaceActor(ActorOf(request->actor));
    } else if (const auto* cancel = std::get_if<rules::CancelLease>(&action)) {
      end(ActorOf(cancel->actor), homes_[ActorOf(cancel->actor)].epoch);
    } else if (const auto* stop = std::get_if<rules::StopWorker>(&action)) {
      end(ActorOf(stop->actor), homes_[ActorOf(stop->actor)].epoch);
    } else if (const auto* notify = std::get_if<rules::Notify>(&action)) {
      ActorHome& home = homes_[ActorOf(notify->actor)];
      if (notify->phase != rules::ActorPhase::kAlive) home.pid = kNoProcess;
      if (notify->phase == rules::ActorPhase::kDead && !done_) Violation(notify->failure.message);
      for (const ProcessId caller : home.callers) TellCaller(ActorOf(notify->actor), caller);
    }
  }
}

void RecoveryWorld::PlaceActor(std::uint32_t actor) {
  ActorHome& home = homes_[actor];
  std::vector<rules::NodeOffer> offers;
  std::vector<NodeNumber> reached;
  for (NodeNumber i = 1; i <= model_.nodes; ++i) {
    if (!Reaches(kHome, i)) continue;
    reached.push_back(i);
    offers.push_back({i, node(kHome).leases->total(), false});
  }
  const NodeNumber wanted = reached[random_.Below(reached.size())];
  const NodeNumber drawn = reached[random_.Below(reached.size())];
  const rules::ActorGoes goes = rules::FirstPlace(OneCpu(), kHome, wanted, node(kHome).leases->free(), offers);
  home.host = goes == rules::ActorGoes::kHere ? kHome : goes == rules::ActorGoes::kThere ? wanted : drawn;
  home.epoch = table_.Get(home.id)->epoch;
  Send(DaemonOf(kHome), DaemonOf(home.host), [this, actor, host = home.host, epoch = home.epoch] {
    SimNode& at = node(host);
    Guest& guest = at.guests[actor];
    guest = {};
    guest.epoch = epoch;
    guest.request = ++at.last_request;
    at.requests[guest.request] = actor;
    rules::LeaseWant want;
    want.key = {kNoProcess, guest.request};
    want.need = OneCpu();
    want.actor = true;
    AskedForLease(host, want);
  });
}

void RecoveryWorld::PlacedOn(NodeNumber host, std::uint32_t actor, std::uint32_t epoch) {
  const ActorHome& home = homes_[actor];
  const bool good = home.host == host && home.epoch == epoch && table_.Placed(home.id);
  Send(DaemonOf(kHome), DaemonOf(host), [this, host, actor, epoch, good, journal = home.copy] {
    if (good) {
      StartGuest(host, actor, epoch, journal);
    } else {
      EndGuest(host, actor, epoch);
    }
  });
}

// With its journal, if that is left.
void RecoveryWorld::DiedAt(NodeNumber host, std::uint32_t actor, std::uint32_t epoch, const Journal* journal,
                           const Id& died_in) {
  ActorHome& home = homes_[actor];
  if (home.host != host || home.epoch != epoch) return;
  home.exact = journal != nullptr;
  home.died_in = died_in;
  if (journal != nullptr && !model_.faults.lose_last_journal) home.copy = *journal;
  rules::ActorActions actions;
  table_.WorkerDied(home.id, Failure{Code::kWorkerCrashed, "it was killed", {}, {}}, &actions);
  CarryActors(actions);
}

void RecoveryWorld::HostLost(NodeNumber host) {
  for (std::uint32_t actor = 0; actor < homes_.size(); ++actor) {
    const rules::ActorTable::Actor* known = table_.Get(homes_[actor].id);
    if (homes_[actor].host != host || known == nullptr || known->phase == rules::ActorPhase::kDead) continue;
    if (known->waits) {
      PlaceActor(actor);
    } else {
      DiedAt(host, actor, homes_[actor].epoch, nullptr, {});
    }
  }
}

void RecoveryWorld::TellCaller(std::uint32_t actor, ProcessId caller) {
  const ActorHome& home = homes_[actor];
  Send(DaemonOf(kHome), caller,
       [this, caller, actor, epoch = home.epoch, worker = home.pid, exact = home.exact, died_in = home.died_in] {
         if (worker != kNoProcess) return ActorIs(*Find(caller), actor, epoch, worker);
         ActorRestarts(*Find(caller), actor, epoch, exact, died_in);
       });
}

// ---- on its host ----

void RecoveryWorld::ActorGranted(NodeNumber host, std::uint32_t actor, std::uint64_t lease) {
  Guest& guest = node(host).guests.at(actor);
  guest.lease = lease;
  Send(DaemonOf(host), DaemonOf(kHome), [this, host, actor, epoch = guest.epoch] { PlacedOn(host, actor, epoch); });
}

void RecoveryWorld::StartGuest(NodeNumber host, std::uint32_t actor, std::uint32_t epoch, const Journal& journal) {
  const auto it = node(host).guests.find(actor);
  if (it == node(host).guests.end() || it->second.epoch != epoch) return;
  Guest& guest = it->second;
  guest.journal = journal;
  Process& process = Start(host);
  process.lease = guest.lease;
  process.acting = std::make_unique<Acting>();
  process.acting->actor = actor;
  process.acting->epoch = epoch;
  guest.pid = process.pid;
  node(host).workers[guest.lease] = process.pid;
  On(host, Delay(2'000), [this, pid = process.pid] {
    Process* self = Find(pid);
    if (self == nullptr) return;
    Acting& acting = *self->acting;
    rules::ReplayPolicy policy;
    policy.actor = Cat("Counter ", acting.actor);
    policy.every_calls = homes_[acting.actor].every_calls;
    policy.can_save = policy.every_calls > 0;
    acting.replay = rules::ActorReplay(policy, Now(NodeOf(pid)));
    const Journal& found = JournalOf(*self);
    if (found.has_state) acting.state = found.state;
    acting.replay.Restored(sizeof found.state, found.calls.size() * 64, found.calls.size());
    if (found.has_state || !found.calls.empty()) BuildIndex(*self);
    Recover(*self, 0);
  });
}

// By its home's order, or because that is out of reach.
void RecoveryWorld::EndGuest(NodeNumber host, std::uint32_t actor, std::uint32_t epoch) {
  SimNode& at = node(host);
  const auto it = at.guests.find(actor);
  if (it == at.guests.end() || it->second.epoch != epoch) return;
  const Guest guest = std::move(it->second);
  at.guests.erase(it);
  if (guest.pid != kNoProcess) return Exit(guest.pid);
  rules::LeaseActions actions;
  if (guest.lease != 0) {
    at.leases->Return(guest.lease, Now(host), &actions);
  } else {
    at.requests.erase(guest.request);
    at.leases->Cancel({kNoProcess, guest.request}, Now(host), &actions);
  }
  PerformLeases(host, actions);
}

void RecoveryWorld::GuestDied(NodeNumber host, std::uint32_t actor, const Id& died_in) {
  const auto it = node(host).guests.find(actor);
  const Guest guest = std::move(it->second);
  node(host).guests.erase(it);
  ++deaths_[died_in];
  Send(DaemonOf(host), DaemonOf(kHome), [this, host, actor, died_in, epoch = guest.epoch, journal = guest.journal] {
    DiedAt(host, actor, epoch, &journal, died_in);
  });
}

Journal& RecoveryWorld::JournalOf(Process& process) {
  return node(NodeOf(process.pid)).guests.at(process.acting->actor).journal;
}

void RecoveryWorld::BuildIndex(Process& process) {
  rules::ActorReplay& replay = process.acting->replay;
  replay.Forget();
  const Journal& journal = JournalOf(process);
  for (std::size_t i = 0; i < journal.answers.size() && !model_.faults.forget_answers; ++i) {
    replay.Remember(journal.answers[i].call.id, journal.answers[i].call.Digest(), i);
  }
  replay.Indexed();
}

void RecoveryWorld::Recover(Process& process, std::size_t next) {
  Journal& journal = JournalOf(process);
  if (next >= journal.calls.size()) return Recovered(process);
  RunCall(process, journal.calls[next].call, [this, pid = process.pid, next](std::uint64_t answer) {
    Process& self = *Find(pid);
    const Journal::Record& record = JournalOf(self).calls[next];
    ++figures_.replayed;
    const Failure failure = self.acting->replay.Replayed({record.call.id, "Add", record.answer, false, answer, false});
    if (!failure.ok()) return Violation(failure.message);
    Recover(self, next + 1);
  });
}

void RecoveryWorld::Recovered(Process& process) {
  Acting& acting = *process.acting;
  const NodeNumber host = NodeOf(process.pid);
  if (acting.replay.Recovered(Now(host)) == rules::ActorReplay::Next::kCheckpoint) Checkpoint(process, 0);
  acting.ready = true;
  ToDaemon(process.pid, [this, host, pid = process.pid, actor = acting.actor, epoch = acting.epoch] {
    Send(DaemonOf(host), DaemonOf(kHome), [this, host, pid, actor, epoch] {
      ActorHome& home = homes_[actor];
      if (home.host != host || home.epoch != epoch) return;
      home.pid = pid;
      rules::ActorActions actions;
      table_.Ready(home.id, &actions);
      CarryActors(actions);
    });
  });
  ServeNext(process);
}

// ---- calls, at the actor ----

void RecoveryWorld::ServeNext(Process& process) {
  Acting& acting = *process.acting;
  if (!acting.ready || acting.busy || acting.queue.empty()) return;
  acting.busy = true;
  Acting::Arrived arrived = acting.queue.front();
  acting.queue.pop_front();
  rules::ReplayCall asked;
  asked.id = arrived.call.id;
  asked.digest = arrived.call.Digest();
  asked.read_only = arrived.call.method == Method::kRead;
  asked.rerun = arrived.call.rerun;
  asked.begun = arrived.call.begun;
  asked.once = arrived.call.once;
  if (acting.replay.NeedsIndex(asked)) BuildIndex(process);
  std::uint64_t place = 0;
  switch (acting.replay.Arrive(asked, &place)) {
    case rules::ActorReplay::Verdict::kRun:
      if (arrived.call.limit >= 0 && known_deaths_[arrived.call.id] > arrived.call.limit) {
        Violation(Cat("call ", ToString(arrived.call.id), " was begun again"));
      }
      acting.running = arrived.call.id;
      RunCall(process, arrived.call, [this, pid = process.pid, arrived](std::uint64_t answer) {
        Ran(*Find(pid), arrived, answer, arrived.call.method != Method::kRead);
      });
      break;
    case rules::ActorReplay::Verdict::kAnswer:
      ++figures_.answered_again;
      Ran(process, arrived, JournalOf(process).answers[place].answer, false);
      break;
    case rules::ActorReplay::Verdict::kRefuse:
      arrived.refused = true;
      Ran(process, arrived, 0, false);
      break;
    case rules::ActorReplay::Verdict::kDiffers:
      Violation(Cat("call ", ToString(arrived.call.id), " is not what it was"));
  }
}

void RecoveryWorld::RunCall(Process& process, const ActorCall& call, const ThenValue& then) {
  const ProcessId pid = process.pid;
  On(NodeOf(pid), Delay(1'000), [this, pid, call, then] {
    Process* self = Find(pid);
    if (self == nullptr) return;
    if (self->acting->doomed) return Exit(pid);
    const auto add = [this, pid, call, then] {
      Acting& acting = *Find(pid)->acting;
      acting.state += call.amount;
      then(acting.state);
    };
    if (call.method == Method::kRead) return then(self->acting->state);
    if (call.method == Method::kAdd) return add();
    ActorCall inner;
    inner.id = DeriveId(call.id, 0, 0);
    inner.origin = call.id;
    inner.actor = call.to;
    inner.amount = call.amount;
    inner.rerun = call.rerun || !self->acting->ready;
    Call(*self, inner, [add](std::uint64_t) { add(); });
  });
}

void RecoveryWorld::Ran(Process& process, const Acting::Arrived& arrived, std::uint64_t answer, bool run) {
  Acting& acting = *process.acting;
  Journal& journal = JournalOf(process);
  acting.running = {};
  if (run) {
    journal.calls.push_back({arrived.call, answer});
    journal.answers.push_back({arrived.call, answer});
    if (acting.replay.indexed() && !model_.faults.forget_answers) {
      acting.replay.Remember(arrived.call.id, arrived.call.Digest(), journal.answers.size() - 1);
    }
    acting.copied = false;
    const rules::ActorReplay::Next next = acting.replay.Ran(64, Now(NodeOf(process.pid)));
    if (next == rules::ActorReplay::Next::kCheckpoint) Checkpoint(process, arrived.call.amount);
    if (next == rules::ActorReplay::Next::kGiveUp) Violation("an actor's records were given up");
  }
  const bool local = NodeOf(arrived.caller) == NodeOf(process.pid);
  const auto answer_it = [this, pid = process.pid, arrived, answer] { AnswerCall(*Find(pid), arrived, answer); };
  const auto go_on = [this, pid = process.pid] {
    Find(pid)->acting->busy = false;
    ServeNext(*Find(pid));
  };
  const bool at_once = model_.faults.answer_before_copy || (model_.faults.local_answers_first && local);
  if (at_once) answer_it();
  if (at_once && local) return go_on();
  CopyJournal(process, [at_once, answer_it, go_on] {
    if (!at_once) answer_it();
    go_on();
  });
}

void RecoveryWorld::Checkpoint(Process& process, std::uint64_t last_amount) {
  Acting& acting = *process.acting;
  Journal& journal = JournalOf(process);
  ++figures_.checkpoints;
  journal.has_state = true;
  journal.state = acting.state - (model_.faults.early_checkpoint ? last_amount : 0);
  if (!model_.faults.keep_records) journal.calls.clear();
  acting.copied = false;
  acting.replay.Checkpointed(sizeof journal.state, Now(NodeOf(process.pid)));
}

// To its home, before anybody may see what is in it.
void RecoveryWorld::CopyJournal(Process& process, Then copied) {
  Acting& acting = *process.acting;
  const ProcessId pid = process.pid;
  const NodeNumber host = NodeOf(pid);
  if (host == kHome || acting.copied) return copied();
  const std::uint64_t question = ++process.last_question;
  process.holds[question] = std::move(copied);
  ToDaemon(pid, [this, host, pid, question, actor = acting.actor, epoch = acting.epoch, journal = JournalOf(process)] {
    Send(DaemonOf(host), DaemonOf(kHome), [this, host, pid, question, actor, epoch, journal] {
      ActorHome& home = homes_[actor];
      if (home.host != host || home.epoch != epoch) return;
      home.copy = journal;
      Send(DaemonOf(kHome), DaemonOf(host), [this, host, pid, question] {
        if (Find(pid) == nullptr) return;
        Send(DaemonOf(host), pid, [this, pid, question] {
          Process& self = *Find(pid);
          self.acting->copied = true;
          const auto node = self.holds.extract(question);
          if (!node.empty()) node.mapped()();
        });
      });
    });
  });
}

void RecoveryWorld::AnswerCall(Process& process, const Acting::Arrived& arrived, std::uint64_t answer) {
  // A caller whose connection broke has made another, and sends again what was not answered.
  if (arrived.link != EpochOf(process.pid, arrived.caller)) return;
  Send(process.pid, arrived.caller,
       [this, caller = arrived.caller, actor = arrived.call.actor, id = arrived.call.id, answer,
        refused = arrived.refused] { CallAnswered(*Find(caller), actor, id, answer, refused); });
}

// ---- calls, at the caller ----

void RecoveryWorld::Call(Process& process, const ActorCall& call, ThenValue then) {
  ActorLine& line = process.lines[call.actor];
  if (call.method != Method::kRead) amounts_[call.actor][call.id] = call.amount;
  call_numbers_.try_emplace(call.id, call_numbers_.size());
  line.pending.push_back({call, false, std::move(then)});
  if (!std::exchange(line.attached, true)) Attach(process, call.actor);
  if (line.worker != kNoProcess) SendCalls(process, call.actor);
}

void RecoveryWorld::Attach(Process& process, std::uint32_t actor) {
  const ProcessId pid = process.pid;
  const NodeNumber here = NodeOf(pid);
  ToDaemon(pid, [this, pid, here, actor] {
    Send(DaemonOf(here), DaemonOf(kHome), [this, pid, actor] {
      homes_[actor].callers.insert(pid);
      node(kHome).far_holders.insert(pid);
      if (homes_[actor].pid != kNoProcess) TellCaller(actor, pid);
    });
  });
}

void RecoveryWorld::ActorRestarts(Process& process, std::uint32_t actor, std::uint32_t epoch, bool exact,
                                  const Id& died_in) {
  ActorLine& line = process.lines[actor];
  if (epoch < line.epoch) return;
  line.epoch = epoch;
  line.worker = kNoProcess;
  LoseCalls(process, actor, exact, died_in);
}

void RecoveryWorld::ActorIs(Process& process, std::uint32_t actor, std::uint32_t epoch, ProcessId worker) {
  ActorLine& line = process.lines[actor];
  if (epoch < line.epoch) return;
  line.epoch = epoch;
  // Out of reach, it is as good as none: when the link is back, its home is asked again.
  line.worker = Reaches(NodeOf(process.pid), NodeOf(worker)) ? worker : kNoProcess;
  if (line.worker == kNoProcess) return;
  LoseCalls(process, actor, false, {});  // what became of those that were sent is not known
  SendCalls(process, actor);
}

// Those that were sent.
void RecoveryWorld::LoseCalls(Process& process, std::uint32_t actor, bool exact, const Id& died_in) {
  ActorLine& line = process.lines[actor];
  std::vector<ActorLine::Pending*> sent;
  rules::ActorLoss loss{true, exact, true, rules::ActorLoss::kNone};
  for (ActorLine::Pending& pending : line.pending) {
    if (!std::exchange(pending.sent, false)) continue;
    if (exact && pending.call.id == died_in) {
      loss.died_in = sent.size();
      ++known_deaths_[died_in];
    }
    sent.push_back(&pending);
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    ActorCall& call = sent[i]->call;
    rules::OpenCall open{call.retries, false, call.rerun, false, call.begun, call.once};
    if (model_.faults.blame_all && exact) loss.died_in = i;
    if (rules::AfterLoss(loss, i, &open) != rules::Fate::kAgain) Violation("a call was given up by its caller");
    call.retries = open.retries;
    if (!model_.faults.rerun_unmarked) call.rerun = open.rerun;
    if (!model_.faults.begin_for_ever) call.begun = open.begun;
    call.once = open.once;
  }
}

// Those that were not.
void RecoveryWorld::SendCalls(Process& process, std::uint32_t actor) {
  ActorLine& line = process.lines[actor];
  std::vector<ActorCall> calls;
  for (ActorLine::Pending& pending : line.pending) {
    if (!std::exchange(pending.sent, true)) calls.push_back(pending.call);
  }
  if (model_.faults.resend_backwards) std::reverse(calls.begin(), calls.end());
  for (const ActorCall& call : calls) {
    Send(process.pid, line.worker, [this, caller = process.pid, worker = line.worker, call] {
      Process& self = *Find(worker);
      self.acting->queue.push_back({caller, call, EpochOf(caller, worker)});
      ServeNext(self);
    });
  }
}

void RecoveryWorld::CallAnswered(Process& process, std::uint32_t actor, const Id& call, std::uint64_t answer,
                                 bool refused) {
  ActorLine& line = process.lines[actor];
  const auto it = std::find_if(line.pending.begin(), line.pending.end(),
                               [&](const ActorLine::Pending& pending) { return pending.call.id == call; });
  if (it == line.pending.end()) return;  // it was answered before
  if (it != line.pending.begin()) {
    Violation(Cat("call ", ToString(call), " was answered before ", it - line.pending.begin(), " earlier ones"));
  }
  const ActorLine::Pending done = std::move(*it);
  line.pending.erase(it);
  if (refused) {
    ++figures_.refused;
    if (deaths_[call] <= done.call.limit) Violation(Cat("call ", ToString(call), " was refused for others"));
    amounts_[actor].erase(call);  // it has not acted
  } else {
    Saw(done.call, answer);
  }
  done.then(answer);
}

}  // namespace manta::sim
