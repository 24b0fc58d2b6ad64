// Scheduler is a global scheduler beside the head's own: a process that knows what the head knows of nodes and their
// load, because the head tells it, and answers nodes that ask where a task should go. It decides by the same rule
// (rules::GlobalScheduler) and shares nothing with the others: what one placed, the others see in the next heartbeat. A
// view that is old makes a node refuse what it cannot take (a bounce); it never makes it take too much, because only
// nodes give leases.
//
// Nodes find it in their ClusterView, choose one each, and go to the head when it does not answer. So its end, at any
// time, costs a question asked twice. Without the head it goes on with what it heard last, and comes back to it by
// itself, as nodes do.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/loop.h"
#include "rules/global_scheduler.h"
#include "wire/cluster_messages.h"
#include "wire/connection.h"
#include "wire/dial.h"
#include "wire/negotiation.h"
#include "wire/secrets.h"

namespace manta::control {

class Scheduler {
 public:
  // `address`: where nodes reach it. OnJoined is called once, OnEnd when the cluster is stopped, or why the head does
  // not want it.
  Scheduler(base::Loop& loop, std::string head, std::shared_ptr<wire::Secrets> secrets, std::string address);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void OnJoined(std::function<void()> callback) { on_joined_ = std::move(callback); }
  void OnEnd(std::function<void(const Status& why)> callback) { on_end_ = std::move(callback); }
  void Start() { Connect(); }
  // A node's, with role kNode.
  void Add(wire::Link link);

  [[nodiscard]] std::size_t nodes() const { return facts_.size(); }

 private:
  struct Peer {
    std::unique_ptr<wire::Connection> connection;
    NodeNumber node = 0;  // 0: it has not said
  };

  void Connect();
  void Connected(Result<wire::Link> link);
  void Lost(const Status& why);
  void OnHeadFrame(const wire::Frame& frame);
  void OnView(const wire::ClusterView& view);
  void OnNodeFrame(std::uint64_t serial, const wire::Frame& frame);
  void Place(Peer& peer, const wire::Frame& frame);

  base::Loop& loop_;
  const std::string head_;
  const std::shared_ptr<wire::Secrets> secrets_;
  const std::string address_;
  std::function<void()> on_joined_;
  std::function<void(const Status&)> on_end_;
  std::unique_ptr<wire::Dial> dial_;
  std::unique_ptr<wire::Connection> connection_;
  std::vector<std::unique_ptr<wire::Connection>> former_;  // destroyed by the next attempt, not in a callback
  std::int64_t pause_us_ = 0;
  base::Loop::TimerId retry_ = 0;
  std::unique_ptr<rules::GlobalScheduler> rule_;  // none until the first view
  std::uint32_t replica_ = 0;
  std::map<NodeNumber, wire::NodeFacts> facts_;
  std::uint64_t next_serial_ = 1;
  std::unordered_map<std::uint64_t, std::unique_ptr<Peer>> peers_;
};

}  // namespace manta::control
