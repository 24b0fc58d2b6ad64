// KeptActors has the detached actors of this node kept at the head (wire/kept_messages.h, control/kept_actors.h), and
// takes over those of a node that was lost, or left them.
//
// What an actor does is kept before an answer of it is seen: Journal calls back when the head has it. Of each actor one
// message is under way at a time; what comes meanwhile goes with the next. While the head is down they wait, and so do
// the actor's callers. Now and then all of the journal is sent again, from a copy that is made here for this, so that
// what is kept does not grow with the actor's age.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "node/cluster.h"
#include "node/programs.h"
#include "types/journal_part.h"
#include "wire/kept_messages.h"

namespace manta::node {

class KeptActors {
 public:
  using OnDone = std::function<void(const Status&)>;
  // Makes an adopted one: the program is here.
  using OnAdopt = std::function<Status(const wire::AdoptActor& order, const wire::JobFacts& job, base::Fd executable,
                                       base::Fd journal)>;

  using OnHome = std::function<void(const Result<NodeNumber>& home)>;
  // False: something of it is still here, of the home before, and about to end.
  using Free = std::function<bool(const Id& actor)>;

  // One that this node leaves comes back, as to any home: what is here of it has to go.
  using OnReturn = std::function<void(const Id& actor)>;

  KeptActors(base::Loop& loop, Cluster& cluster, Programs& programs, Free free, OnReturn on_return, OnAdopt on_adopt)
      : loop_(loop),
        cluster_(cluster),
        programs_(programs),
        free_(std::move(free)),
        on_return_(std::move(on_return)),
        on_adopt_(std::move(on_adopt)) {}
  ~KeptActors() { *alive_ = false; }
  KeptActors(const KeptActors&) = delete;
  KeptActors& operator=(const KeptActors&) = delete;

  // Before it is made. `job` is its own job, whose program is here.
  void Keep(const wire::FarCreateActor& made, const Id& job, OnDone done);
  // It is dead, or was not made.
  void Forget(const Id& actor);
  [[nodiscard]] bool Has(const Id& actor) const { return kept_.contains(actor); }
  // What it has done. Without parts: only which life this is, and nobody waits. kNotFound: it is another node's now.
  void Journal(const Id& actor, std::uint32_t epoch, const std::vector<JournalPart>& parts, OnDone done);

  // Has the head find another home for it; its process has ended. Calls back when the actor is at home there, and is
  // nothing of this node any more. This node: nobody else can be its home, and it has come back. kNotFound: it has
  // ended. kCorrupt: the head cannot read what it has of it.
  void Leave(const Id& actor, const OnHome& done);

  // False: this is not about kept actors.
  bool OnHeadFrame(const wire::Frame& frame);
  void HeadIsBack();

 private:
  struct Kept {
    std::uint64_t next = 1;  // number of the next part
    std::uint32_t epoch = 0;
    std::vector<JournalPart> parts;  // that wait, …
    std::vector<OnDone> waiting;     // … and who waits for them
    bool under_way = false;
    bool leaving = false;     // it is to have another home
    std::uint64_t bytes = 0;  // since all of it was sent last
    std::uint64_t whole = 0;  // of all, then
    base::Fd copy;            // of the journal as the head has it
    Status broken;            // of one that is coming: why the copy is not whole
  };

  void AskToLeave(const Id& actor, const OnHome& done);
  void SendParts(const Id& actor);
  void SendMessage(const Id& actor, wire::KeepJournal message, OnDone done);
  void SendWhole(const Id& actor);
  using Groups = std::vector<std::vector<JournalPart>>;
  void SendGroups(const Id& actor, std::shared_ptr<const Groups> groups, std::size_t at, std::uint64_t since,
                  OnDone done);
  void Receive(const wire::KeptJournal& journal);
  void Adopt(const wire::AdoptActor& order);
  void Take(const wire::AdoptActor& order, const wire::JobFacts& job, Result<base::Fd> executable);
  void Tell(const Id& actor, const Status& adopted);

  base::Loop& loop_;
  Cluster& cluster_;
  Programs& programs_;
  const Free free_;
  const OnReturn on_return_;
  const OnAdopt on_adopt_;
  std::unordered_map<Id, Kept> kept_;
  std::unordered_map<Id, Kept> coming_;  // will be adopted
  std::vector<Id> forgotten_;            // of which the head has not heard
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::node
