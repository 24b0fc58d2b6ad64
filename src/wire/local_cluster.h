// LocalCluster is what this machine runs of a cluster, written down in the folder of its secrets (file "cluster", 0600)
// by `manta start`, so that programs and the command line find it. It may be out of date: a process that was killed
// does not take itself out. So processes are named with the time they started, and Alive asks the system.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "types/status.h"

namespace manta::wire {

struct LocalProcess {
  std::string name;     // of a node
  std::string address;  // of a node: "@manta-1000-4711"
  pid_t pid = 0;
  std::uint64_t started = 0;  // as /proc says: tells it from another with the same number

  // Found by its number, which it must still have.
  static LocalProcess Of(pid_t pid, std::string name = {}, std::string address = {});
  [[nodiscard]] bool Alive() const;
};

struct LocalCluster {
  std::string head;  // "127.0.0.1:6400"
  bool tls = false;
  LocalProcess control;  // pid 0: the head is on another machine
  std::vector<LocalProcess> nodes;
  std::vector<LocalProcess> schedulers;  // beside the head's own

  // kNotFound if nothing was started from this folder.
  static Result<LocalCluster> Read(const std::string& folder);
  [[nodiscard]] Status Write(const std::string& folder) const;
  static void Remove(const std::string& folder);

  // The first node that lives; empty: none.
  [[nodiscard]] std::string LivingNode() const;
};

}  // namespace manta::wire
