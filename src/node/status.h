// What `manta status` and `manta memory` do: finds the live local clusters of this user, asks each how it is, and says
// it.
#pragma once

#include <string>
#include <vector>

#include "types/status.h"
#include "wire/messages.h"

namespace manta::node {

struct NodeStatus {
  std::string address;
  wire::StatusReply reply;
};

// Addresses ("@manta-<uid>-<pid>") that somebody listens at, from /proc/net/unix.
[[nodiscard]] std::vector<std::string> FindClusters();
// Waits two seconds at most.
[[nodiscard]] Result<wire::StatusReply> AskStatus(const std::string& address);

// Every large object of the node: the largest first, with its owner, its holders and who looks at it.
[[nodiscard]] Result<wire::MemoryReply> AskMemory(const std::string& address);
[[nodiscard]] std::string MemoryTable(const wire::MemoryReply& reply);

[[nodiscard]] std::string StatusTable(const std::vector<NodeStatus>& nodes);
[[nodiscard]] std::string StatusJson(const std::vector<NodeStatus>& nodes);

}  // namespace manta::node
