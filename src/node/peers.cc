#include "node/peers.h"

namespace manta::node {

Result<Peer*> Peers::Add(base::Fd socket, OnFrame on_frame, OnClose on_close) {
  auto peer = std::make_unique<Peer>();
  Peer* raw = peer.get();
  raw->serial = next_serial_++;
  raw->connection = std::make_unique<wire::Connection>(
      loop_, std::move(socket), [raw, on_frame = std::move(on_frame)](wire::Frame& frame) { on_frame(*raw, frame); },
      [raw, on_close = std::move(on_close)](const Status& why) { on_close(*raw, why); });
  if (Status status = raw->connection->Start(); !status.ok()) return status;
  peers_.emplace(raw->serial, std::move(peer));
  return raw;
}

void Peers::Remove(Peer& peer) {
  if (peer.process != kNoProcess) {
    processes_.erase(peer.process);
    free_.push_back(peer.process);
  }
  peers_.erase(peer.serial);
}

ProcessId Peers::Reserve() {
  if (next_slot_ < kMaxProcesses) return OnNode(node_, next_slot_++);
  if (free_.empty()) return kNoProcess;
  // The same slot, told apart by the bits above it. After 2^20 users of a slot they start again.
  const std::uint32_t local = LocalOf(free_.front()) + kMaxProcesses;
  free_.pop_front();
  return OnNode(node_, local);
}

bool Peers::Number(Peer& peer) {
  const ProcessId process = Reserve();
  if (process == kNoProcess) return false;
  peer.process = process;
  processes_[process] = &peer;
  return true;
}

Peer* Peers::Find(ProcessId process) const {
  const auto it = processes_.find(process);
  return it == processes_.end() ? nullptr : it->second;
}

}  // namespace manta::node
