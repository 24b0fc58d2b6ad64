// Nodes is a cluster of several nodes on this machine, started and stopped with the command line as a user would
// (`manta`, beside this program or in PATH), in a folder of its own. Each node has one CPU unless told otherwise, and
// plenty of a resource with the node's name, so that a task can be sent to it.
//
// It ends with this object, and with this program however that ends. Driver makes this process a driver of it; only one
// at a time, and nothing else may be initialised. Failures throw, as bench::Fail does. Used by one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

struct NodesOptions {
  int count = 2;
  double cpus = 1;
  std::uint64_t store_bytes = 256ULL << 20;
  // By node: more for its `manta start`, and what stands before it ("nsenter", "--net=…": on another host).
  std::vector<std::vector<std::string>> words;
  std::vector<std::vector<std::string>> before;
  std::string listen = "127.0.0.1:0";  // of the head
  // Of heads that somebody else has started, and with which secrets; empty: there is one of its own.
  std::string join;
  std::string secrets;
};

class Nodes {
 public:
  explicit Nodes(const NodesOptions& options);
  ~Nodes();
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  // One more; when this returns it has joined.
  void Add();
  // Kills a node's daemon, and with it its workers.
  void Kill(std::size_t node);
  [[nodiscard]] pid_t pid(std::size_t node) const { return nodes_.at(node - 1); }
  // Has a node leave in order, and waits until it has.
  void Drain(std::size_t node);
  // Kills the head's control process and starts another one.
  void RestartHead();
  [[nodiscard]] pid_t head_pid() const { return daemons_.at(1); }
  [[nodiscard]] std::size_t count() const { return addresses_.size(); }
  // Of nodes: from 1, as they are called n1, n2, …
  [[nodiscard]] const std::string& address(std::size_t node) const { return addresses_.at(node - 1); }
  [[nodiscard]] static std::string Name(std::size_t node) { return "n" + std::to_string(node); }
  // A number that `manta status --json` gives of a node.
  [[nodiscard]] double Status(std::size_t node, const std::string& field) const;
  // What its processes have written into their logs, if they were started here: for whoever finds one of them gone.
  [[nodiscard]] std::string Logs() const;
  // Processor time of all processes of the cluster, in seconds: its daemons, head and workers.
  [[nodiscard]] double CpuSeconds() const;

  // This process drives the cluster through one of its nodes, until the end of the scope.
  class Driver {
   public:
    explicit Driver(const Nodes& nodes, std::size_t node = 1);
    ~Driver();
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;
  };

 private:
  void Start(const std::vector<std::string>& where);
  void ReadHead();

  const NodesOptions options_;
  std::string folder_;  // of the first node; others have their own if they are on other hosts
  std::string token_;
  std::string head_;
  std::vector<std::string> addresses_;
  std::vector<pid_t> nodes_;       // their daemons
  std::vector<pid_t> daemons_;     // and, second, the head's
  std::vector<pid_t> schedulers_;  // beside the head
  pid_t guard_ = -1;               // stops everything when its input ends
  int leash_ = -1;
};

// What `manta` says, given these words. Fails if it does.
[[nodiscard]] std::string RunManta(const std::vector<std::string>& words, const std::vector<std::string>& before = {});
// What any program says; empty if it fails, and then `how` says by which exit code or signal.
[[nodiscard]] std::string RunProgram(const std::vector<std::string>& words, std::string* how = nullptr);

// A folder for one cluster's secrets, which is removed.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace bench
