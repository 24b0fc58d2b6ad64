#include "wire/local_cluster.h"

#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "wire/secrets.h"

namespace manta::wire {
namespace {

std::string FileIn(const std::string& folder) { return folder + "/cluster"; }

// Field 22 of /proc/<pid>/stat, in clock ticks since boot; 0: there is no such process, or it only waits to be reaped.
std::uint64_t StartOf(pid_t pid) {
  std::ifstream file(Cat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // names may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return 0;
  for (int i = 4; i <= 22; ++i) fields >> field;
  return std::strtoull(field.c_str(), nullptr, 10);
}

}  // namespace

LocalProcess LocalProcess::Of(pid_t pid, std::string name, std::string address) {
  return LocalProcess{std::move(name), std::move(address), pid, StartOf(pid)};
}

bool LocalProcess::Alive() const { return pid > 0 && started != 0 && StartOf(pid) == started; }

// One line each: what it is, then its fields. Names of nodes have no spaces (`manta start` sees to that).
Result<LocalCluster> LocalCluster::Read(const std::string& folder) {
  const Result<std::string> text = ReadSecretFile(FileIn(folder));
  if (!text.ok()) return text.status();
  LocalCluster out;
  std::istringstream lines(text.value());
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string what;
    fields >> what;
    if (what == "head") {
      fields >> out.head >> out.tls;
    } else if (what == "control") {
      fields >> out.control.pid >> out.control.started;
    } else if (what == "scheduler") {
      LocalProcess scheduler;
      fields >> scheduler.pid >> scheduler.started;
      out.schedulers.push_back(std::move(scheduler));
    } else if (what == "node") {
      LocalProcess node;
      fields >> node.pid >> node.started >> node.address >> node.name;
      out.nodes.push_back(std::move(node));
    }
    if (fields.fail()) return Status(Code::kCorrupt, Cat(FileIn(folder), " has a line that makes no sense: ", line));
  }
  return out;
}

Status LocalCluster::Write(const std::string& folder) const {
  std::string text = Cat("head ", head, " ", tls ? 1 : 0, "\n");
  if (control.pid != 0) text += Cat("control ", control.pid, " ", control.started, "\n");
  for (const LocalProcess& one : schedulers) text += Cat("scheduler ", one.pid, " ", one.started, "\n");
  for (const LocalProcess& node : nodes) {
    text += Cat("node ", node.pid, " ", node.started, " ", node.address, " ", node.name, "\n");
  }
  return WriteSecretFile(FileIn(folder), text, false).status();
}

void LocalCluster::Remove(const std::string& folder) { unlink(FileIn(folder).c_str()); }

std::string LocalCluster::LivingNode() const {
  for (const LocalProcess& node : nodes) {
    if (node.Alive()) return node.address;
  }
  return {};
}

}  // namespace manta::wire
