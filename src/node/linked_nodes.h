// LinkedNodes are the other nodes as NodeLinks reaches them; and the tie between those links and the daemon's objects.
#pragma once

#include <string>
#include <utility>

#include "node/daemon.h"
#include "node/far_nodes.h"
#include "node/nodes.h"

namespace manta::node {

class LinkedNodes final : public FarNodes {
 public:
  explicit LinkedNodes(NodeLinks& links) : links_(links) {}

  [[nodiscard]] NodeNumber self() const override { return links_.self(); }
  [[nodiscard]] bool Knows(NodeNumber node) const override { return links_.Knows(node); }
  void SendFrame(NodeNumber node, std::string frame) override { links_.SendEncoded(node, std::move(frame)); }
  [[nodiscard]] std::string AddressFor(NodeNumber node) const override {
    const std::string* address = links_.AddressOf(node);
    return address == nullptr ? std::string() : *address;
  }

 private:
  NodeLinks& links_;
};

// Messages about objects go to the daemon, and so does word of a node's end. Before anything comes over the links.
inline void ConnectObjects(NodeLinks& links, Daemon& daemon) {
  for (const wire::Kind kind : Daemon::ObjectKinds()) {
    links.Handle(kind, [&links, &daemon](NodeNumber from, wire::Frame& frame) {
      if (const Status status = daemon.OnObjectFrame(from, frame); !status.ok()) links.Close(from, status);
    });
  }
  links.WhenDown([&daemon](NodeNumber node, const Status& why) { daemon.ObjectsNodeDown(node, why.message()); });
}

}  // namespace manta::node
