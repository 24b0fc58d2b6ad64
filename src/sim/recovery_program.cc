// What runs on the simulated cluster: the driver's program, the tasks, and what must come out of them.
#include <algorithm>
#include <memory>

#include "sim/recovery_world.h"
#include "types/text.h"

namespace manta::sim {
namespace {

constexpr std::uint32_t kChildren = 2;

TaskSpec ChildOf(const TaskSpec& tree, std::uint32_t i) {
  TaskSpec child;
  child.id = DeriveId(tree.id, 0, i);
  child.kind = TaskKind::kTree;
  child.seed = Mix(tree.seed + i + 1);
  child.depth = tree.depth - 1;
  child.large = child.seed % 2 == 0;
  child.rerun = tree.rerun;
  return child;
}

ActorCall CallOf(const TaskSpec& task, std::uint32_t i, std::uint32_t actors) {
  ActorCall call;
  call.id = DeriveId(task.id, 1, i);
  call.origin = task.id;
  call.actor = task.actor % actors;
  call.amount = 1 + Mix(task.seed + i) % 1'000;
  // To a later one only: a circle would wait for itself.
  if (i % 2 == 1 && call.actor + 1 < actors) {
    call.method = Method::kForward;
    call.to = call.actor + 1;
  }
  call.rerun = task.rerun;
  return call;
}

}  // namespace

// ---- workers ----

void RecoveryWorld::Receive(Process& worker, const TaskSpec& task,
                            const std::vector<std::pair<std::uint64_t, Spot>>& inputs) {
  if (worker.busy) return Violation("a worker got a second task");
  ++figures_.runs;
  worker.busy = true;
  worker.task = task;
  worker.inputs.clear();
  FetchInputs(worker, inputs, 0);
}

void RecoveryWorld::FetchInputs(Process& worker, std::vector<std::pair<std::uint64_t, Spot>> inputs, std::size_t next) {
  const ProcessId pid = worker.pid;
  if (next == inputs.size()) {
    On(NodeOf(pid), Delay(15'000), [this, pid] {
      if (Process* self = Find(pid)) RunTask(*self);
    });
    return;
  }
  const auto got = [this, pid, inputs, next](std::uint64_t value) {
    Process& self = *Find(pid);
    self.inputs.push_back(value);
    FetchInputs(self, inputs, next + 1);
  };
  const Spot spot = inputs[next].second;
  if (spot.serial == 0) return got(inputs[next].first);
  Fetch(worker, spot, got, [this, pid, next, spot] {
    Process& self = *Find(pid);
    Reply(self, TaskResult{0, spot, self.task->inputs[next]});
  });
}

void RecoveryWorld::RunTask(Process& worker) {
  const TaskSpec& task = *worker.task;
  switch (task.kind) {
    case TaskKind::kLeaf: {
      std::uint64_t value = task.seed;
      for (const std::uint64_t input : worker.inputs) value = Mix(value + input);
      return Finish(worker, Mix(value));
    }
    case TaskKind::kTree:
      return task.depth == 0 ? Finish(worker, Mix(task.seed)) : RunTree(worker);
    case TaskKind::kCaller:
      return RunCaller(worker);
    case TaskKind::kBorrower:
      return RunBorrower(worker);
  }
}

// It owns its children, and waits for them without its CPU.
void RecoveryWorld::RunTree(Process& worker) {
  struct Gathered {
    std::vector<std::uint32_t> children;
    std::vector<std::uint64_t> values = std::vector<std::uint64_t>(kChildren);
    std::uint32_t open = kChildren;
  };
  const ProcessId pid = worker.pid;
  auto all = std::make_shared<Gathered>();
  for (std::uint32_t i = 0; i < kChildren; ++i) all->children.push_back(Submit(worker, ChildOf(*worker.task, i)));
  Block(worker);
  for (std::uint32_t i = 0; i < kChildren; ++i) {
    Get(worker, all->children[i], [this, pid, all, i](std::uint64_t value) {
      Process& self = *Find(pid);
      SawValue(ChildOf(*self.task, i), value, "by its parent");
      all->values[i] = value;
      if (--all->open > 0) return;
      Unblock(self, [this, pid, all] {
        Process& again = *Find(pid);
        for (const std::uint32_t child : all->children) Unref(again, child);
        EndOwning(again);
        std::uint64_t sum = again.task->seed;
        for (const std::uint64_t one : all->values) sum = Mix(sum + one);
        Finish(again, sum);
      });
    });
  }
}

void RecoveryWorld::RunCaller(Process& worker) {
  const ProcessId pid = worker.pid;
  const TaskSpec task = *worker.task;
  struct Gathered {
    std::vector<std::uint64_t> answers;
    std::uint32_t open = 0;
  };
  auto all = std::make_shared<Gathered>();
  all->open = task.calls;
  all->answers.resize(task.calls);
  Block(worker);
  for (std::uint32_t i = 0; i < task.calls; ++i) {
    Call(worker, CallOf(task, i, model_.actors), [this, pid, all, i](std::uint64_t answer) {
      all->answers[i] = answer;
      if (--all->open > 0) return;
      Unblock(*Find(pid), [this, pid, all] {
        std::uint64_t sum = Find(pid)->task->seed;
        for (const std::uint64_t one : all->answers) sum = Mix(sum + one);
        Finish(*Find(pid), sum);
      });
    });
  }
}

void RecoveryWorld::RunBorrower(Process& worker) {
  const ProcessId pid = worker.pid;
  const Id object = worker.task->lent;
  Hold(worker, object, driver_, [this, pid, object] {
    ++Find(pid)->souvenirs;
    ReadLent(*Find(pid), object, [this, pid, object](std::uint64_t value) {
      Process& self = *Find(pid);
      SawValue(specs_.at(object), value, "by a borrower");
      LetGoLater(self, object);
      Finish(self, Mix(self.task->seed ^ value));
    });
  });
}

// Its task is over, and it still has the Ref: the value must be there.
void RecoveryWorld::LetGoLater(Process& worker, const Id& object) {
  On(NodeOf(worker.pid), Delay(8'000), [this, pid = worker.pid, object] {
    Process* self = Find(pid);
    if (self == nullptr) return;
    ReadLent(*self, object, [this, pid, object](std::uint64_t value) {
      Process& again = *Find(pid);
      SawValue(specs_.at(object), value, "by a borrower, later");
      Drop(again, object, driver_);
      --again.souvenirs;
      LeaveIfAsked(again);
    });
  });
}

void RecoveryWorld::ReadLent(Process& worker, const Id& object, const ThenValue& then) {
  const ProcessId pid = worker.pid;
  Send(pid, driver_, [this, pid, object, then] {
    Owning& owning = Find(driver_)->owning;
    const auto it = owning.by_id.find(object);
    if (it == owning.by_id.end()) return Violation(Cat("value ", ToString(object), " was freed while it was held"));
    const std::uint32_t value = it->second;
    Want(*Find(driver_), value);
    OwnedValue& entry = owning.values.at(value);
    const Then told = [this, pid, object, then, value] {
      const OwnedValue& now = Find(driver_)->owning.values.at(value);
      Send(driver_, pid, [this, pid, object, then, inside = now.value, spot = now.spot] {
        if (spot.serial == 0) return then(inside);
        Fetch(*Find(pid), spot, then, [this, pid, object, then, spot] {
          Send(pid, driver_, [this, object, spot] {
            const Owning& at = Find(driver_)->owning;
            const auto found = at.by_id.find(object);
            if (found != at.by_id.end()) Lose(*Find(driver_), found->second, spot);
          });
          ReadLent(*Find(pid), object, then);
        });
      });
    };
    if (entry.done) return told();
    entry.waiters.push_back(told);
  });
}

void RecoveryWorld::Finish(Process& worker, std::uint64_t value) {
  TaskResult result;
  if (worker.task->large) {
    result.spot = {NodeOf(worker.pid), ++last_serial_};
    SimNode& at = node(result.spot.node);
    at.store[result.spot.serial] = {worker.task->id, value, worker.serves, worker.pid};
  } else {
    result.value = value;
  }
  Reply(worker, result);
}

void RecoveryWorld::Reply(Process& worker, const TaskResult& result) {
  const ProcessId owner = worker.serves;
  Send(worker.pid, owner,
       [this, owner, pid = worker.pid, id = worker.task->id, result] { Answered(*Find(owner), pid, id, result); });
  worker.busy = false;
  worker.task.reset();
  LeaveIfAsked(worker);
}

void RecoveryWorld::LeaveIfAsked(Process& worker) {
  if (!worker.leaving || worker.busy || worker.souvenirs > 0 || worker.lease == 0) return;
  const NodeNumber number = NodeOf(worker.pid);
  ToDaemon(worker.pid, [this, number, lease = std::exchange(worker.lease, 0)] {
    node(number).workers.erase(lease);
    rules::LeaseActions actions;
    node(number).leases->Return(lease, Now(number), &actions);
    PerformLeases(number, actions);
  });
  Exit(worker.pid);
}

void RecoveryWorld::Block(Process& worker) {
  worker.blocked = true;
  ToDaemon(worker.pid, [this, number = NodeOf(worker.pid), lease = worker.lease] {
    rules::LeaseActions actions;
    node(number).leases->Block(lease, Now(number), &actions);
    PerformLeases(number, actions);
  });
}

void RecoveryWorld::Unblock(Process& worker, Then resume) {
  worker.resume = std::move(resume);
  ToDaemon(worker.pid, [this, number = NodeOf(worker.pid), lease = worker.lease] {
    rules::LeaseActions actions;
    node(number).leases->Unblock(lease, false, Now(number), &actions);
    PerformLeases(number, actions);
  });
}

// ---- the driver ----

void RecoveryWorld::StartDriver() {
  driver_ = Start(kHome).pid;
  CreateActors();
  std::uint64_t made = 0;
  const auto fresh = [&](TaskKind kind) {
    TaskSpec spec;
    spec.id = DeriveId(job_, 0, made++);
    spec.kind = kind;
    spec.seed = random_.Next();
    spec.large = Chance(0.6);
    return spec;
  };
  const auto when = [this] {
    return 1 + static_cast<std::int64_t>(random_.Below(static_cast<std::uint64_t>(model_.trouble_us) * 2 / 3));
  };
  for (std::uint32_t i = 0; i < model_.chains; ++i) {
    std::vector<TaskSpec> chain;
    for (std::uint32_t link = 0; link < model_.links; ++link) {
      chain.push_back(fresh(TaskKind::kLeaf));
      if (link > 0) chain.back().inputs = {chain[link - 1].id};
      if (link > 2) chain.back().inputs.push_back(chain[link - 3].id);
    }
    DriverSubmits(std::move(chain), when());
  }
  for (std::uint32_t i = 0; i < model_.trees; ++i) {
    TaskSpec tree = fresh(TaskKind::kTree);
    tree.depth = 2;
    DriverSubmits({tree}, when());
  }
  for (std::uint32_t i = 0; i < model_.callers; ++i) {
    TaskSpec caller = fresh(TaskKind::kCaller);
    caller.actor = i;
    caller.calls = 1 + i % 4;
    DriverSubmits({caller}, when());
  }
  std::vector<TaskSpec> lent{fresh(TaskKind::kLeaf)};
  for (std::uint32_t i = 0; i < model_.borrowers; ++i) {
    lent.push_back(fresh(TaskKind::kBorrower));
    lent.back().lent = lent.front().id;
  }
  DriverSubmits(std::move(lent), when());
  for (std::uint32_t actor = 0; actor < model_.actors; ++actor) {
    open_ += model_.calls;
    On(kHome, when() / 4, [this, actor] { DriverCalls(actor, 0); });
  }
}

// Together; the driver reads those that nothing else is made of, now and once more later, and forgets the others.
void RecoveryWorld::DriverSubmits(std::vector<TaskSpec> specs, std::int64_t at_us) {
  figures_.tasks += specs.size();
  std::set<Id> used;
  for (const TaskSpec& spec : specs) {
    used.insert(spec.inputs.begin(), spec.inputs.end());
    used.insert(spec.lent);
  }
  open_ += static_cast<std::uint32_t>(
      std::count_if(specs.begin(), specs.end(), [&](const TaskSpec& spec) { return !used.contains(spec.id); }));
  On(kHome, at_us, [this, specs = std::move(specs), used] {
    Process& driver = *Find(driver_);
    std::vector<std::uint32_t> values;
    for (const TaskSpec& spec : specs) values.push_back(Submit(driver, spec));
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (used.contains(specs[i].id)) {
        Unref(driver, values[i]);
        continue;
      }
      const auto later = static_cast<std::int64_t>(random_.Below(1'500'000));
      Get(driver, values[i], [this, spec = specs[i], value = values[i], later](std::uint64_t first) {
        SawValue(spec, first, "by the driver");
        On(kHome, later, [this, spec, value] {
          Get(*Find(driver_), value, [this, spec, value](std::uint64_t again) {
            SawValue(spec, again, "by the driver, later");
            Unref(*Find(driver_), value);
            DriverDone();
          });
        });
      });
    }
  });
}

void RecoveryWorld::DriverCalls(std::uint32_t actor, std::uint32_t next) {
  if (next == model_.calls) return;
  ActorCall call;
  call.origin = job_;
  call.id = DeriveId(job_, 2, (std::uint64_t{actor} << 32) | next);
  call.actor = actor;
  call.amount = 1 + random_.Below(1'000);
  if (next % 5 == 4) {
    call.method = Method::kRead;
  } else if (next % 5 == 2 && actor + 1 < model_.actors) {
    call.method = Method::kForward;
    call.to = actor + 1;
  } else {
    call.limit = call.retries = static_cast<std::int32_t>(next % 3) - 1;
    call.once = call.retries == 0;
  }
  Call(*Find(driver_), call, [this](std::uint64_t) { DriverDone(); });
  // Some come one right after the other.
  On(kHome, Delay(Chance(0.3) ? 100 : 60'000), [this, actor, next] { DriverCalls(actor, next + 1); });
}

// One thing less. In the end all actors are asked what they are, and let go.
void RecoveryWorld::DriverDone() {
  if (--open_ > 0) return;
  if (last_) {
    done_ = true;
    for (const ActorHome& home : homes_) Drop(*Find(driver_), home.id, driver_);
    return;
  }
  last_ = true;
  open_ = model_.actors;
  for (std::uint32_t actor = 0; actor < model_.actors; ++actor) {
    ActorCall call;
    call.origin = job_;
    call.id = DeriveId(job_, 3, actor);
    call.actor = actor;
    call.method = Method::kRead;
    Call(*Find(driver_), call, [this, actor](std::uint64_t state) {
      std::uint64_t sum = 0;
      for (const auto& [id, amount] : amounts_[actor]) sum += amount;
      if (state != sum) Violation(Cat("actor ", actor, " ends with ", state, ", and was given ", sum));
      DriverDone();
    });
  }
}

// ---- what must be ----

std::uint64_t RecoveryWorld::Expected(const TaskSpec& spec) {
  if (const auto it = expected_.find(spec.id); it != expected_.end()) return it->second;
  std::uint64_t value = spec.seed;
  switch (spec.kind) {
    case TaskKind::kLeaf:
      for (const Id& input : spec.inputs) value = Mix(value + Expected(specs_.at(input)));
      value = Mix(value);
      break;
    case TaskKind::kTree:
      if (spec.depth == 0) value = Mix(value);
      for (std::uint32_t i = 0; i < kChildren && spec.depth > 0; ++i) value = Mix(value + Expected(ChildOf(spec, i)));
      break;
    case TaskKind::kCaller:
      for (std::uint32_t i = 0; i < spec.calls; ++i) {
        value = Mix(value + told_[CallOf(spec, i, model_.actors).id].answer);
      }
      break;
    case TaskKind::kBorrower:
      value = Mix(value ^ Expected(specs_.at(spec.lent)));
      break;
  }
  expected_[spec.id] = value;
  return value;
}

void RecoveryWorld::SawValue(const TaskSpec& spec, std::uint64_t value, const char* where) {
  if (value != Expected(spec)) Violation(Cat("a wrong value of task ", ToString(spec.id), " was read ", where));
}

void RecoveryWorld::Saw(const ActorCall& call, std::uint64_t answer) {
  time_.Trace(answer);
  if (call.method == Method::kRead) return;
  const auto [it, fresh] = told_.try_emplace(call.id, Told{call, answer});
  figures_.calls += fresh;
  if (it->second.answer == answer) return;
  Violation(Cat("call ", ToString(call.id), " of actor ", call.actor, " was answered with ", it->second.answer,
                " and with ", answer));
}

// One order of all calls explains the answers, and is the order of each caller.
void RecoveryWorld::CheckActors() {
  for (const auto& [actor, amounts] : amounts_) {
    std::vector<const Told*> calls;
    for (const auto& [id, told] : told_) {
      if (told.call.actor == actor) calls.push_back(&told);
    }
    if (calls.size() != amounts.size()) {
      Violation(Cat("of ", amounts.size(), " calls of actor ", actor, " ", calls.size(), " were answered"));
    }
    std::sort(calls.begin(), calls.end(), [](const Told* a, const Told* b) { return a->answer < b->answer; });
    std::uint64_t sum = 0;
    std::map<Id, std::uint64_t> last;  // by origin
    for (const Told* told : calls) {
      sum += told->call.amount;
      if (told->answer != sum) {
        return Violation(Cat("actor ", actor, " answered ", told->answer, " where ", sum, " was due"));
      }
      const std::uint64_t number = call_numbers_.at(told->call.id) + 1;
      std::uint64_t& before = last[told->call.origin];
      if (number < before) Violation(Cat("calls of one caller acted on actor ", actor, " in another order"));
      before = number;
    }
  }
}

}  // namespace manta::sim
