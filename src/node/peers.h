// Peers is everybody who is connected: drivers, workers, tools, and those who did not say Hello yet.
// A peer that has been welcomed is a process, with a number and a doorbell of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/fd.h"
#include "base/loop.h"
#include "shm/mapping.h"
#include "types/id.h"
#include "wire/connection.h"
#include "wire/messages.h"

namespace manta::node {

struct Worker;

struct Peer {
  std::uint64_t serial = 0;
  std::unique_ptr<wire::Connection> connection;
  Worker* worker = nullptr;  // set from the start for one that the daemon had forked
  // From here on only after Hello.
  ProcessId process = kNoProcess;  // a tool has none
  bool welcomed = false;
  std::int64_t waits_until_us = 0;  // a driver that resumes a job, for the end of that; 0: it does not wait
  wire::Role role = wire::Role::kTool;
  std::uint32_t pid = 0;
  Id job;
  base::Fd arena;
  shm::Mapping pins;  // the arena's beginning, with its pin board
};

class Peers {
 public:
  explicit Peers(base::Loop& loop) : loop_(loop) {}

  using OnFrame = std::function<void(Peer& peer, wire::Frame& frame)>;
  using OnClose = std::function<void(Peer& peer, const Status& why)>;  // is to Remove it, now or later
  Result<Peer*> Add(base::Fd socket, OnFrame on_frame, OnClose on_close);
  void Remove(Peer& peer);

  // Of a node of a cluster: numbers of processes begin with it. Before the first is given.
  void SetNode(NodeNumber node) { node_ = node; }
  // Gives the peer a process number. False: the node is full.
  bool Number(Peer& peer);
  // A number for somebody who is no peer here; kNoProcess: the node is full.
  [[nodiscard]] ProcessId Reserve();
  void Release(ProcessId process) { free_.push_back(process); }

  // nullptr: unknown, or gone.
  [[nodiscard]] Peer* Find(ProcessId process) const;
  [[nodiscard]] const std::unordered_map<std::uint64_t, std::unique_ptr<Peer>>& all() const { return peers_; }

  // To a process that may be gone: then nothing happens.
  template <typename M>
  void Send(ProcessId process, const M& message, std::uint64_t call = 0, std::initializer_list<int> fds = {}) {
    if (Peer* peer = Find(process); peer != nullptr) peer->connection->Send(message, call, fds);
  }

 private:
  base::Loop& loop_;
  NodeNumber node_ = 0;
  std::uint64_t next_serial_ = 1;
  std::unordered_map<std::uint64_t, std::unique_ptr<Peer>> peers_;
  std::unordered_map<ProcessId, Peer*> processes_;
  std::uint32_t next_slot_ = 1;  // slot 0 is the daemon
  std::deque<ProcessId> free_;   // numbers of the gone, longest gone first
};

}  // namespace manta::node
