// FarNodes is the way to the other nodes' daemons, as the parts that deal with objects see it. In the daemon
// it is node/nodes.h; in tests whatever carries frames.
//
// What implements it promises: frames to one node arrive in order, all of them, or else both ends are told that the
// other is down, and all that they agreed upon is void. Threads: the loop's.
#pragma once

#include <string>

#include "types/id.h"
#include "wire/frame.h"

namespace manta::node {

class FarNodes {
 public:
  virtual ~FarNodes() = default;
  [[nodiscard]] virtual NodeNumber self() const = 0;  // 0: the only one
  // A member of the cluster, as far as is known here.
  [[nodiscard]] virtual bool Knows(NodeNumber node) const = 0;
  virtual void SendFrame(NodeNumber node, std::string frame) = 0;
  // Where it takes connections of role kTransfer; empty: unknown.
  [[nodiscard]] virtual std::string AddressFor(NodeNumber node) const = 0;

  template <typename M>
  void Send(NodeNumber node, const M& message) {
    SendFrame(node, wire::EncodeFrame(message));
  }
};

// There is no other node.
class NoFarNodes final : public FarNodes {
 public:
  [[nodiscard]] NodeNumber self() const override { return 0; }
  [[nodiscard]] bool Knows(NodeNumber /*node*/) const override { return false; }
  void SendFrame(NodeNumber /*node*/, std::string /*frame*/) override {}
  [[nodiscard]] std::string AddressFor(NodeNumber /*node*/) const override { return {}; }
};

}  // namespace manta::node
