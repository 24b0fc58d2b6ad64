// What `manta status` does: finds the live local clusters of this user, asks each how it is, and says it.
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

[[nodiscard]] std::string StatusTable(const std::vector<NodeStatus>& nodes);
[[nodiscard]] std::string StatusJson(const std::vector<NodeStatus>& nodes);

}  // namespace manta::node
