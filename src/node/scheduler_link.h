// SchedulerLink is a node's connection to the one of the global schedulers beside the head (control/scheduler.h) that
// it asks: always the same one while that lives, another one for other nodes (by a hash of both numbers), so that they
// share the questions. One that ends, refuses or does not answer in time is left alone for a while.
//
// Nothing depends on it: who gets no answer here asks the head.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/loop.h"
#include "rules/global_scheduler.h"
#include "wire/cluster_messages.h"
#include "wire/connection.h"
#include "wire/dial.h"

namespace manta::node {

class SchedulerLink {
 public:
  static constexpr std::int64_t kAnswerUs = 250'000;  // of a placement; it takes microseconds
  static constexpr std::int64_t kAvoidUs = 2'000'000;

  using OnPlaced = std::function<void(Result<std::vector<rules::Placement>>)>;

  SchedulerLink(base::Loop& loop, std::shared_ptr<wire::Secrets> secrets) : loop_(loop), secrets_(std::move(secrets)) {}
  ~SchedulerLink();
  SchedulerLink(const SchedulerLink&) = delete;
  SchedulerLink& operator=(const SchedulerLink&) = delete;

  // All there are; `self` is this node.
  void Update(NodeNumber self, std::uint64_t incarnation, const std::vector<wire::SchedulerFacts>& schedulers);
  // False: there is none to be asked just now. kUnavailable: it did not answer.
  bool Place(const rules::PlaceRequest& request, const OnPlaced& done);
  void Withdraw(std::uint64_t ticket);
  // Whom this node asks; 0: the head.
  [[nodiscard]] std::uint32_t replica() const { return open_ ? replica_ : 0; }

  // Which one of them a node asks; 0: there is none.
  [[nodiscard]] static std::uint32_t Choose(NodeNumber node, const std::vector<std::uint32_t>& replicas);

 private:
  void Connect();
  void Connected(std::uint32_t replica, Result<wire::Link> link);
  void OnFrame(const wire::Frame& frame);
  // Forgets the connection, fails what waits for an answer, and turns to another.
  void Leave(bool avoid);
  void Look();

  base::Loop& loop_;
  const std::shared_ptr<wire::Secrets> secrets_;
  NodeNumber self_ = 0;
  std::uint64_t incarnation_ = 0;
  std::map<std::uint32_t, wire::SchedulerFacts> all_;
  std::map<std::uint32_t, std::int64_t> avoided_;  // until then
  std::uint32_t replica_ = 0;                      // the chosen one
  bool open_ = false;
  std::unique_ptr<wire::Dial> dial_;
  std::unique_ptr<wire::Connection> connection_;
  std::vector<std::unique_ptr<wire::Connection>> former_;  // destroyed from the loop, not in a callback
  std::vector<std::unique_ptr<wire::Dial>> former_dials_;
  struct Asked {
    OnPlaced done;
    std::int64_t deadline_us = 0;
  };
  std::map<std::uint64_t, Asked> asked_;
  std::uint64_t next_call_ = 2;  // 1 is the hello's
  base::Loop::TimerId timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::node
