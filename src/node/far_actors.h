// FarActors is what actors need of other nodes. An actor has a home, which decides about it (node/actors.h): the node
// of its job's driver, with which it lives and dies; of a detached one, which outlives drivers, the oldest node that
// lives, and after that one the next (node/kept_actors.h). Any node may be its host, where its worker runs
// (node/guests.h), and any process of any node may call it.
//
//   creator's node --FarCreateActor--> home --FarStartActor--> host --FarActorReady--> home
//   caller's node --FarWatchActor--> home --FarActorState--> caller's node --FarAttachActor--> host
//
// The head gives names (control/actor_names.h). A detached actor is a job of its own, so that the end of its creator's
// job is not its business; what it prints goes to its creator's driver while there is one.
//
// When the connection to a node ends: actors that run there restart elsewhere or die; of actors at home there the head
// says whether they are kept, and where they are at home now: if not, they are dead to the callers here; callers here
// that were attached to an actor there, at home on a third node, try again a few times.
//
// When this node is drained, detached actors that are at home here get another home before it leaves (moving_homes.cc).
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/loop.h"
#include "node/actors.h"
#include "node/cluster.h"
#include "node/directory.h"
#include "node/far_leases.h"
#include "node/guests.h"
#include "node/kept_actors.h"
#include "node/placer.h"
#include "node/programs.h"
#include "rules/actor_placement.h"
#include "rules/actor_spread.h"

namespace manta::node {

class FarActors final : public ActorsElsewhere {
 public:
  // The parts of the daemon that it works with.
  struct Parts {
    base::Loop& loop;
    Cluster& cluster;
    Peers& peers;
    Leases& leases;
    Directory& directory;
    Programs& programs;
    FarLeases& far_leases;
    Placer& placer;
    Actors& actors;
    Guests& guests;
  };
  // What only the daemon can do.
  struct Host {
    // What is known of a job that runs here; nullptr: it does not, or it is about to end.
    std::function<const wire::JobFacts*(const Id& job)> facts;
    // A job without a driver, for a detached actor, run from `creators` program.
    std::function<void(const Id& job, const wire::JobFacts& creators, base::Fd executable)> add_job;
    // It may be over.
    std::function<void(const Id& job)> check_job;
    // Also one that is about to end.
    std::function<bool(const Id& job)> has_job;
  };

  FarActors(Parts parts, Host host);
  ~FarActors() override;
  FarActors(const FarActors&) = delete;
  FarActors& operator=(const FarActors&) = delete;

  // ---- messages of this node's processes ----

  void Create(const Peer& peer, std::uint64_t call, const wire::CreateActor& message);
  void Find(const Peer& peer, std::uint64_t call, const wire::FindActor& message);
  void Attach(Peer& peer, const wire::AttachActor& message);
  void Kill(Peer& peer, const wire::KillActor& message);

  void ProcessDied(ProcessId process);
  // This node is being drained: those that can get another home get one. To be called until none is left.
  void LeaveHomes();
  // The head is there (again).
  void HeadIsBack();
  // False: it is not about actors.
  bool OnHeadFrame(const wire::Frame& frame) { return kept_.OnHeadFrame(frame); }

  // ---- ActorsElsewhere ----

  bool Place(const Id& actor) override;
  void StopPlacing(const Id& actor) override;
  void Stop(NodeNumber host, const wire::FarStopActor& order) override;
  void Tell(NodeNumber node, const wire::FarActorState& state) override;
  void Attach(ProcessId caller, const Id& actor, NodeNumber host, std::uint32_t epoch) override;
  void Died(const Id& actor, const wire::ActorOptions& options, const Id& job) override;
  bool Keeps(const Id& actor) override { return kept_.Has(actor); }
  void Keep(const Id& actor, std::uint32_t epoch, const std::vector<JournalPart>& parts,
            std::function<void(const Status&)> done) override {
    kept_.Journal(actor, epoch, parts, std::move(done));
  }

 private:
  using OnMade = std::function<void(Result<wire::FarActorMade>)>;
  using OnFound = std::function<void(Result<wire::ActorFound>)>;
  struct Asked {  // CreateActor of a process here
    ProcessId process = kNoProcess;
    std::uint64_t call = 0;
    Id job;
    wire::CreateActor order;
    int tries = 0;
  };
  // An actor at home here that waits for a place.
  struct Placing {
    enum class State : std::uint8_t { kWaits, kPlacing, kAsked };
    State state = State::kPlacing;
    std::uint32_t epoch = 0;
    NodeNumber node = 0;  // that was asked
    std::uint64_t ticket = 0;
    std::vector<rules::NodeId> refused;
    std::int64_t lacking_us = 0;  // when it was first said that no node can hold it; 0: it was not
    base::Loop::TimerId timer = 0;
  };
  struct Caller {
    std::uint64_t queue = 0;
    std::uint64_t lane = 0;
    int tries = 0;  // since the host could not be reached
  };
  // One that was at home here.
  struct Gone {
    NodeNumber home = 0;  // 0: it comes back
    bool killed = false;  // before that
    wire::ActorOptions options;
    std::set<NodeNumber> nodes;  // that call it
  };
  // An actor at home elsewhere that processes here call.
  struct Seen {
    NodeNumber home = 0;  // 0: it is looked for
    wire::FarActorState last;
    rules::ActorWatchers watchers;
    std::map<ProcessId, Caller> callers;
  };

  // creation and names
  void CreateSomewhere(const std::shared_ptr<Asked>& asked);
  void Created(const std::shared_ptr<Asked>& asked, NodeNumber home, const Result<wire::FarActorMade>& made);
  void CreateHere(const wire::FarCreateActor& message, OnMade done);
  void MakeHere(const wire::FarCreateActor& message, const Id& job, const OnMade& done);
  void ReleaseName(const wire::ActorOptions& options, const Id& actor);
  void Get(NodeNumber home, const Id& actor, ProcessId process, const OnFound& done);
  [[nodiscard]] NodeNumber OldestNode() const;
  [[nodiscard]] bool IsHere(NodeNumber node) const { return node == 0 || node == self(); }
  [[nodiscard]] NodeNumber self() const { return parts_.cluster.self().number; }

  // placement
  // Of those that the strategy allows.
  [[nodiscard]] std::vector<rules::NodeOffer> Offers(const Strategy& strategy) const;
  [[nodiscard]] Status NoPlace(const std::string& who, const wire::ActorOptions& options) const;
  // Of an actor that asks for nothing, in its first life or after its node was lost: the node that it is spread to.
  [[nodiscard]] NodeNumber SpreadTo(const Id& actor, const Actors::Order& order,
                                    const std::vector<rules::NodeOffer>& offers);
  void AskHead(const Id& actor);
  void Placed(const Id& actor, std::uint32_t epoch, const Result<rules::Placement>& placed);
  void AskNode(const Id& actor, const rules::Placement& placement);
  void SendStart(const Id& actor, const rules::Placement& placement, const Result<wire::JobFacts>& facts);
  void LookLater(const Id& actor, std::int64_t after_us);
  void Bounced(const Id& actor);
  [[nodiscard]] Placing* FindAsked(const Id& actor, NodeNumber node, std::uint32_t epoch);

  // callers here of actors at home elsewhere
  void AttachSeen(const Id& actor, Seen& seen, ProcessId caller);
  void OnState(NodeNumber from, const wire::FarActorState& message);
  void OnAttached(const wire::FarActorAttached& message);
  void NodeDown(NodeNumber node, const Status& why);
  // Asks the head where the actor is at home now. `lost`: why it is not where it was.
  void LookForHome(const Id& actor, NodeNumber was, const Status& lost);
  void HomeFound(const Id& actor, NodeNumber home, const Status& lost);
  // For the callers here.
  void SeenDead(const Id& actor, const std::string& why);
  // Of one that was held, by the head's word (moving_homes.cc). This node: it has come back; kNotFound: it has ended.
  void Left(const Id& actor, const Result<NodeNumber>& home);
  void TakeOut(const Id& actor, NodeNumber home);
  void OnMoved(NodeNumber from, const wire::ActorMoved& message);
  Status Adopt(const wire::AdoptActor& order, const wire::JobFacts& job, base::Fd executable, base::Fd journal);

  void Register();

  Parts parts_;
  const Host host_;
  KeptActors kept_;
  std::unordered_map<Id, Placing> placing_;
  rules::ActorSpread spread_;
  std::unordered_map<Id, Seen> seen_;
  std::unordered_map<Id, Gone> moved_;            // for who does not know it yet
  std::unordered_map<Id, std::int64_t> staying_;  // not to be moved (again), until when
  std::vector<wire::ReleaseName> releases_;       // that the head has not heard
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::node
