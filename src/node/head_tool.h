// HeadTool asks a cluster's head, for the command line and for tests: who is there, drain a node, stop everything.
//
// Blocking, for plain threads. Each call says kTimedOut when its time is over.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "types/status.h"
#include "wire/cluster_messages.h"
#include "wire/frame.h"
#include "wire/negotiation.h"
#include "wire/secrets.h"

namespace manta::node {

class HeadTool {
 public:
  static Result<std::unique_ptr<HeadTool>> Connect(const std::string& address, std::shared_ptr<wire::Secrets> secrets,
                                                   std::int64_t timeout_us);

  // `all`: also those that left or died since the head was started.
  Result<std::vector<wire::NodeFacts>> Nodes(bool all, std::int64_t timeout_us);
  // The same, with the schedulers, and what a job may have.
  Result<wire::ClusterView> View(bool all, std::int64_t timeout_us);
  // Until the node has left. By its name or its number.
  Status Drain(const std::string& node, std::int64_t timeout_us);
  // Every node has been told to end, and the head ends, too.
  Status Stop(std::int64_t timeout_us);

 private:
  explicit HeadTool(wire::Link link) : link_(std::move(link)) {}
  template <typename M>
  Result<wire::Frame> Ask(const M& message, std::int64_t timeout_us);

  wire::Link link_;
  wire::FrameReader reader_;
  std::uint64_t next_call_ = 1;
};

// As `manta nodes` prints them.
[[nodiscard]] std::string NodesTable(const std::vector<wire::NodeFacts>& nodes);
// What follows the table: schedulers beside the head, the quota of a job; often nothing.
[[nodiscard]] std::string ViewNotes(const wire::ClusterView& view);
[[nodiscard]] std::string NodesJson(const std::vector<wire::NodeFacts>& nodes);

}  // namespace manta::node
