#include "node/far_actors.h"

#include <algorithm>
#include <utility>

#include "node/actor_state.h"
#include "node/journal_sender.h"
#include "shm/arena.h"

namespace manta::node {
namespace {

constexpr std::int64_t kDyingUs = 5'000;       // before a name of an actor that was just dying is asked for again …
constexpr int kDyingTries = 400;               // … and how often
constexpr std::int64_t kLookUs = 50'000;       // in the queue here, before the head is asked (again)
constexpr std::int64_t kHeadGoneUs = 100'000;  // before asking a head that was out of reach
constexpr std::int64_t kManyBouncesUs = 20'000;
constexpr std::size_t kManyBounces = 8;
constexpr std::int64_t kReattachUs = 500'000;
constexpr int kReattachTries = 3;

std::string TitleOf(const wire::CreateActor& order) {
  const std::string& name = order.options.class_name;
  return Cat("actor ", name.empty() ? ToString(order.actor) : name);
}

// The job of a detached actor. Another one at each home: that of the former may not have ended everywhere.
Id JobOf(const Id& actor, NodeNumber home) { return DeriveId(actor, 0x6465746163686564ULL, home); }

}  // namespace

FarActors::FarActors(Parts parts, Host host)
    : parts_(parts),
      host_(std::move(host)),
      kept_(
          parts.loop, parts.cluster, parts.programs,
          [this](const Id& actor) { return !host_.has_job(JobOf(actor, self())) && !parts_.actors.Knows(actor); },
          [this](const Id& actor) { TakeOut(actor, 0); },
          [this](const wire::AdoptActor& order, const wire::JobFacts& job, base::Fd executable, base::Fd journal) {
            return Adopt(order, job, std::move(executable), std::move(journal));
          }) {
  Register();
}

FarActors::~FarActors() {
  *alive_ = false;
  for (const auto& [id, placing] : placing_) parts_.loop.Cancel(placing.timer);
}

void FarActors::Register() {
  NodeLinks& links = parts_.cluster.links();
  links.On<wire::FarCreateActor>([this](NodeNumber from, const wire::FarCreateActor& message, std::uint64_t call) {
    if (NodeOf(message.creator) != from) return;
    CreateHere(message, [this, from, call](const Result<wire::FarActorMade>& made) {
      if (!made.ok()) return parts_.cluster.links().Fail(from, call, made.status());
      parts_.cluster.links().Answer(from, call, made.value());
    });
  });
  links.On<wire::FarGetActor>([this](NodeNumber from, const wire::FarGetActor& message, std::uint64_t call) {
    if (const auto it = moved_.find(message.actor); it != moved_.end()) {
      const NodeNumber home = it->second.home != 0 ? it->second.home : self();
      const wire::ActorFound there{message.actor, it->second.options, home};
      return parts_.cluster.links().Answer(from, call, there);
    }
    const Result<wire::ActorOptions> options = parts_.actors.Get(message.actor);
    if (!options.ok()) return parts_.cluster.links().Fail(from, call, options.status());
    parts_.directory.HoldOne(message.actor, AllOf(from));
    parts_.cluster.links().Answer(from, call, wire::ActorFound{message.actor, options.value(), self()});
  });
  links.On<wire::FarKillActor>([this](NodeNumber, const wire::FarKillActor& message, std::uint64_t) {
    const auto it = moved_.find(message.actor);
    if (it == moved_.end()) return parts_.actors.Kill(message.actor, message.restart);
    if (it->second.home != 0) return parts_.cluster.links().Send(it->second.home, message);
    it->second.killed = it->second.killed || !message.restart;
  });
  links.On<wire::ActorMoved>(
      [this](NodeNumber from, const wire::ActorMoved& message, std::uint64_t) { OnMoved(from, message); });
  links.On<wire::FarWatchActor>([this](NodeNumber from, const wire::FarWatchActor& message, std::uint64_t) {
    if (const auto it = moved_.find(message.actor); it != moved_.end()) {
      return parts_.cluster.links().Send(from, wire::ActorMoved{message.actor, it->second.home});
    }
    parts_.actors.Watch(from, message.actor);
  });
  links.On<wire::FarActorState>(
      [this](NodeNumber from, const wire::FarActorState& message, std::uint64_t) { OnState(from, message); });
  links.On<wire::FarActorAttached>(
      [this](NodeNumber, const wire::FarActorAttached& message, std::uint64_t) { OnAttached(message); });
  links.On<wire::FarActorRefused>([this](NodeNumber from, const wire::FarActorRefused& message, std::uint64_t) {
    Placing* placing = FindAsked(message.actor, from, message.epoch);
    if (placing == nullptr) return;
    if (message.bounced) return Bounced(message.actor);
    parts_.cluster.Withdraw(placing->ticket);
    placing_.erase(message.actor);
    parts_.actors.CouldNotStart(message.actor, message.failure, message.failure.code == Code::kActorDied);
  });
  links.On<wire::FarActorStarting>([this](NodeNumber from, const wire::FarActorStarting& message, std::uint64_t) {
    if (FindAsked(message.actor, from, message.epoch) != nullptr) placing_.erase(message.actor);
    if (parts_.actors.PlacedOn(message.actor, from, message.epoch)) {
      if (spread_.Counts(message.actor)) spread_.Put(message.actor, from);  // it was refused where it was to go
      return;
    }
    parts_.cluster.links().Send(from, wire::FarStopActor{message.actor, message.epoch, true, {}});
  });
  links.On<wire::FarActorReady>([this](NodeNumber from, const wire::FarActorReady& message, std::uint64_t) {
    parts_.actors.ReadyOn(from, message);
  });
  links.On<wire::FarActorFailed>([this](NodeNumber from, const wire::FarActorFailed& message, std::uint64_t) {
    parts_.actors.FailedOn(from, message);
  });
  links.On<wire::FarActorDied>([this](NodeNumber from, const wire::FarActorDied& message, std::uint64_t) {
    parts_.actors.DiedOn(from, message, true);
  });
  links.WhenDown([this](NodeNumber node, const Status& why) { NodeDown(node, why); });
}

NodeNumber FarActors::OldestNode() const {
  for (const auto& [number, facts] : parts_.cluster.nodes()) {
    if (facts.state != wire::NodeFacts::State::kDraining) return number;
  }
  return self();
}

// ---- creation ----

void FarActors::Create(const Peer& peer, std::uint64_t call, const wire::CreateActor& message) {
  auto asked = std::make_shared<Asked>();
  *asked = Asked{peer.process, call, peer.job, message, 0};
  CreateSomewhere(asked);
}

void FarActors::CreateSomewhere(const std::shared_ptr<Asked>& asked) {
  const wire::JobFacts* facts = host_.facts(asked->job);
  if (facts == nullptr) {
    return parts_.peers.Send(asked->process, wire::Failed{Failure{Code::kUnavailable, "the job has ended", {}, {}}},
                             asked->call);
  }
  const NodeNumber home = asked->order.options.detached ? OldestNode() : facts->home;
  const auto made = [this, alive = alive_, asked, home](const Result<wire::FarActorMade>& answer) {
    if (*alive) Created(asked, home, answer);
  };
  if (IsHere(home)) return CreateHere(wire::FarCreateActor{asked->process, asked->order, *facts}, made);
  parts_.far_leases.WhenDescribed(
      asked->job, home, [this, alive = alive_, asked, home, made](const Result<wire::JobFacts>& described) {
        if (!*alive) return;
        if (!described.ok()) return made(described.status());
        parts_.cluster.links().Call<wire::FarActorMade>(
            home, wire::FarCreateActor{asked->process, asked->order, described.value()}, made);
      });
}

void FarActors::Created(const std::shared_ptr<Asked>& asked, NodeNumber home, const Result<wire::FarActorMade>& made) {
  const auto answer = [this, asked](const wire::ActorCreated& created) {
    parts_.peers.Send(asked->process, created, asked->call);
  };
  if (!made.ok()) {
    return parts_.peers.Send(asked->process, wire::Failed{ToFailure(made.status())}, asked->call);
  }
  const wire::FarActorMade& actor = made.value();
  if (!actor.exists) {
    if (!IsHere(home)) parts_.directory.GiveTo(actor.actor, OnNode(home, 0), asked->process);
    return answer(wire::ActorCreated{actor.actor, actor.options, home});
  }
  Get(actor.home, actor.actor, asked->process,
      [this, alive = alive_, asked, answer](const Result<wire::ActorFound>& found) {
        if (!*alive) return;
        if (found.ok()) {
          return answer(wire::ActorCreated{found.value().actor, found.value().options, found.value().home});
        }
        if (++asked->tries >= kDyingTries) {
          return parts_.peers.Send(asked->process, wire::Failed{ToFailure(found.status())}, asked->call);
        }
        // It died a moment ago, and its name is about to be free.
        parts_.loop.After(kDyingUs, [this, alive, asked] {
          if (*alive) CreateSomewhere(asked);
        });
      });
}

// At home. What takes time comes first: the head's word on the name, and the program of a detached one.
void FarActors::CreateHere(const wire::FarCreateActor& message, OnMade done) {
  const wire::ActorOptions& options = message.order.options;
  if (options.name.empty()) {
    if (options.get_if_exists) {
      return done(Status(Code::kInvalid, Cat(TitleOf(message.order), ": get_if_exists needs a name; give it one")));
    }
    return MakeHere(message, message.job.job, done);
  }
  const wire::ClaimName claim{options.space, options.name, message.order.actor, options.class_name};
  parts_.cluster.Ask<wire::NamedActor>(
      claim, [this, alive = alive_, message, done = std::move(done)](const Result<wire::NamedActor>& named) {
        if (!*alive) return;
        const wire::ActorOptions& asked = message.order.options;
        if (!named.ok()) {
          ReleaseName(asked, message.order.actor);  // it may have been given, and the answer lost
          return done(Status(named.status().code(), Cat("cannot name ", TitleOf(message.order), " \"", asked.name,
                                                        "\": ", named.status().message())));
        }
        const wire::NamedActor& bearer = named.value();
        if (bearer.actor == message.order.actor) return MakeHere(message, message.job.job, done);
        if (asked.get_if_exists) return done(wire::FarActorMade{bearer.actor, {}, bearer.home, true});
        done(Status(Code::kInvalid,
                    Cat("cannot create ", TitleOf(message.order), " \"", asked.name, "\": actor ", bearer.class_name,
                        " (", ToString(bearer.actor), ") has that name in namespace \"", asked.space,
                        "\"; use another name or namespace, set get_if_exists, or kill that one first")));
      });
}

void FarActors::MakeHere(const wire::FarCreateActor& message, const Id& job, const OnMade& done) {
  const wire::ActorOptions& options = message.order.options;
  const auto fail = [&](const Status& why) {
    ReleaseName(options, message.order.actor);
    if (kept_.Has(message.order.actor)) kept_.Forget(message.order.actor);
    done(why);
  };
  const NodeNumber from = NodeOf(message.creator);
  const std::vector<rules::NodeOffer> offers = Offers(options.strategy);
  if (options.strategy.group.empty() && !parts_.placer.patient() &&  // else the group decides
      std::none_of(offers.begin(), offers.end(), [&](const auto& offer) { return offer.CanHold(options.need); })) {
    return fail(NoPlace(TitleOf(message.order), options));
  }
  if (options.detached && job == message.job.job) {
    const Id own = JobOf(message.order.actor, self());
    const auto add = [this, alive = alive_, message, own, done](Result<base::Fd> executable) {
      if (!*alive) return;
      if (!executable.ok()) {
        ReleaseName(message.order.options, message.order.actor);
        return done(executable.status());
      }
      host_.add_job(own, message.job, std::move(*executable));
      kept_.Keep(message, own, [this, alive, message, own, done](const Status& kept) {
        if (!*alive) return;
        if (kept.ok()) {
          MakeHere(message, own, done);
        } else {
          ReleaseName(message.order.options, message.order.actor);
          done(Status(kept.code(),
                      Cat("cannot keep ", TitleOf(message.order), ", which is detached: ", kept.message())));
        }
        host_.check_job(own);
      });
    };
    if (!IsHere(message.job.home)) return parts_.programs.Get(message.job, add);
    base::Fd executable = parts_.programs.Executable(message.job.job);
    if (!executable.valid()) return fail(Status(Code::kUnavailable, "the job has ended"));
    return add(std::move(executable));
  }
  // Much may have happened meanwhile.
  const bool there = IsHere(from) ? parts_.peers.Find(message.creator) != nullptr
                                  : parts_.cluster.Find(from) != nullptr && parts_.cluster.links().IsOpen(from);
  if (!there || host_.facts(job) == nullptr) return fail(Status(Code::kUnavailable, "the job has ended"));
  const Result<Id> made = parts_.actors.Make(message.order, message.creator, job);
  if (!made.ok()) return fail(made.status());
  parts_.directory.HoldOne(made.value(), IsHere(from) ? message.creator : AllOf(from));
  // The creator lets go of the arguments when it has the answer.
  parts_.directory.WhenHeld(
      [done, answer = wire::FarActorMade{made.value(), options, self(), false}] { done(answer); });
}

void FarActors::Died(const Id& actor, const wire::ActorOptions& options, const Id& job) {
  spread_.Remove(actor);
  ReleaseName(options, actor);
  if (!options.detached) return;
  kept_.Forget(actor);
  parts_.loop.After(0, [this, alive = alive_, job] {
    if (*alive) host_.check_job(job);
  });
}

void FarActors::ReleaseName(const wire::ActorOptions& options, const Id& actor) {
  if (options.name.empty()) return;
  wire::ReleaseName message{options.space, options.name, actor};
  if (!parts_.cluster.Tell(message)) releases_.push_back(std::move(message));
}

void FarActors::HeadIsBack() {
  for (wire::ReleaseName& message : std::exchange(releases_, {})) {
    if (!parts_.cluster.Tell(message)) releases_.push_back(std::move(message));
  }
  kept_.HeadIsBack();
}

// The home of a detached actor is lost, and this node is the next.
Status FarActors::Adopt(const wire::AdoptActor& order, const wire::JobFacts& job, base::Fd executable,
                        base::Fd journal) {
  const Id& actor = order.made.order.actor;
  const Id own = JobOf(actor, self());
  host_.add_job(own, job, std::move(executable));
  const Status adopted =
      parts_.actors.Adopt(order.made.order, order.made.creator, own, order.epoch, std::move(journal), order.why);
  host_.check_job(own);
  if (adopted.ok()) HomeFound(actor, self(), Status(Code::kUnavailable, order.why));
  return adopted;
}

// ---- names and handles ----

void FarActors::Find(const Peer& peer, std::uint64_t call, const wire::FindActor& message) {
  const ProcessId process = peer.process;
  const auto answer = [this, process, call](const Result<wire::ActorFound>& found) {
    if (!found.ok()) return parts_.peers.Send(process, wire::Failed{ToFailure(found.status())}, call);
    parts_.peers.Send(process, found.value(), call);
  };
  if (const Result<Id> here = parts_.actors.FindHere(message.name, message.space); here.ok()) {
    return Get(self(), here.value(), process, answer);
  }
  parts_.cluster.Ask<wire::NamedActor>(wire::FindName{message.space, message.name},
                                       [this, alive = alive_, process, answer](const Result<wire::NamedActor>& named) {
                                         if (!*alive) return;
                                         if (!named.ok()) return answer(named.status());
                                         Get(named.value().home, named.value().actor, process, answer);
                                       });
}

void FarActors::Get(NodeNumber home, const Id& actor, ProcessId process, const OnFound& done) {
  if (!IsHere(home)) {
    parts_.cluster.links().Call<wire::ActorFound>(
        home, wire::FarGetActor{actor},
        [this, alive = alive_, home, process, done](const Result<wire::ActorFound>& found) {
          if (!*alive) return;
          if (found.ok()) parts_.directory.GiveTo(found.value().actor, OnNode(home, 0), process);
          done(found);
        });
    return;
  }
  const Result<wire::ActorOptions> options = parts_.actors.Get(actor);
  if (!options.ok() || parts_.peers.Find(process) == nullptr) return done(options.status());
  parts_.directory.HoldOne(actor, process);
  done(wire::ActorFound{actor, options.value(), self()});
}

void FarActors::Kill(Peer& peer, const wire::KillActor& message) {
  NodeNumber home = message.home;
  if (home == 0) home = parts_.guests.HomeOf(message.actor);  // an actor that ends itself
  if (kept_.Has(message.actor)) home = self();
  if (const auto it = moved_.find(message.actor); it != moved_.end()) {
    home = it->second.home;
    if (home == 0) it->second.killed = it->second.killed || !message.restart;
    if (home == 0) return;
  }
  if (const auto it = seen_.find(message.actor); it != seen_.end() && it->second.home != 0) home = it->second.home;
  if (!IsHere(home) && parts_.cluster.Find(home) == nullptr) {
    parts_.cluster.Ask<wire::ActorHome>(
        wire::FindHome{message.actor}, [this, alive = alive_, message](const Result<wire::ActorHome>& found) {
          if (!*alive || !found.ok()) return;
          if (IsHere(found.value().home)) return parts_.actors.Kill(message.actor, message.restart);
          parts_.cluster.links().Send(found.value().home, wire::FarKillActor{message.actor, message.restart});
        });
    return;
  }
  if (IsHere(home)) return parts_.actors.Kill(peer, message);
  parts_.cluster.links().Send(home, wire::FarKillActor{message.actor, message.restart});
}

// ---- placement ----

std::vector<rules::NodeOffer> FarActors::Offers(const Strategy& strategy) const {
  std::vector<rules::NodeOffer> offers;
  for (const auto& [number, facts] : parts_.cluster.nodes()) {
    if (!strategy.node.empty() && !strategy.soft && !NamesNode(strategy.node, facts.name, number)) continue;
    if (!Matches(facts.labels, strategy.labels)) continue;
    const bool draining =
        number == self() ? parts_.far_leases.draining() : facts.state == wire::NodeFacts::State::kDraining;
    offers.push_back({number, facts.total, draining});
  }
  return offers;
}

Status FarActors::NoPlace(const std::string& who, const wire::ActorOptions& options) const {
  const std::string where = ToString(options.strategy);
  return rules::NoNodeHolds(where.empty() ? who : Cat(who, ", to run ", where, ","), options.need,
                            Offers(options.strategy));
}

bool FarActors::Place(const Id& actor) {
  const std::optional<Actors::Order> order = parts_.actors.Waiting(actor);
  if (!order.has_value()) return true;
  Placing& placing = placing_[actor];
  parts_.loop.Cancel(placing.timer);
  placing = Placing();
  placing.epoch = order->epoch;
  const Resources& need = order->options.need;
  if (const Strategy& strategy = order->options.strategy; !strategy.empty()) {
    const bool here = strategy.group.empty() && parts_.placer.AllowsHere(strategy) &&
                      !parts_.placer.PrefersOthers(strategy) && IsHere(order->wanted) &&
                      !parts_.far_leases.draining() && parts_.leases.queue().total().Covers(need) &&
                      parts_.leases.FreeFor(kNoProcess, 0).Covers(need);
    placing.state = here ? Placing::State::kWaits : Placing::State::kPlacing;
    LookLater(actor, here ? kLookUs : 0);  // from the loop: it is still being created
    return !here;
  }
  const std::vector<rules::NodeOffer> offers = Offers({});
  const NodeNumber wanted = SpreadTo(actor, *order, offers);
  switch (rules::FirstPlace(need, self(), wanted, parts_.leases.FreeFor(kNoProcess, 0), offers)) {
    case rules::ActorGoes::kHere:
      placing.state = Placing::State::kWaits;
      LookLater(actor, kLookUs);
      return false;
    case rules::ActorGoes::kThere:
      AskNode(actor, rules::Placement{wanted, 1, 0, 0, false});
      return true;
    case rules::ActorGoes::kUp:
      AskHead(actor);
      return true;
    default:
      break;
  }
  LookLater(actor, 0);  // from the loop: it is still being created. The head may know a node that has just come.
  return true;
}

NodeNumber FarActors::SpreadTo(const Id& actor, const Actors::Order& order,
                               const std::vector<rules::NodeOffer>& offers) {
  if (!order.options.need.empty()) return order.wanted;
  const bool returns = order.epoch > 0 && order.wanted != 0;
  const NodeNumber node = returns ? order.wanted : spread_.Choose(actor, order.wanted, offers);
  if (node != 0) spread_.Put(actor, node);
  return node;
}

void FarActors::StopPlacing(const Id& actor) {
  const auto it = placing_.find(actor);
  if (it == placing_.end()) return;
  const Placing placing = std::move(it->second);
  placing_.erase(it);
  parts_.loop.Cancel(placing.timer);
  if (placing.state != Placing::State::kAsked) return;
  parts_.cluster.Withdraw(placing.ticket);
  parts_.cluster.links().Send(placing.node, wire::FarStopActor{actor, placing.epoch, true, {}});
}

void FarActors::LookLater(const Id& actor, std::int64_t after_us) {
  Placing& placing = placing_[actor];
  parts_.loop.Cancel(placing.timer);
  placing.timer = parts_.loop.After(after_us, [this, actor] {
    const auto it = placing_.find(actor);
    if (it == placing_.end()) return;
    it->second.timer = 0;
    if (it->second.state == Placing::State::kPlacing) return AskHead(actor);
    // In the queue here. If it has got what it waited for, this is over.
    if (!parts_.leases.ActorWaits(actor)) {
      placing_.erase(it);
    } else if (parts_.cluster.HasOthers() && parts_.cluster.connected()) {
      AskHead(actor);
    } else {
      LookLater(actor, kLookUs);
    }
  });
}

void FarActors::AskHead(const Id& actor) {
  const std::optional<Actors::Order> order = parts_.actors.Waiting(actor);
  Placing& placing = placing_[actor];
  if (!order.has_value()) return;
  rules::PlaceRequest request;
  request.need = order->options.need;
  request.function = Mix(std::hash<std::string>()(ToString(request.need))) | 1;
  request.from = self();
  request.refused = placing.refused;
  request.bounces = static_cast<std::uint32_t>(placing.refused.size());
  parts_.placer.Place(order->options.strategy, std::move(request),
                      [this, alive = alive_, actor, epoch = placing.epoch](const Result<rules::Placement>& placed) {
                        if (*alive) Placed(actor, epoch, placed);
                      });
}

void FarActors::Placed(const Id& actor, std::uint32_t epoch, const Result<rules::Placement>& placed) {
  const auto it = placing_.find(actor);
  const std::optional<Actors::Order> order = parts_.actors.Waiting(actor);
  if (it == placing_.end() || it->second.epoch != epoch || it->second.state == Placing::State::kAsked ||
      !order.has_value()) {
    if (placed.ok()) parts_.cluster.Withdraw(placed.value().ticket);
    return;
  }
  const bool waits = it->second.state == Placing::State::kWaits;
  const Strategy& strategy = order->options.strategy;
  const bool fits_here = !parts_.far_leases.draining() && parts_.placer.AllowsHere(strategy) &&
                         (!strategy.group.empty() || parts_.leases.queue().total().Covers(order->options.need));
  const auto wait_here = [&] {
    it->second.state = Placing::State::kWaits;
    it->second.refused.clear();  // who had no room may have it by then
    LookLater(actor, kLookUs);
    if (spread_.Counts(actor)) spread_.Put(actor, self());
    if (!waits) parts_.actors.WaitHere(actor);
  };
  if (!placed.ok()) {
    const Code code = placed.status().code();
    const bool never = code == Code::kInfeasible || code == Code::kInvalid || code == Code::kNotFound;
    if (waits || (fits_here && !never && strategy.group.empty())) return wait_here();
    if (!never) return LookLater(actor, kHeadGoneUs);
    const std::string who = Cat("actor ", order->options.class_name);
    const Status lacks = strategy.empty() ? NoPlace(who, order->options) : placed.status();
    const bool forever = order->options.max_restarts < 0 && order->epoch > 0;
    const bool pinned = !strategy.node.empty() && !strategy.soft && !forever;  // to a node that is gone
    if (code == Code::kInfeasible && strategy.group.empty() && !pinned &&
        parts_.placer.WaitsForANode(order->job, Cat(who, ToString(order->options.need), ToString(strategy)), lacks,
                                    forever, &it->second.lacking_us)) {
      return LookLater(actor, Placer::kLackingUs);
    }
    placing_.erase(it);
    Failure why = ToFailure(lacks);
    why.code = Code::kInfeasible;
    return parts_.actors.CouldNotStart(actor, why, true);
  }
  const rules::Placement& placement = placed.value();
  if (IsHere(placement.node)) {
    if (placement.ticket != 0) parts_.far_leases.Arrived(placement.ticket);
    return fits_here || waits ? wait_here() : LookLater(actor, kLookUs);
  }
  if (waits) {
    // Its place in the queue here is worth more than one in another, but not more than room.
    if (placement.expected_wait_us > 0 || !parts_.leases.ActorWaits(actor)) {
      parts_.cluster.Withdraw(placement.ticket);
      return LookLater(actor, kLookUs);
    }
    parts_.leases.CancelActor(actor);
  }
  AskNode(actor, placement);
}

void FarActors::AskNode(const Id& actor, const rules::Placement& placement) {
  Placing& placing = placing_[actor];
  placing.state = Placing::State::kAsked;
  placing.node = placement.node;
  placing.ticket = placement.ticket;
  const std::optional<Actors::Order> order = parts_.actors.Waiting(actor);
  parts_.far_leases.WhenDescribed(
      order->job, placement.node,
      [this, alive = alive_, actor, epoch = placing.epoch, placement](const Result<wire::JobFacts>& facts) {
        if (*alive && FindAsked(actor, placement.node, epoch) != nullptr) SendStart(actor, placement, facts);
      });
}

void FarActors::SendStart(const Id& actor, const rules::Placement& placement, const Result<wire::JobFacts>& facts) {
  const std::optional<Actors::Order> order = parts_.actors.Waiting(actor);
  if (!order.has_value()) return;
  if (!facts.ok()) {
    placing_.erase(actor);
    return parts_.actors.CouldNotStart(actor, ToFailure(facts.status()), true);
  }
  wire::FarStartActor message;
  message.actor = actor;
  message.epoch = order->epoch;
  message.options = order->options;
  message.spec = order->spec;
  message.owner = order->owner;
  message.ticket = placement.ticket;
  message.final = placement.final;
  message.job = facts.value();
  parts_.far_leases.JobRunsOn(order->job, placement.node);
  const base::Fd* journal = parts_.actors.JournalOf(actor);
  if (journal == nullptr) return parts_.cluster.links().Send(placement.node, message);
  // If it does not get there, the node says that it misses it, or is gone.
  SendWholeJournal(parts_.cluster.links(), {placement.node, actor, message.epoch, wire::JournalUse::kStart}, *journal,
                   [this, alive = alive_, node = placement.node, message](const Status&) {
                     if (!*alive || FindAsked(message.actor, node, message.epoch) == nullptr) return;
                     parts_.cluster.links().Send(node, message);
                   });
}

FarActors::Placing* FarActors::FindAsked(const Id& actor, NodeNumber node, std::uint32_t epoch) {
  const auto it = placing_.find(actor);
  if (it == placing_.end()) return nullptr;
  Placing& placing = it->second;
  const bool asked = placing.state == Placing::State::kAsked && placing.node == node && placing.epoch == epoch;
  return asked ? &placing : nullptr;
}

void FarActors::Bounced(const Id& actor) {
  Placing& placing = placing_[actor];
  parts_.cluster.Withdraw(placing.ticket);
  placing.refused.push_back(placing.node);
  placing.state = Placing::State::kPlacing;
  if (placing.refused.size() < kManyBounces) return AskHead(actor);
  LookLater(actor, kManyBouncesUs);
}

void FarActors::Stop(NodeNumber host, const wire::FarStopActor& order) {
  if (parts_.cluster.Find(host) != nullptr) parts_.cluster.links().Send(host, order);
}

void FarActors::Tell(NodeNumber node, const wire::FarActorState& state) {
  if (parts_.cluster.Find(node) != nullptr) parts_.cluster.links().Send(node, state);
}

// ---- callers here ----

void FarActors::Attach(ProcessId caller, const Id& actor, NodeNumber host, std::uint32_t epoch) {
  parts_.far_leases.OwnerUses(caller, host);
  parts_.cluster.links().Send(host, wire::FarAttachActor{actor, epoch, caller});
}

void FarActors::Attach(Peer& peer, const wire::AttachActor& message) {
  const auto moved = moved_.find(message.actor);
  const NodeNumber home = moved == moved_.end() ? message.home : moved->second.home;
  const bool here = moved == moved_.end() && (IsHere(home) || kept_.Has(message.actor));
  if (here) return parts_.actors.Attach(peer, message);
  if (!shm::Arena::Valid(message.queue, 8) || !shm::Arena::Valid(message.lane, 8)) {
    return peer.connection->Close(Status(Code::kCorrupt, "an actor's queue or lane is outside the arena"));
  }
  const auto [it, fresh] = seen_.try_emplace(message.actor);
  Seen& seen = it->second;
  if (!seen.watchers.Attach(peer.process, message.restarts)) return;
  seen.callers[peer.process] = Caller{message.queue, message.lane, 0};
  if (fresh) {
    if (parts_.cluster.Find(home) == nullptr) {
      return LookForHome(message.actor, home, Status(Code::kUnavailable, "it is gone"));
    }
    seen.home = home;
    parts_.cluster.links().Send(home, wire::FarWatchActor{message.actor});
  } else if (seen.last.state.phase == wire::ActorPhase::kAlive) {
    AttachSeen(message.actor, seen, peer.process);
  } else if (seen.last.state.phase == wire::ActorPhase::kDead) {
    peer.connection->Send(seen.last.state);  // kGone follows
  }
}

void FarActors::AttachSeen(const Id& actor, Seen& seen, ProcessId caller) {
  const Caller& at = seen.callers[caller];
  if (!IsHere(seen.last.host)) return Attach(caller, actor, seen.last.host, seen.last.epoch);
  parts_.guests.Introduce(actor, seen.last.epoch, caller, at.queue, at.lane);
}

void FarActors::OnState(NodeNumber from, const wire::FarActorState& message) {
  const Id& actor = message.state.actor;
  const auto it = seen_.find(actor);
  if (it == seen_.end() || it->second.home != from) return;
  Seen& seen = it->second;
  seen.last = message;
  if (message.state.phase == wire::ActorPhase::kAlive) {
    for (const auto& [caller, at] : seen.callers) AttachSeen(actor, seen, caller);
    return;
  }
  if (message.state.phase != wire::ActorPhase::kStarting) {
    const bool restarts = message.state.phase == wire::ActorPhase::kRestarting;
    for (const ProcessId watcher : restarts ? seen.watchers.Restarted() : seen.watchers.All()) {
      parts_.peers.Send(watcher, message.state);
    }
  }
  if (message.state.phase == wire::ActorPhase::kRestarting || message.state.phase == wire::ActorPhase::kDead) {
    seen.callers.clear();  // they attach again
  } else if (message.state.phase == wire::ActorPhase::kGone) {
    seen_.erase(it);
  }
}

void FarActors::OnAttached(const wire::FarActorAttached& message) {
  wire::ActorState state = ActorIs(message.actor, wire::ActorPhase::kAlive, message.worker, {});
  state.address = message.address;
  state.pass = message.pass;
  if (!message.failure.ok()) {
    state.phase = wire::ActorPhase::kDead;
    state.failure =
        Failure{Code::kActorDied, Cat("the actor's worker cannot be called: ", message.failure.message), {}, {}};
  }
  parts_.peers.Send(message.caller, state);
}

void FarActors::ProcessDied(ProcessId process) {
  for (auto& [id, seen] : seen_) {
    seen.watchers.Remove(process);
    seen.callers.erase(process);
  }
}

void FarActors::NodeDown(NodeNumber node, const Status& why) {
  parts_.actors.NodeDown(node, why.message());
  std::vector<Id> asked;
  for (const auto& [id, placing] : placing_) {
    if (placing.state == Placing::State::kAsked && placing.node == node) asked.push_back(id);
  }
  for (const Id& id : asked) Bounced(id);
  std::vector<Id> homeless;
  for (auto it = seen_.begin(); it != seen_.end();) {
    Seen& seen = it->second;
    const Id actor = it->first;
    if (seen.home == node) {
      seen.home = 0;
      homeless.push_back(actor);
    }
    ++it;
    if (seen.last.state.phase != wire::ActorPhase::kAlive || seen.last.host != node) continue;
    // If it is gone for everybody, the home will say so, and what becomes of the actor.
    if (parts_.cluster.Find(node) == nullptr) continue;
    for (auto& [caller, at] : seen.callers) {
      if (++at.tries > kReattachTries) {
        wire::ActorState state = ActorIs(actor, wire::ActorPhase::kDead);
        state.failure =
            Failure{Code::kActorDied,
                    Cat("actor ", ToString(actor), " cannot be reached: it runs on node ", node, ": ", why.message()),
                    {},
                    {}};
        parts_.peers.Send(caller, state);
        continue;
      }
      parts_.loop.After(kReattachUs, [this, alive = alive_, actor, caller = caller, epoch = seen.last.epoch] {
        if (!*alive) return;
        const auto again = seen_.find(actor);
        if (again == seen_.end() || again->second.last.epoch != epoch) return;
        if (again->second.last.state.phase != wire::ActorPhase::kAlive) return;
        if (again->second.callers.contains(caller)) AttachSeen(actor, again->second, caller);
      });
    }
  }
  for (const Id& actor : homeless) LookForHome(actor, node, why);
}

void FarActors::LookForHome(const Id& actor, NodeNumber was, const Status& lost) {
  const auto again = [this, alive = alive_, actor, was, lost](std::int64_t after_us) {
    parts_.loop.After(after_us, [this, alive, actor, was, lost] {
      if (!*alive) return;
      const auto it = seen_.find(actor);
      if (it != seen_.end() && it->second.home == 0) LookForHome(actor, was, lost);
    });
  };
  parts_.cluster.Ask<wire::ActorHome>(
      wire::FindHome{actor}, [this, alive = alive_, actor, was, lost, again](const Result<wire::ActorHome>& found) {
        if (!*alive) return;
        const auto it = seen_.find(actor);
        if (it == seen_.end() || it->second.home != 0) return;
        if (found.ok()) {
          // The head may not have heard yet that the node is gone.
          if (IsHere(found.value().home) && !kept_.Has(actor)) return again(kLookUs);
          if (!IsHere(found.value().home) && parts_.cluster.Find(found.value().home) == nullptr) return again(kLookUs);
          return HomeFound(actor, found.value().home, lost);
        }
        if (found.status().code() == Code::kUnavailable) return again(kHeadGoneUs);
        const bool told = found.status().code() == Code::kActorDied || found.status().code() == Code::kCorrupt;
        SeenDead(actor, told ? found.status().message()
                             : Cat("node ", was, ", where it was at home, is out of reach: ", lost.message()));
      });
}

void FarActors::HomeFound(const Id& actor, NodeNumber home, const Status& lost) {
  const auto it = seen_.find(actor);
  if (it == seen_.end()) return;
  Seen& seen = it->second;
  wire::ActorState state = ActorIs(actor, wire::ActorPhase::kRestarting);
  state.exact = false;
  state.failure = Failure{Code::kWorkerCrashed, Cat("its home was lost: ", lost.message()), {}, {}};
  seen.callers.clear();  // they attach again
  seen.last = {};
  seen.home = home;
  for (const ProcessId watcher : seen.watchers.Restarted()) parts_.peers.Send(watcher, state);
  if (IsHere(home)) {
    parts_.actors.Watch(actor, std::move(seen.watchers));
    seen_.erase(it);
  } else {
    parts_.cluster.links().Send(home, wire::FarWatchActor{actor});
  }
}

void FarActors::SeenDead(const Id& actor, const std::string& why) {
  const auto it = seen_.find(actor);
  if (it == seen_.end()) return;
  wire::ActorState state = ActorIs(actor, wire::ActorPhase::kDead);
  state.failure = Failure{Code::kActorDied, Cat("actor ", ToString(actor), " died: ", why), {}, {}};
  for (const ProcessId watcher : it->second.watchers.All()) parts_.peers.Send(watcher, state);
  state.phase = wire::ActorPhase::kGone;
  for (const ProcessId watcher : it->second.watchers.All()) parts_.peers.Send(watcher, state);
  seen_.erase(it);
}

}  // namespace manta::node
