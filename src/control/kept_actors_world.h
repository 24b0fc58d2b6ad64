// A world for KeptActors under everything that happens to homes of detached actors, for its own test only. The head's
// class and its tables are the real ones; disks, links, nodes, actors and callers are models, in virtual time, drawn
// from a seed. The same seed gives the same run.
//
// Nodes crash and others join; they are drained; the head is killed and comes back with what its disks had; a node is
// cut off from the head, stands still after 2.5 s (rules::NodeLease) and is declared dead after 3; processes of actors
// die; some nodes cannot be homes. Writes of different shards overtake each other.
//
// Checked: every call has acted once, is answered once, in its caller's order, and the answer (its place among all
// calls) is true for ever; a read sees all that anybody had been answered when it began; at the end nobody waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/loop.h"
#include "control/kept_actors.h"
#include "control/storage.h"
#include "control/tables.h"
#include "rules/membership.h"

namespace manta::control {

// Bugs of a node, to see that they are found.
struct HomeBugs {
  bool answers_before_kept = false;  // an answer goes out before the head has the call
  bool leaves_alive = false;         // the process goes on until there is another home
  bool takes_refusals = false;       // the same, and as if what the head does not want were kept
  bool forgets_the_end = false;      // of what comes from the head, to the next home
  bool forgets_what_it_has_run = false;
};

struct HomeFigures {
  std::vector<std::string> violations;
  std::uint64_t events = 0;
  std::uint64_t calls = 0;
  std::uint64_t adopted = 0;  // homes, after the first
  std::uint64_t left = 0;     // of these, of nodes that were drained
  std::uint64_t stayed = 0;   // where nobody else could have it
  std::uint64_t again = 0;    // calls that were recognised
  std::uint64_t crashed = 0;  // nodes
  std::uint64_t heads = 0;    // that were killed
  std::uint64_t still = 0;    // nodes that stood still
  std::uint64_t went_on = 0;  // of these
  void Add(const HomeFigures& other);
  [[nodiscard]] std::string Describe() const;
};

class HomeWorld {
 public:
  HomeWorld(std::uint64_t seed, HomeBugs bugs);
  ~HomeWorld();
  HomeFigures Run();

 private:
  using Then = std::function<void()>;
  using OnFrame = std::function<void(wire::Frame* frame)>;  // none: the connection was lost

  static constexpr std::size_t kShards = 3;
  static constexpr std::size_t kActors = 2;
  static constexpr std::size_t kClients = 2;
  static constexpr std::uint64_t kCalls = 200;  // of each client to each actor
  static constexpr std::size_t kAhead = 4;
  static constexpr std::int64_t kTroubleUs = 12'000'000;
  static constexpr std::int64_t kDeadUs = 3'000'000;

  class SimStorage;
  struct Disk {
    std::map<std::pair<Table, std::string>, Entry> entries;
    std::uint64_t sequence = 0;
    std::uint64_t epoch = 0;
    std::int64_t busy_until = 0;
    std::deque<std::pair<Batch, Storage::OnApplied>> pending;
    std::uint64_t life = 0;
  };
  // Of a node or a client with the head. What is sent arrives in order, or is held back, or is lost with the
  // connection.
  struct Wire {
    bool open = false;
    bool cut = false;
    std::uint64_t serial = 0;
    std::int64_t last[2] = {0, 0};
    std::deque<Then> held;
    std::map<std::uint64_t, OnFrame> asked;
  };
  struct Answer {
    std::size_t client = 0;
    std::uint64_t call = 0;  // 0: a read, …
    std::uint64_t read = 0;  // … with this number
    std::uint64_t place = 0;
  };
  struct Home {
    std::vector<std::uint64_t> done;  // the journal: calls, in their order
    std::uint64_t kept = 0;           // of these, at the head
    std::uint64_t next = 1;
    std::uint32_t epoch = 0;
    bool under_way = false;
    bool running = false;
    bool leaving = false;
    std::int64_t stays_until = 0;
    std::uint64_t serial = 0;  // of the process
    bool busy = false;
    std::deque<Answer> queue;
    std::deque<Answer> unanswered;  // executed, not kept
    std::set<std::size_t> callers;
  };
  struct Node {
    bool up = false;
    bool still = false;
    bool draining = false;
    bool unable = false;
    std::uint64_t cuts = 0;
    Wire wire;
    std::deque<Then> frozen;
    std::map<std::size_t, Home> homes;
    std::map<std::size_t, std::pair<std::string, std::uint64_t>> coming;  // bytes of a journal, and the next number
  };
  struct Line {
    NodeNumber home = 0;
    bool looking = false;
    std::uint64_t serial = 0;  // of the process, 0: not attached
    std::uint64_t made = 0;
    std::deque<std::uint64_t> pending;
    std::uint64_t reads = 0;
    std::map<std::uint64_t, std::uint64_t> floors;  // of reads under way
  };
  struct Client {
    Wire wire;
    std::map<std::size_t, Line> lines;
    std::set<NodeNumber> dead;  // as it knows
  };
  struct Head {
    std::unique_ptr<Tables> tables;
    std::unique_ptr<KeptActors> kept;
    std::set<NodeNumber> heard;
    std::set<NodeNumber> draining;
  };

  // time and links
  [[nodiscard]] std::uint64_t Draw(std::uint64_t below) { return random_() % below; }
  [[nodiscard]] std::int64_t Delay(std::int64_t typical_us);
  void At(std::int64_t when, Then what) { events_.emplace(std::pair(when, ++serial_), std::move(what)); }
  void After(std::int64_t us, Then what) { At(now_ + us, std::move(what)); }
  void At(NodeNumber node, std::int64_t us,
          Then what);  // on the node, if it is there then, when it does not stand still
  void Through(Wire& wire, int direction, Then what);
  void Lose(Wire& wire);
  void Violation(const std::string& what);
  static Id IdOf(std::size_t actor) { return DeriveId(Id{}, 77, actor + 1); }
  [[nodiscard]] std::optional<std::size_t> ActorOf(const Id& id) const;

  // the head
  void StartHead();
  void CrashHead();
  void ToHead(NodeNumber from, Wire& wire, std::string frame);
  void FromHead(NodeNumber to, const std::string& frame);
  template <typename M>
  void Ask(NodeNumber from, Wire& wire, const M& message, OnFrame done);
  void Connect(NodeNumber node);
  void Declare(NodeNumber node, const std::string& why);

  // nodes
  void StartNode();
  void EndNode(NodeNumber node);
  void Cut(NodeNumber node);
  void Drain(NodeNumber node);
  void LeaveHomes(NodeNumber node);
  void Leave(NodeNumber node, std::size_t actor);
  void Adopt(NodeNumber node, std::size_t actor, const wire::AdoptActor& order);
  void OnHead(NodeNumber node, wire::Frame& frame);
  void StartProcess(NodeNumber node, std::size_t actor);
  void EndProcess(NodeNumber node, std::size_t actor);
  void Serve(NodeNumber node, std::size_t actor);
  void SendParts(NodeNumber node, std::size_t actor);
  void SendPart(NodeNumber node, std::size_t actor, const std::shared_ptr<const wire::KeepJournal>& message,
                std::uint64_t count);
  void Kept(NodeNumber node, std::size_t actor, std::uint64_t count);
  void Reply(NodeNumber node, std::size_t actor, const Answer& answer);

  // callers
  void Pump(std::size_t client, std::size_t actor);
  void Read(std::size_t client, std::size_t actor);
  void SendCall(std::size_t client, std::size_t actor, const Answer& call);
  void Attach(std::size_t client, std::size_t actor);
  void Attached(std::size_t client, std::size_t actor, NodeNumber node, std::uint64_t serial);
  void LostHome(std::size_t client, std::size_t actor, NodeNumber node, std::int64_t again_us);
  void Look(std::size_t client, std::size_t actor);
  void Answered(std::size_t client, std::size_t actor, const Answer& answer);
  void Fault();
  [[nodiscard]] bool AllAnswered();
  void Check();

  std::mt19937_64 random_;
  const HomeBugs bugs_;
  std::unique_ptr<base::Loop> loop_;
  std::int64_t now_ = 0;
  std::uint64_t serial_ = 0;
  std::map<std::pair<std::int64_t, std::uint64_t>, Then> events_;
  std::vector<Disk> disks_{kShards};
  std::unique_ptr<Head> head_;
  std::uint64_t head_life_ = 0;
  std::map<NodeNumber, Node> nodes_;
  NodeNumber last_node_ = 0;
  std::set<NodeNumber> dead_;  // declared
  std::vector<Client> clients_{kClients};
  std::map<std::pair<std::size_t, std::size_t>, std::int64_t> lanes_;  // last arrivals, client and node
  std::vector<std::map<std::uint64_t, std::uint64_t>> answers_{kActors};
  std::vector<std::uint64_t> seen_ = std::vector<std::uint64_t>(kActors);  // as many were answered to somebody
  bool trouble_ = true;
  bool made_ = false;
  HomeFigures figures_;
};

}  // namespace manta::control
