// NodeLinks are this node's connections to the other nodes: one to each at most, made when something is first sent, by
// whichever end comes first. Other parts of the daemon register for the kinds of messages that are theirs.
//
//   none --Send--> dialling --FarHello both ways--> open --closed or node dead--> none
//
// What is sent before it is open waits. What one node sends to another arrives in order, while the connection lasts;
// when it ends, whatever was on its way may be lost, and OnDown says so to everybody here (once; the other end is
// told likewise): all that both nodes agreed upon over it is void. The next Send begins anew.
//
// A node that cannot be reached is dialled again until the cluster's view says that it is dead, or kGiveUpUs are over.
//
// Threads: the loop's. Lifetime: callbacks end with this object.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/loop.h"
#include "types/id.h"
#include "wire/cluster_messages.h"
#include "wire/connection.h"
#include "wire/dial.h"

namespace manta::node {

class NodeLinks {
 public:
  static constexpr std::int64_t kGiveUpUs = 3'000'000;
  static constexpr std::size_t kMaxWaiting = 16U << 20;  // bytes for a node that is not reached yet

  using OnFrame = std::function<void(NodeNumber from, wire::Frame& frame)>;
  using OnDown = std::function<void(NodeNumber node, const Status& why)>;
  using OnAnswer = std::function<void(Result<wire::Frame*> answer)>;

  NodeLinks(base::Loop& loop, std::shared_ptr<wire::Secrets> secrets);
  ~NodeLinks();
  NodeLinks(const NodeLinks&) = delete;
  NodeLinks& operator=(const NodeLinks&) = delete;

  // ---- set up, before anything comes ----

  // Who handles messages of this kind (requests and one-way). A kind nobody handles ends the connection.
  void Handle(wire::Kind kind, OnFrame handler) { handlers_[kind] = std::move(handler); }
  // The same, decoded: handle(from, message, call). A message that does not decode ends the connection.
  template <typename M, typename F>
  void On(F handle) {
    Handle(M::kKind, [this, handle = std::move(handle)](NodeNumber from, wire::Frame& frame) {
      Result<M> message = frame.As<M>();
      if (!message.ok()) return Close(from, message.status());
      handle(from, *message, frame.call);
    });
  }
  void WhenDown(OnDown callback) { on_down_.push_back(std::move(callback)); }
  // Who this node is. Nothing is dialled or accepted before.
  void SetSelf(NodeNumber self, std::uint64_t incarnation);

  // ---- from the cluster's view ----

  void NodeUp(NodeNumber node, const std::string& address) { addresses_[node] = address; }
  void NodeDead(NodeNumber node, const Status& why);
  [[nodiscard]] bool Knows(NodeNumber node) const { return addresses_.contains(node); }

  // From the listener, with role kNode.
  void Accepted(wire::Link link);

  // ---- messages ----

  // To a node that is not known, or dead: OnDown follows.
  template <typename M>
  void Send(NodeNumber to, const M& message) {
    SendEncoded(to, wire::EncodeFrame(message));
  }
  void SendEncoded(NodeNumber to, std::string frame);
  // The answer, or kUnavailable when the connection ended before it came.
  template <typename Answer, typename M>
  void Call(NodeNumber to, const M& message, std::function<void(Result<Answer>)> done) {
    Ask(
        to, [&](std::uint64_t call) { return wire::EncodeFrame(message, call); },
        [done = std::move(done)](Result<wire::Frame*> frame) {
          if (!frame.ok()) return done(frame.status());
          if ((*frame)->kind == wire::Kind::kFailed) {
            const Result<wire::Failed> failed = (*frame)->template As<wire::Failed>();
            return done(failed.ok() ? Status(failed.value().failure.code, failed.value().failure.message)
                                    : failed.status());
          }
          done((*frame)->template As<Answer>());
        });
  }
  template <typename M>
  void Answer(NodeNumber to, std::uint64_t call, const M& message) {
    if (Has(to)) SendEncoded(to, wire::EncodeFrame(message, call | wire::kAnswerBit));
  }
  void Fail(NodeNumber to, std::uint64_t call, const Status& why) {
    if (call != 0) Answer(to, call, wire::Failed{ToFailure(why)});
  }

  // Ends the connection to a node that makes no sense, or that nobody needs.
  void Close(NodeNumber node, const Status& why);

  // Bytes that the other end has not taken yet.
  [[nodiscard]] std::size_t Backlog(NodeNumber node) const;
  [[nodiscard]] bool IsOpen(NodeNumber node) const;
  // Everything that was handed to open connections is with the kernel.
  [[nodiscard]] bool AllSent() const;
  [[nodiscard]] NodeNumber self() const { return self_; }
  [[nodiscard]] const std::string* AddressOf(NodeNumber node) const;

 private:
  // Whose connection it is, for its callbacks: a stranger's (node 0) until it says FarHello, nobody's after its end.
  struct Mark {
    NodeNumber node = 0;
    std::uint64_t stranger = 0;
  };
  struct Marked {
    std::unique_ptr<wire::Connection> connection;
    std::shared_ptr<Mark> mark;
    base::Loop::TimerId timer = 0;  // until FarHello
  };
  struct Peer {
    std::unique_ptr<wire::Dial> dial;
    Marked link;
    bool dialled = false;  // by us
    bool open = false;     // both have said FarHello
    std::deque<std::string> waiting;
    std::size_t waiting_bytes = 0;
    std::map<std::uint64_t, OnAnswer> calls;
    base::Loop::TimerId retry = 0;
    std::int64_t trying_since_us = 0;
    std::int64_t pause_us = 0;
  };

  void Ask(NodeNumber to, const std::function<std::string(std::uint64_t)>& encode, OnAnswer done);
  [[nodiscard]] bool Has(NodeNumber node) const { return peers_.contains(node); }
  Peer* Find(NodeNumber node) const;
  Result<Marked> Wrap(wire::Link link, const Mark& mark);
  void StartDial(NodeNumber node);
  void Dialled(NodeNumber node, Result<wire::Link> link);
  void DialAgain(NodeNumber node, const Status& why);
  void OnLinkFrame(const std::shared_ptr<Mark>& mark, wire::Frame& frame);
  void OnLinkClosed(const Mark& mark, const Status& why);
  void Greet(std::uint64_t stranger, const wire::Frame& frame);
  void Opened(Peer& peer);
  // Tells everybody, and forgets.
  void End(NodeNumber node, const Status& why);
  // It may be one of its callbacks that runs: destroyed from the loop.
  void Bury(Marked link, const Status& why);

  base::Loop& loop_;
  const std::shared_ptr<wire::Secrets> secrets_;
  NodeNumber self_ = 0;
  std::uint64_t incarnation_ = 0;
  std::unordered_map<wire::Kind, OnFrame> handlers_;
  std::vector<OnDown> on_down_;
  std::unordered_map<NodeNumber, std::string> addresses_;
  std::unordered_map<NodeNumber, std::unique_ptr<Peer>> peers_;
  std::unordered_set<NodeNumber> dead_;
  std::unordered_map<std::uint64_t, Marked> strangers_;
  std::vector<std::unique_ptr<wire::Connection>> ended_;
  std::vector<std::unique_ptr<wire::Dial>> ended_dials_;
  base::Loop::TimerId sweep_ = 0;
  std::uint64_t next_stranger_ = 1;
  std::uint64_t next_call_ = 1;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::node
