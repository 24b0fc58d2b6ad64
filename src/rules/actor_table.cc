#include "rules/actor_table.h"

#include "types/text.h"

namespace manta::rules {
namespace {

std::string Title(const Id& id, const ActorPolicy& policy) {
  const std::string name = policy.name.empty() ? "" : Cat(" \"", policy.name, "\"");
  return Cat("actor ", policy.class_name, name, " (", ToString(id), ")");
}

std::string RestartsUsed(const ActorTable::Actor& actor) {
  if (actor.policy.max_restarts < 0) return Cat("restarts used ", actor.epoch, ", without limit");
  return Cat("restarts used ", actor.epoch, " of ", actor.policy.max_restarts);
}

}  // namespace

ActorTable::Actor* ActorTable::Living(const Id& actor) {
  const auto it = actors_.find(actor);
  return it == actors_.end() || it->second.phase == ActorPhase::kDead ? nullptr : &it->second;
}

Result<Id> ActorTable::Create(const Id& actor, const Id& job, const ActorPolicy& policy, ActorActions* actions) {
  if (policy.max_restarts < -1) {
    return Status(Code::kInvalid, Cat(Title(actor, policy), ": max_restarts is ", policy.max_restarts,
                                      "; give a count, or -1 for no limit"));
  }
  if (policy.get_if_exists && policy.name.empty()) {
    return Status(Code::kInvalid, Cat(Title(actor, policy), ": get_if_exists needs a name; give the actor one"));
  }
  if (!policy.name.empty()) {
    const auto it = names_.find({policy.space, policy.name});
    if (it != names_.end()) {
      Actor& living = actors_.at(it->second);
      if (!policy.get_if_exists) {
        return Status(Code::kInvalid,
                      Cat("cannot create ", Title(actor, policy), ": ", Title(it->second, living.policy),
                          " has that name in namespace \"", policy.space,
                          "\"; use another name or namespace, set get_if_exists, or kill that one first"));
      }
      living.handles_gone = false;
      return it->second;
    }
  }
  const auto [it, fresh] = actors_.try_emplace(actor);
  if (!fresh) {
    return Status(Code::kInvalid, Cat("cannot create ", Title(actor, policy), ": this id is in use by ",
                                      Title(actor, it->second.policy), "; each actor needs an id of its own"));
  }
  it->second.policy = policy;
  it->second.job = job;
  it->second.waits = true;
  if (!policy.name.empty()) names_.emplace(std::pair(policy.space, policy.name), actor);
  ++living_;
  actions->push_back(RequestLease{actor});
  return actor;
}

Status ActorTable::Adopt(const Id& actor, const Id& job, const ActorPolicy& policy, std::uint32_t epoch,
                         const Failure& cause, ActorActions* actions) {
  const bool taken = !policy.name.empty() && names_.contains({policy.space, policy.name});
  if (taken || actors_.contains(actor)) {
    return Status(Code::kInvalid,
                  Cat("cannot adopt ", Title(actor, policy), ": its ", taken ? "name" : "id", " is taken"));
  }
  Actor& adopted = actors_[actor];
  adopted.policy = policy;
  adopted.job = job;
  adopted.phase = ActorPhase::kAlive;
  adopted.placed = true;
  adopted.epoch = epoch;
  if (!policy.name.empty()) names_.emplace(std::pair(policy.space, policy.name), actor);
  ++living_;
  WorkerDied(actor, cause, actions);
  return {};
}

bool ActorTable::Placed(const Id& actor) {
  Actor* found = Living(actor);
  if (found == nullptr || !found->waits) return false;
  found->waits = false;
  found->placed = true;
  return true;
}

void ActorTable::Ready(const Id& actor, ActorActions* actions) {
  Actor* found = Living(actor);
  if (found == nullptr || !found->placed || found->phase == ActorPhase::kAlive) return;
  found->phase = ActorPhase::kAlive;
  found->false_restarts = 0;
  actions->push_back(Notify{actor, ActorPhase::kAlive, {}});
}

void ActorTable::ConstructorFailed(const Id& actor, const Failure& failure, ActorActions* actions) {
  Actor* found = Living(actor);
  if (found == nullptr || !found->placed || found->phase == ActorPhase::kAlive) return;
  // One that found no place did not come so far; one that cannot repeat what it did came further.
  const bool infeasible = failure.code == Code::kInfeasible;
  const bool other = infeasible || failure.code == Code::kActorDied;
  Die(actor,
      {other ? failure.message : Cat("its constructor failed: ", failure.message),
       infeasible ? "It comes back nowhere."
       : other    ? "It does not come back."
                  : "Fix the constructor or its arguments.",
       failure, /*force=*/false},
      actions);
}

void ActorTable::WorkerDied(const Id& actor, const Failure& cause, ActorActions* actions) {
  const auto it = actors_.find(actor);
  if (it == actors_.end() || !it->second.placed) return;
  Actor& found = it->second;
  found.placed = false;
  if (found.phase == ActorPhase::kDead) return;
  const std::string why = found.killed ? "its process was killed by Kill(restart)" : cause.message;
  found.killed = false;
  if (found.phase != ActorPhase::kAlive && ++found.false_restarts >= kMostFalseRestarts) {
    Die(actor,
        {Cat(why, "; that was the ", found.false_restarts, ". time in a row, before it was ready"),
         "Look at what its constructor does, or at the calls that it repeats.", cause},
        actions);
    return;
  }
  const std::int64_t limit = found.policy.max_restarts;
  if (limit >= 0 && static_cast<std::int64_t>(found.epoch) >= limit) {
    Die(actor,
        {why,
         limit == 0 ? "Set max_restarts to let it come back." : "Raise max_restarts to let it come back more often.",
         cause},
        actions);
    return;
  }
  ++found.epoch;
  found.phase = ActorPhase::kRestarting;
  found.waits = true;
  // Not kActorDied: it will be back. A call that may not be retried fails with this.
  found.failure =
      Failure{cause.ok() ? Code::kWorkerCrashed : cause.code,
              Cat(Title(actor, found.policy), " lost its process: ", why, "; it restarts, ", RestartsUsed(found),
                  "; max_call_retries says how often a call that it dies in is begun again."),
              cause.type, cause.cause};
  actions->push_back(Notify{actor, ActorPhase::kRestarting, found.failure});
  actions->push_back(RequestLease{actor});
}

void ActorTable::Lost(const Id& actor, const Failure& why, ActorActions* actions) {
  const auto it = actors_.find(actor);
  if (it == actors_.end()) return;
  it->second.placed = false;
  if (it->second.phase == ActorPhase::kDead) return;
  Die(actor, {why.message, "It does not come back.", why}, actions);
}

void ActorTable::NeverBegan(const Id& actor, ActorActions* actions) {
  Actor* found = Living(actor);
  if (found == nullptr || !found->placed || found->phase == ActorPhase::kAlive) return;
  found->placed = false;
  found->killed = false;
  found->waits = true;
  actions->push_back(RequestLease{actor});
}

void ActorTable::Kill(const Id& actor, bool restart, ActorActions* actions) {
  Actor* found = Living(actor);
  if (found == nullptr) return;
  if (!restart) {
    Die(actor, {"killed by Kill()", "Create a new one to go on.", {}}, actions);
  } else if (found->placed && !found->killed) {
    found->killed = true;
    actions->push_back(StopWorker{actor, /*force=*/true});
  }
}

void ActorTable::HandlesGone(const Id& actor, ActorActions* actions) {
  const auto it = actors_.find(actor);
  if (it == actors_.end()) return;
  it->second.handles_gone = true;
  if (it->second.phase == ActorPhase::kDead) {
    actors_.erase(it);
  } else if (!it->second.policy.detached) {
    Die(actor, {"its last handle went away", "Keep a handle, or make it detached.", {}, /*force=*/false}, actions);
  }
}

void ActorTable::Moved(const Id& actor) {
  const Actor* found = Living(actor);
  if (found == nullptr) return;
  if (!found->policy.name.empty()) names_.erase({found->policy.space, found->policy.name});
  --living_;
  actors_.erase(actor);
}

void ActorTable::DriverDied(const Id& job, ActorActions* actions) {
  std::vector<Id> dying;  // Die may erase
  for (const auto& [id, actor] : actors_) {
    if (actor.job == job && !actor.policy.detached && actor.phase != ActorPhase::kDead) dying.push_back(id);
  }
  for (const Id& id : dying) Die(id, {"its driver ended", "Make it detached to outlive its driver.", {}}, actions);
}

Result<Id> ActorTable::Find(const std::string& name, const std::string& space) {
  const auto it = names_.find({space, name});
  if (it == names_.end()) {
    return Status(Code::kNotFound, Cat("no living actor is named \"", name, "\" in namespace \"", space,
                                       "\"; check the spelling and the namespace, or create it with get_if_exists"));
  }
  actors_.at(it->second).handles_gone = false;
  return it->second;
}

void ActorTable::WillBeHeld(const Id& actor) {
  if (Actor* found = Living(actor); found != nullptr) found->handles_gone = false;
}

const ActorTable::Actor* ActorTable::Get(const Id& actor) const {
  const auto it = actors_.find(actor);
  return it == actors_.end() ? nullptr : &it->second;
}

void ActorTable::Die(const Id& id, const Death& death, ActorActions* actions) {
  const auto it = actors_.find(id);
  Actor& actor = it->second;
  if (!actor.policy.name.empty()) names_.erase({actor.policy.space, actor.policy.name});
  if (actor.waits) actions->push_back(CancelLease{id});
  if (actor.placed && !actor.killed) actions->push_back(StopWorker{id, death.force});
  actor.waits = false;
  actor.phase = ActorPhase::kDead;
  actor.failure =
      Failure{Code::kActorDied,
              Cat(Title(id, actor.policy), " died: ", death.cause, "; ", RestartsUsed(actor), ". ", death.remedy),
              death.origin.type, death.origin.cause};
  actions->push_back(Notify{id, ActorPhase::kDead, actor.failure});
  --living_;
  if (actor.handles_gone) actors_.erase(it);
}

}  // namespace manta::rules
