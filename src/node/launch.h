// Launch starts and stops what a machine runs of a cluster: `manta start`, `stop` and `cluster`. Blocking; for a
// command line, not for a daemon.
//
// What is started goes on without its starter, writes its log into the folder (logs/), and is written down in
// wire::LocalCluster. With `attached` it ends with its starter, however that ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "types/status.h"
#include "wire/local_cluster.h"

namespace manta::node {

struct HeadOptions {
  std::string folder;                     // of the secrets; the tables are in it, too
  std::string listen = "127.0.0.1:6400";  // beyond loopback: with TLS
  bool tls = false;
  std::vector<std::string> words;  // more of manta-control's: --redis …
  bool attached = false;
  int schedulers = 1;  // with the head's own
};

struct NodeOptions {
  std::string folder;
  std::string head;
  std::string name;    // empty: as the head likes
  std::string listen;  // empty: where the head can be reached from
  bool tls = false;
  std::vector<std::string> words;  // more of mantad's: --cpus …
  bool attached = false;
};

// The head's process and its address.
struct StartedHead {
  wire::LocalProcess process;
  std::string address;
  bool tls = false;
  std::vector<wire::LocalProcess> schedulers;  // beside its own
};
// kUnavailable, with the last lines of its log, if it ends before it is ready.
Result<StartedHead> StartHead(const HeadOptions& options);
// All at once; the first failure stops those that were started.
Result<std::vector<wire::LocalProcess>> StartNodes(const std::vector<NodeOptions>& options);

// Asks it to end (SIGTERM), and ends it when it does not within `patience_us`.
void StopProcess(const wire::LocalProcess& process, std::int64_t patience_us);
// Everything that was started from this folder. With the head here, nodes on other machines are told, too.
// kNotFound: nothing was.
Status StopLocal(const std::string& folder);

// Is this address (of a host:port) of this machine only?
[[nodiscard]] bool IsLoopback(const std::string& address);

}  // namespace manta::node
