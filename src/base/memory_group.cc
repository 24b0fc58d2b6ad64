#include "base/memory_group.h"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace manta::base {
namespace {

// Version 1 writes this, rounded to pages, for "no limit"; version 2 writes "max".
constexpr std::uint64_t kNoLimit = 1ULL << 62;

struct Group {
  std::string root;  // of the hierarchy
  std::string path;  // "/" or "/a/b"
  bool second = true;

  [[nodiscard]] std::string folder() const { return path == "/" ? root : root + path; }
};

std::optional<std::uint64_t> ReadNumber(const std::string& path) {
  std::ifstream in(path);
  std::uint64_t number = 0;
  if (!(in >> number)) return std::nullopt;
  return number;
}

// Of a file of lines "key number"; the sum of all that are named.
std::optional<std::uint64_t> ReadKeys(const std::string& path, std::initializer_list<std::string_view> keys) {
  std::ifstream in(path);
  std::optional<std::uint64_t> sum;
  std::uint64_t number = 0;
  for (std::string key; in >> key >> number;) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) sum = sum.value_or(0) + number;
  }
  return sum;
}

// The group whose limits hold: of version 1 if memory is in that one's hands.
std::optional<Group> OwnGroup(const std::string& root, const std::string& self) {
  std::optional<Group> found;
  std::ifstream in(self);
  for (std::string line; std::getline(in, line);) {  // "4:memory:/a/b" or "0::/a/b"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    if (controllers.find(",memory,") != std::string::npos) return Group{root + "/memory", path, false};
    if (controllers == ",,") found = Group{root, path, true};
  }
  return found;
}

}  // namespace

std::vector<MemoryGroup> MemoryGroups(const std::string& root, const std::string& self) {
  std::vector<MemoryGroup> out;
  std::optional<Group> group = OwnGroup(root, self);
  while (group.has_value()) {
    const std::string folder = group->folder();
    const auto limit = ReadNumber(folder + (group->second ? "/memory.max" : "/memory.limit_in_bytes"));
    const auto used = ReadNumber(folder + (group->second ? "/memory.current" : "/memory.usage_in_bytes"));
    if (limit.has_value() && used.has_value() && *limit < kNoLimit) {
      // Version 1 counts what is in a group's children separately, in keys with "total_".
      const std::uint64_t files =
          (group->second ? ReadKeys(folder + "/memory.stat", {"active_file", "inactive_file"})
                         : ReadKeys(folder + "/memory.stat", {"total_active_file", "total_inactive_file"}))
              .value_or(0);
      out.push_back(MemoryGroup{folder, *limit, *used - std::min(*used, files)});
    }
    if (group->path == "/") break;
    group->path.resize(group->path.rfind('/'));
    if (group->path.empty()) group->path = "/";
  }
  return out;
}

std::uint64_t MemoryKills(const std::string& root, const std::string& self) {
  if (const std::optional<Group> group = OwnGroup(root, self); group.has_value()) {
    const std::string folder = group->folder();
    const auto kills = ReadKeys(folder + (group->second ? "/memory.events" : "/memory.oom_control"), {"oom_kill"});
    if (kills.has_value()) return *kills;
  }
  return ReadKeys("/proc/vmstat", {"oom_kill"}).value_or(0);
}

}  // namespace manta::base
