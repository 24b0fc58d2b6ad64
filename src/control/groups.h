// Groups is the head's half of placement groups: it has nodes carry out what rules::GroupTable orders, keeps every
// group in the table of groups (key "group/<id>", a GroupFacts), and tells all nodes what became of it.
//
// Written before told: a group is known to others, and its maker answered, once its record is on disk; so is that it
// is ready. A restarted control process goes on from there; bundles that were only asked for are asked for anew, and
// nodes give back what they had set aside for others than those they hear of (GroupsView::whole).
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/loop.h"
#include "control/tables.h"
#include "rules/global_scheduler.h"
#include "rules/group_table.h"
#include "wire/cluster_messages.h"
#include "wire/frame.h"

namespace manta::control {

class Groups {
 public:
  // Ways to reach nodes. A node that is not connected misses what it is sent: it gets a whole view when it is back.
  struct Ways {
    std::function<void(NodeNumber node, std::string frame)> send;
    std::function<void(const std::string& frame)> tell_all;
  };

  Groups(base::Loop& loop, Tables& tables, Ways ways);
  ~Groups();
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // Reads what was there. Before anything else.
  void Open(std::function<void(const Status&)> done);

  void Heard(const rules::Heartbeat& heartbeat);
  void NodeDown(NodeNumber node);
  // For a node that has just been welcomed.
  [[nodiscard]] std::string WholeView() const;

  // A message of a node that is about groups; false: it is not. `answer` gets the frame that answers a call.
  bool OnFrame(NodeNumber from, const wire::Frame& frame, const std::function<void(std::string frame)>& answer);

  [[nodiscard]] bool AllSaved() const { return saving_ == 0; }

 private:
  void Create(const wire::CreateGroup& message, std::uint64_t call,
              const std::function<void(std::string frame)>& answer);
  void Answered(NodeNumber from, const wire::BundleAnswer& message);
  // `done`: when all of it is on disk.
  void Carry(rules::GroupTable::Out&& out, std::function<void(const Status&)> done = nullptr);
  void Arm();

  base::Loop& loop_;
  Tables& tables_;
  const Ways ways_;
  rules::GroupTable table_;
  base::Loop::TimerId timer_ = 0;
  std::size_t saving_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::control
