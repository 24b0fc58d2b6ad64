// Server speaks the control store's protocol (wire/control_messages.h) with any number of peers, on behalf of Tables.
//
// It is handed streams that are connected and whose peer is authenticated: who listens, and how a peer proves who it
// is, is not its business. It trusts no byte that they send: nonsense ends that connection and no other.
//
// Threads: one loop's. Lifetime: shorter than that of the loop and the tables.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/loop.h"
#include "control/tables.h"
#include "wire/connection.h"
#include "wire/stream.h"

namespace manta::control {

class Server {
 public:
  // Requests of one peer without an answer yet; past it the connection is closed.
  static constexpr std::size_t kMaxUnanswered = 16 * wire::kControlWindow;

  Server(base::Loop& loop, Tables& tables) : loop_(loop), tables_(tables) {}
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Connected and authenticated.
  Status Add(wire::Stream stream);
  Status Add(base::Fd socket) { return Add(wire::Stream(std::move(socket))); }

  [[nodiscard]] std::size_t peers() const { return peers_.size(); }
  [[nodiscard]] std::uint64_t requests() const { return requests_; }

 private:
  struct Peer {
    std::uint64_t serial = 0;
    std::unique_ptr<wire::Connection> connection;
    bool welcomed = false;
    std::size_t unanswered = 0;
    std::unordered_map<std::uint64_t, Tables::WatchId> watches;  // by the peer's number
  };

  void OnFrame(Peer& peer, wire::Frame& frame);
  void OnClosed(std::uint64_t serial);
  void Hello(Peer& peer, const wire::Frame& frame);
  void Dispatch(Peer& peer, const wire::Frame& frame);
  void Watch(Peer& peer, wire::ControlWatch watch);
  // Whoever was asked may answer after the peer is gone.
  template <typename M, typename From>
  void Answer(std::uint64_t serial, std::uint64_t call, Result<From> result);
  Peer* Find(std::uint64_t serial);

  base::Loop& loop_;
  Tables& tables_;
  std::uint64_t next_serial_ = 1;
  std::uint64_t requests_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<Peer>> peers_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::control
