// Heads are two control processes of which one is in office and the other waits to take over (doc/replication.md):
// their tables are in a chain of members, whose configuration is in an etcd. Nodes that lose the one in office stand
// still until the other is there. Needs etcd in the path.
//
// Everything ends with this object, which outlives the nodes, and with this program. Used by one thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "nodes.h"
#include "server_process.h"

namespace chaos {

class Heads {
 public:
  Heads();
  ~Heads();
  Heads(const Heads&) = delete;
  Heads& operator=(const Heads&) = delete;

  // For nodes: where both are, and the folder of the secrets.
  [[nodiscard]] const std::string& addresses() const { return addresses_; }
  [[nodiscard]] const std::string& secrets() const { return secrets_; }
  [[nodiscard]] pid_t pid() const { return heads_[office_]->pid(); }
  // Until the other has taken over. Then the first is started again, to wait. Silenced, it goes on once more, and must
  // end by itself: false if it does not.
  void Kill();
  [[nodiscard]] bool Silence();

 private:
  void Start(std::size_t which);
  void AwaitOther();

  const bench::TemporaryFolder folder_;
  const std::string secrets_;
  std::string etcd_address_;
  std::string chain_;
  std::string addresses_;
  std::array<std::string, 2> ports_;
  std::size_t office_ = 0;
  bench::ServerProcess etcd_;
  std::array<bench::ServerProcess, 3> members_;
  std::array<std::unique_ptr<bench::ServerProcess>, 2> heads_;
};

}  // namespace chaos
