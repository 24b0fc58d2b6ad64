// Head is the cluster's one place that knows who is a member: it numbers nodes, hears their heartbeats, tells
// everybody who came and went, and places tasks that nodes send up. It carries out what rules::Membership and
// rules::GlobalScheduler decide; placement groups are control::Groups', detached actors control::KeptActors'. Further
// schedulers (control/scheduler.h) hear from it who is there and how busy; nodes hear from it where these are, and ask
// it when theirs does not answer.
//
// Every node's record is in the table of nodes (key "node/<number>", a wire::NodeFacts) before the node is welcomed, so
// that a restarted control process knows all who were there: they have Membership::kDeadUs to come back by themselves.
// Numbers are never used twice: the highest record stays for ever. A death is on disk before anybody else hears of it:
// a head that takes over and does not find it there may let the node go on (node/cluster.h).
//
// Of several processes one is the head, for a term (HeadOptions::until_us). After its term it neither answers nodes nor
// declares anybody dead: another one may do both.
//
// It is handed links whose peer has proved to be of the cluster. Threads: one loop's. Lifetime: within that of the loop
// and the tables.
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
#include "control/actor_names.h"
#include "control/groups.h"
#include "control/kept_actors.h"
#include "control/tables.h"
#include "rules/global_scheduler.h"
#include "rules/membership.h"
#include "wire/cluster_messages.h"
#include "wire/connection.h"
#include "wire/negotiation.h"
#include "wire/secrets.h"

namespace manta::control {

struct HeadOptions {
  Resources job_quota;  // the most that a job may have at a time; of what it does not name, all
  // With others that may take over: until when, by base::NowMicros, this one is surely the head. Null: for ever.
  std::function<std::int64_t()> until_us;
  // As in wire::NodeWelcome: a head that is alone, on a disk or a machine that stalls for some seconds, finds its nodes
  // as they were; whoever is on a node that is really cut off learns of it before long.
  std::int64_t wait_us = 10'000'000;
};

class Head {
 public:
  Head(base::Loop& loop, Tables& tables, HeadOptions options = {});
  ~Head();
  Head(const Head&) = delete;
  Head& operator=(const Head&) = delete;

  // Reads who was there. Before any link is added.
  void Open(std::function<void(const Status&)> done);
  // Roles kNode and kTool.
  void Add(wire::Link link);
  // Nodes are told when the token in this folder changes.
  void ShareToken(std::shared_ptr<wire::Secrets> secrets);
  // Somebody asked for the end of the cluster, every node has been told, and has gone or had its time.
  void OnStop(std::function<void()> callback) { on_stop_ = std::move(callback); }

  [[nodiscard]] const std::map<NodeNumber, wire::NodeFacts>& nodes() const { return nodes_; }
  [[nodiscard]] bool AllSent() const;  // and saved

 private:
  struct Peer {
    std::uint64_t serial = 0;
    wire::LinkRole role = wire::LinkRole::kTool;
    std::unique_ptr<wire::Connection> connection;
    bool greeted = false;
    bool heard = false;     // a heartbeat
    NodeNumber number = 0;  // of a node that was welcomed
    std::uint64_t incarnation = 0;
    std::uint32_t replica = 0;  // of a scheduler
    std::string address;        // of it, and its process
    std::uint32_t pid = 0;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> draining;  // tools that wait for its end: serial, call
  };

  void OnFrame(Peer& peer, wire::Frame& frame);
  void OnClosed(std::uint64_t serial);
  void OnNode(Peer& peer, const wire::Frame& frame);
  void OnTool(Peer& peer, const wire::Frame& frame);
  void Hello(Peer& peer, const wire::Frame& frame);
  void HelloScheduler(Peer& peer, std::uint64_t call, const wire::SchedulerHello& hello);
  [[nodiscard]] std::vector<wire::SchedulerFacts> Schedulers() const;
  void Register(Peer& peer, std::uint64_t call, wire::NodeFacts facts);
  void Return(Peer& peer, std::uint64_t call, const wire::NodeFacts& facts);
  void Welcome(Peer& peer, std::uint64_t call);
  void Fence(Peer& peer, std::uint64_t call, const std::string& why);
  void Heartbeat(Peer& peer, const wire::Frame& frame);
  void DropValues(const std::string& prefix, std::function<void()> then);
  void DropValuesOf(NodeNumber home, std::function<void()> then);
  void Place(Peer& peer, const wire::Frame& frame);
  [[nodiscard]] wire::ClusterView View(bool all) const;
  void Farewell(Peer& peer, const std::string& why);
  void Drain(Peer& tool, std::uint64_t call, const std::string& node);
  void StopIfAlone();
  void Perform(const rules::MembershipActions& actions);
  void Died(NodeNumber number, const std::string& why);
  // Its death is saved: the others may do its work.
  void Buried(NodeNumber number, const Status& saved);
  [[nodiscard]] bool InOffice() const;
  void Tick();
  void Tell(const std::vector<wire::NodeFacts>& changed);
  void TellToken();
  void Save(const wire::NodeFacts& facts, std::function<void(const Status&)> done);
  // So that it can be placed on before its first heartbeat.
  void CountFormerNumbers();
  void Introduce(const wire::NodeFacts& facts);
  [[nodiscard]] Peer* Find(std::uint64_t serial) const;
  [[nodiscard]] Peer* PeerOf(NodeNumber number) const;

  base::Loop& loop_;
  Tables& tables_;
  const HeadOptions options_;
  rules::Membership membership_;
  rules::GlobalScheduler scheduler_;
  Groups groups_;
  ActorNameTable names_;
  KeptActors kept_;
  std::function<void()> on_stop_;
  std::map<NodeNumber, wire::NodeFacts> nodes_;  // also the dead, as long as this process lives
  NodeNumber next_number_ = 1;
  NodeNumber former_numbers_ = 0;  // that were used before this cluster began; its names are counted from there
  std::uint64_t next_serial_ = 1;
  std::unordered_map<std::uint64_t, std::unique_ptr<Peer>> peers_;
  std::unordered_map<NodeNumber, std::uint64_t> serials_;  // of nodes that are connected
  std::map<std::uint32_t, std::uint64_t> schedulers_;  // replica to serial; the head's own is number 1, and not here
  std::uint32_t next_replica_ = 2;
  base::Loop::TimerId timer_ = 0;
  std::shared_ptr<wire::Secrets> secrets_;  // null: none to share
  wire::Token told_{};                      // to all nodes
  std::set<NodeNumber> dying_;              // dead, and not yet on disk
  bool in_office_ = true;                   // at the last tick
  bool stopping_ = false;
  base::Loop::TimerId stop_timer_ = 0;
  std::size_t saving_ = 0;  // records on their way to the disk
  std::string unsaved_;     // why the last one was not saved; empty: it was
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::control
