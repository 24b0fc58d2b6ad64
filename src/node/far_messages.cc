// What other nodes say about objects: each message goes to the directory (who holds what) or to the transfers (where
// the bytes are).
#include "node/daemon.h"
#include "wire/cluster_messages.h"

namespace manta::node {
namespace {

using FarHandler = Status (*)(Directory&, Transfers&, NodeNumber, const wire::Frame&);

template <typename M, typename Part, void (Part::*Method)(NodeNumber, const M&)>
Status Handle(Directory& directory, Transfers& transfers, NodeNumber from, const wire::Frame& frame) {
  const Result<M> message = frame.As<M>();
  if (!message.ok()) return message.status();
  if constexpr (std::is_same_v<Part, Directory>) {
    static_cast<void>(transfers);
    (directory.*Method)(from, message.value());
  } else {
    static_cast<void>(directory);
    (transfers.*Method)(from, message.value());
  }
  return {};
}

struct Entry {
  wire::Kind kind;
  FarHandler handler;
};

template <typename M, typename Part, void (Part::*Method)(NodeNumber, const M&)>
constexpr Entry Of() {
  return {M::kKind, &Handle<M, Part, Method>};
}

constexpr Entry kEntries[] = {
    Of<wire::FarHold, Directory, &Directory::FarHold>(),
    Of<wire::FarDrop, Directory, &Directory::FarDrop>(),
    Of<wire::FarSync, Directory, &Directory::FarSync>(),
    Of<wire::FarSynced, Directory, &Directory::FarSynced>(),
    Of<wire::FarWait, Directory, &Directory::FarWait>(),
    Of<wire::FarObjectReady, Directory, &Directory::FarObjectReady>(),
    Of<wire::FarObjectLost, Directory, &Directory::FarObjectLost>(),
    Of<wire::FarKeep, Transfers, &Transfers::FarKeep>(),
    Of<wire::FarFree, Transfers, &Transfers::FarFree>(),
    Of<wire::FarWant, Transfers, &Transfers::FarWant>(),
    Of<wire::FarForgo, Transfers, &Transfers::FarForgo>(),
    Of<wire::FarFetchFrom, Transfers, &Transfers::FarFetchFrom>(),
    Of<wire::FarStopFetch, Transfers, &Transfers::FarStopFetch>(),
    Of<wire::FarCopyLost, Transfers, &Transfers::FarCopyLost>(),
    Of<wire::FarFetched, Transfers, &Transfers::FarFetched>(),
    Of<wire::FarFetchFailed, Transfers, &Transfers::FarFetchFailed>(),
    Of<wire::FarCopyDropped, Transfers, &Transfers::FarCopyDropped>(),
};

}  // namespace

std::vector<wire::Kind> Daemon::ObjectKinds() {
  std::vector<wire::Kind> kinds;
  for (const Entry& entry : kEntries) kinds.push_back(entry.kind);
  return kinds;
}

Status Daemon::ShareObjects(FarNodes& nodes, TransferOptions options) {
  nodes_ = &nodes;
  peers_.SetNode(nodes.self());
  actors_.SetNode(nodes.self());
  keeper_.SetNumber(nodes.self());
  directory_.SetNodes(nodes);
  Result<std::unique_ptr<Transfers>> transfers = Transfers::Create(*loop_, nodes, keeper_, std::move(options));
  if (!transfers.ok()) return transfers.status();
  transfers_ = std::move(*transfers);
  return {};
}

void Daemon::StopSharing() {
  transfers_.reset();
  directory_.StopSharing();
  nodes_ = nullptr;
}

Status Daemon::OnObjectFrame(NodeNumber from, const wire::Frame& frame) {
  if (transfers_) {
    for (const Entry& entry : kEntries) {
      if (entry.kind == frame.kind) return entry.handler(directory_, *transfers_, from, frame);
    }
  }
  return Status(Code::kCorrupt, Cat("message ", static_cast<int>(frame.kind), " is not about objects"));
}

void Daemon::ObjectsNodeDown(NodeNumber node, const std::string& why) {
  if (!transfers_) return;
  directory_.NodeDown(node, why);
  transfers_->NodeDown(node, why);
  const wire::NodeGone message{node, why, transfers_->copies().ElsewhereOf(node)};
  for (const auto& [serial, peer] : peers_.all()) {
    if (peer->process != kNoProcess) peer->connection->Send(message);
  }
}

}  // namespace manta::node
