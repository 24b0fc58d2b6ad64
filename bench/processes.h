// The processes of a cluster, found from outside through /proc, and the CPU time they use.
#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

namespace bench {

// Processes that run the program of `self` (this program: fork server, workers) or one called mantad.
// Whoever asks subtracts what was there before Init.
[[nodiscard]] std::set<pid_t> ClusterLikeProcesses();

// User and system time, in seconds, of all its threads; 0 if it is gone.
[[nodiscard]] double CpuSeconds(pid_t pid);

// 0: it is gone, though its parent may not know.
[[nodiscard]] pid_t ParentOf(pid_t pid);
[[nodiscard]] std::vector<pid_t> ChildrenOf(pid_t pid);

[[nodiscard]] bool IsAlive(pid_t pid);

}  // namespace bench
