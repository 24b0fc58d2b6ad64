// The memory control groups (cgroups, version 2 or 1) that this process is in, innermost first: what they let it use,
// and whether the kernel has killed in them for want of memory. No groups, or none with a limit: an empty list.
//
// Reads files: tens of microseconds. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace manta::base {

struct MemoryGroup {
  std::string folder;
  std::uint64_t limit = 0;  // bytes
  std::uint64_t used = 0;   // bytes, without pages of files that go when they are in the way
};

// `root` and `self` are where the kernel shows them; tests have their own.
std::vector<MemoryGroup> MemoryGroups(const std::string& root = "/sys/fs/cgroup",
                                      const std::string& self = "/proc/self/cgroup");

// How many processes the kernel has killed for want of memory in the innermost group or, if this process is in none, in
// the whole machine.
std::uint64_t MemoryKills(const std::string& root = "/sys/fs/cgroup", const std::string& self = "/proc/self/cgroup");

}  // namespace manta::base
