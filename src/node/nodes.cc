#include "node/nodes.h"

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/log.h"

namespace manta::node {
namespace {

constexpr std::int64_t kFirstPauseUs = 2'000;
constexpr std::int64_t kLongestPauseUs = 100'000;
constexpr std::int64_t kHelloUs = 5'000'000;  // for an accepted connection to say who it is

}  // namespace

NodeLinks::NodeLinks(base::Loop& loop, std::shared_ptr<wire::Secrets> secrets)
    : loop_(loop), secrets_(std::move(secrets)) {}

NodeLinks::~NodeLinks() {
  *alive_ = false;
  loop_.Cancel(sweep_);
  for (const auto& [node, peer] : peers_) {
    loop_.Cancel(peer->retry);
    loop_.Cancel(peer->link.timer);
  }
  for (const auto& [serial, stranger] : strangers_) loop_.Cancel(stranger.timer);
}

void NodeLinks::SetSelf(NodeNumber self, std::uint64_t incarnation) {
  self_ = self;
  incarnation_ = incarnation;
}

NodeLinks::Peer* NodeLinks::Find(NodeNumber node) const {
  const auto it = peers_.find(node);
  return it == peers_.end() ? nullptr : it->second.get();
}

const std::string* NodeLinks::AddressOf(NodeNumber node) const {
  const auto it = addresses_.find(node);
  return it == addresses_.end() ? nullptr : &it->second;
}

void NodeLinks::NodeDead(NodeNumber node, const Status& why) {
  dead_.insert(node);
  addresses_.erase(node);
  if (Has(node)) End(node, why);
}

// ---- messages ----

void NodeLinks::SendEncoded(NodeNumber to, std::string frame) {
  Peer* peer = Find(to);
  if (peer == nullptr) {
    if (self_ == 0 || to == self_ || !addresses_.contains(to)) {
      // From the loop: the sender is in the middle of something.
      loop_.After(0, [this, alive = alive_, to] {
        if (!*alive || Has(to)) return;
        for (const OnDown& down : on_down_) down(to, Status(Code::kUnavailable, Cat("node ", to, " is gone")));
      });
      return;
    }
    auto made = std::make_unique<Peer>();
    made->trying_since_us = base::NowMicros();
    peer = made.get();
    peers_[to] = std::move(made);
    StartDial(to);
  }
  if (peer->open) return peer->link.connection->SendEncoded(std::move(frame));
  peer->waiting_bytes += frame.size();
  peer->waiting.push_back(std::move(frame));
  if (peer->waiting_bytes > kMaxWaiting) {
    loop_.After(0, [this, alive = alive_, to] {
      if (*alive)
        Close(to, Status(Code::kUnavailable, Cat("node ", to, " cannot be reached, and too much waits for it")));
    });
  }
}

void NodeLinks::Ask(NodeNumber to, const std::function<std::string(std::uint64_t)>& encode, OnAnswer done) {
  const std::uint64_t call = next_call_++;
  SendEncoded(to, encode(call));
  if (Peer* peer = Find(to); peer != nullptr) {
    peer->calls[call] = std::move(done);
    return;
  }
  loop_.After(0, [to, done = std::move(done)] { done(Status(Code::kUnavailable, Cat("node ", to, " is gone"))); });
}

std::size_t NodeLinks::Backlog(NodeNumber node) const {
  const Peer* peer = Find(node);
  if (peer == nullptr) return 0;
  return peer->waiting_bytes + (peer->open ? peer->link.connection->outgoing_bytes() : 0);
}

bool NodeLinks::IsOpen(NodeNumber node) const {
  const Peer* peer = Find(node);
  return peer != nullptr && peer->open;
}

bool NodeLinks::AllSent() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    return !entry.second->open || entry.second->link.connection->outgoing_bytes() == 0;
  });
}

// ---- connecting ----

void NodeLinks::StartDial(NodeNumber node) {
  Peer* peer = Find(node);
  const std::string* address = AddressOf(node);
  if (address == nullptr) return End(node, Status(Code::kUnavailable, Cat("node ", node, " is gone")));
  wire::DialOptions options;
  options.role = wire::LinkRole::kNode;
  options.secrets = secrets_;
  options.timeout_us = kGiveUpUs;
  peer->dialled = true;
  peer->dial = std::make_unique<wire::Dial>(loop_, *address, std::move(options),
                                            [this, node](Result<wire::Link> link) { Dialled(node, std::move(link)); });
}

void NodeLinks::Dialled(NodeNumber node, Result<wire::Link> link) {
  Peer* peer = Find(node);
  if (peer == nullptr) return;
  peer->dial.reset();
  if (!link.ok()) return DialAgain(node, link.status());
  Result<Marked> wrapped = Wrap(std::move(*link), Mark{node, 0});
  if (!wrapped.ok()) return DialAgain(node, wrapped.status());
  peer->link = std::move(*wrapped);
  peer->link.timer = loop_.After(kHelloUs, [this, node] {
    if (Peer* slow = Find(node); slow != nullptr) slow->link.timer = 0;
    Close(node, Status(Code::kTimedOut, Cat("node ", node, " did not say hello")));
  });
  peer->link.connection->Send(wire::FarHello{self_, incarnation_});
}

void NodeLinks::DialAgain(NodeNumber node, const Status& why) {
  Peer* peer = Find(node);
  if (peer == nullptr) return;
  if (base::NowMicros() - peer->trying_since_us > kGiveUpUs || why.code() == Code::kInvalid) {
    return End(node, Status(Code::kUnavailable, Cat("cannot reach node ", node, ": ", why.message())));
  }
  peer->pause_us = std::clamp(peer->pause_us * 2, kFirstPauseUs, kLongestPauseUs);
  peer->retry = loop_.After(peer->pause_us, [this, node] {
    Peer* again = Find(node);
    if (again == nullptr) return;
    again->retry = 0;
    StartDial(node);
  });
}

Result<NodeLinks::Marked> NodeLinks::Wrap(wire::Link link, const Mark& mark) {
  Marked marked;
  marked.mark = std::make_shared<Mark>(mark);
  marked.connection = std::make_unique<wire::Connection>(
      loop_, std::move(link.stream), [this, known = marked.mark](wire::Frame& frame) { OnLinkFrame(known, frame); },
      [this, known = marked.mark](const Status& why) { OnLinkClosed(*known, why); });
  if (Status status = marked.connection->Start(); !status.ok()) return status;
  return marked;
}

void NodeLinks::Accepted(wire::Link link) {
  const std::uint64_t serial = next_stranger_++;
  Result<Marked> wrapped = Wrap(std::move(link), Mark{0, serial});
  if (!wrapped.ok()) return;
  wrapped->timer = loop_.After(kHelloUs, [this, serial] {
    const auto it = strangers_.find(serial);
    if (it == strangers_.end()) return;
    it->second.timer = 0;
    it->second.connection->Close(Status(Code::kTimedOut, "a node did not say who it is"));
  });
  strangers_[serial] = std::move(*wrapped);
}

void NodeLinks::Greet(std::uint64_t stranger, const wire::Frame& frame) {
  const auto it = strangers_.find(stranger);
  if (it == strangers_.end()) return;
  const Result<wire::FarHello> hello = frame.As<wire::FarHello>();
  const NodeNumber node = hello.ok() ? hello.value().node : 0;
  Peer* peer = Find(node);
  // Both have dialled: the lower number's connection is the one that stays.
  const bool ours_stays = peer != nullptr && self_ < node && peer->dialled && peer->retry == 0;
  if (!hello.ok() || self_ == 0 || node == 0 || node == self_ || dead_.contains(node) || ours_stays) {
    it->second.connection->Close(hello.ok() ? Status() : hello.status());
    return;
  }
  Marked link = std::move(it->second);
  strangers_.erase(it);
  loop_.Cancel(std::exchange(link.timer, 0));
  if (peer != nullptr && peer->open) {
    End(node, Status(Code::kUnavailable, Cat("node ", node, " lost the connection, and made a new one")));
    peer = Find(node);  // somebody may have sent something at once
  }
  if (peer == nullptr) {
    auto made = std::make_unique<Peer>();
    peer = made.get();
    peers_[node] = std::move(made);
  }
  loop_.Cancel(std::exchange(peer->retry, 0));
  loop_.Cancel(std::exchange(peer->link.timer, 0));
  peer->dial.reset();
  if (peer->link.connection != nullptr) Bury(std::move(peer->link), {});
  peer->dialled = false;
  *link.mark = Mark{node, 0};
  peer->link = std::move(link);
  peer->link.connection->Send(wire::FarHello{self_, incarnation_});
  Opened(*peer);
}

void NodeLinks::Opened(Peer& peer) {
  peer.open = true;
  loop_.Cancel(std::exchange(peer.link.timer, 0));
  peer.waiting_bytes = 0;
  for (std::string& frame : std::exchange(peer.waiting, {})) peer.link.connection->SendEncoded(std::move(frame));
}

// ---- what comes ----

void NodeLinks::OnLinkFrame(const std::shared_ptr<Mark>& mark, wire::Frame& frame) {
  if (mark->stranger != 0) return Greet(mark->stranger, frame);
  const NodeNumber node = mark->node;
  Peer* peer = Find(node);
  if (node == 0 || peer == nullptr) return;
  if (!peer->open) {
    const Result<wire::FarHello> hello = frame.As<wire::FarHello>();
    if (!hello.ok() || hello.value().node != node) {
      return Close(node, Status(Code::kCorrupt, Cat("somebody else answers at the address of node ", node)));
    }
    return Opened(*peer);
  }
  if ((frame.call & wire::kAnswerBit) != 0) {
    const auto call = peer->calls.find(frame.call & ~wire::kAnswerBit);
    if (call == peer->calls.end()) return;
    const OnAnswer done = std::move(call->second);
    peer->calls.erase(call);
    return done(&frame);
  }
  const auto handler = handlers_.find(frame.kind);
  if (handler == handlers_.end()) {
    return Close(node, Status(Code::kCorrupt, Cat("message ", int(frame.kind), " is not for a node")));
  }
  handler->second(node, frame);
}

void NodeLinks::OnLinkClosed(const Mark& mark, const Status& why) {
  if (mark.stranger != 0) {
    const auto it = strangers_.find(mark.stranger);
    if (it == strangers_.end()) return;
    loop_.Cancel(it->second.timer);
    Marked link = std::move(it->second);
    strangers_.erase(it);
    return Bury(std::move(link), {});
  }
  Peer* peer = Find(mark.node);
  if (mark.node == 0 || peer == nullptr) return;
  const NodeNumber node = mark.node;
  if (!peer->open) {
    // Refused because its own connection to us is on the way, or it is just going.
    loop_.Cancel(std::exchange(peer->link.timer, 0));
    Bury(std::move(peer->link), {});
    peer->link = {};
    return DialAgain(node, why.ok() ? Status(Code::kUnavailable, "it closed the connection") : why);
  }
  End(node, why.ok() ? Status(Code::kUnavailable, Cat("node ", node, " closed the connection"))
                     : Status(Code::kUnavailable, Cat("the connection to node ", node, " failed: ", why.message())));
}

void NodeLinks::Close(NodeNumber node, const Status& why) {
  if (!why.ok() && Has(node)) base::LogWarning("node %u: %s", node, why.message().c_str());
  // From the loop: what is being handled goes on as if nothing was.
  loop_.After(0, [this, alive = alive_, node, why] {
    if (*alive && Has(node)) End(node, why);
  });
}

void NodeLinks::End(NodeNumber node, const Status& why) {
  const auto it = peers_.find(node);
  if (it == peers_.end()) return;
  const std::unique_ptr<Peer> peer = std::move(it->second);
  peers_.erase(it);
  loop_.Cancel(peer->retry);
  loop_.Cancel(peer->link.timer);
  if (peer->link.connection != nullptr) Bury(std::move(peer->link), why);
  if (peer->dial != nullptr) {
    ended_dials_.push_back(std::move(peer->dial));
    if (sweep_ == 0) Bury({}, {});
  }
  for (const auto& [call, done] : std::exchange(peer->calls, {})) done(Status(Code::kUnavailable, why.message()));
  for (const OnDown& down : on_down_) down(node, why);
}

void NodeLinks::Bury(Marked link, const Status& why) {
  if (link.connection != nullptr) {
    *link.mark = Mark{};
    link.connection->Close(why);
    ended_.push_back(std::move(link.connection));
  }
  if (sweep_ != 0) return;
  sweep_ = loop_.After(0, [this] {
    sweep_ = 0;
    ended_.clear();
    ended_dials_.clear();
  });
}

}  // namespace manta::node
