#include "control/scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/clock.h"

namespace manta::control {
namespace {

constexpr std::int64_t kFirstPauseUs = 2'000;
constexpr std::int64_t kLongestPauseUs = 100'000;
constexpr std::int64_t kDialUs = 1'000'000;
constexpr std::uint64_t kHelloCall = 1;

}  // namespace

Scheduler::Scheduler(base::Loop& loop, std::string head, std::shared_ptr<wire::Secrets> secrets, std::string address)
    : loop_(loop), head_(std::move(head)), secrets_(std::move(secrets)), address_(std::move(address)) {}

Scheduler::~Scheduler() { loop_.Cancel(retry_); }

// ---- the head ----

void Scheduler::Connect() {
  former_.clear();
  wire::DialOptions options;
  options.role = wire::LinkRole::kNode;
  options.secrets = secrets_;
  options.timeout_us = kDialUs;
  dial_ = std::make_unique<wire::Dial>(loop_, head_, std::move(options),
                                       [this](Result<wire::Link> link) { Connected(std::move(link)); });
}

void Scheduler::Connected(Result<wire::Link> link) {
  dial_.reset();
  if (!link.ok()) return Lost(link.status());
  connection_ = std::make_unique<wire::Connection>(
      loop_, std::move(link->stream), [this](wire::Frame& frame) { OnHeadFrame(frame); },
      [this](const Status& why) {
        former_.push_back(std::move(connection_));
        Lost(why.ok() ? Status(Code::kUnavailable, "the head closed the connection") : why);
      });
  if (const Status status = connection_->Start(); !status.ok()) {
    former_.push_back(std::move(connection_));
    return Lost(status);
  }
  connection_->Send(wire::SchedulerHello{address_, static_cast<std::uint32_t>(getpid())}, kHelloCall);
}

void Scheduler::Lost(const Status& why) {
  const bool hopeless = why.code() != Code::kUnavailable && why.code() != Code::kTimedOut;
  if (rule_ == nullptr && hopeless) {  // a wrong token or version: it will not get better
    if (on_end_) on_end_(why);
    return;
  }
  pause_us_ = std::clamp(pause_us_ * 2, kFirstPauseUs, kLongestPauseUs);
  retry_ = loop_.After(pause_us_, [this] {
    retry_ = 0;
    Connect();
  });
}

void Scheduler::OnHeadFrame(const wire::Frame& frame) {
  if (frame.kind == wire::kNodeBeat) {
    const Result<rules::Heartbeat> heartbeat = frame.BodyAs<rules::Heartbeat>();
    if (!heartbeat.ok()) return connection_->Close(heartbeat.status());
    if (rule_ != nullptr && facts_.contains(heartbeat.value().node)) rule_->Heard(heartbeat.value());
    return;
  }
  if (const Result<wire::ClusterView> view = frame.As<wire::ClusterView>(); view.ok()) return OnView(view.value());
  if (const Result<wire::SchedulerWelcome> welcome = frame.As<wire::SchedulerWelcome>(); welcome.ok()) {
    replica_ = welcome.value().replica;
    pause_us_ = 0;
    return;
  }
  if (const Result<wire::Fenced> fenced = frame.As<wire::Fenced>(); fenced.ok()) {
    if (on_end_) on_end_({});
    return;
  }
  if (const Result<wire::Failed> failed = frame.As<wire::Failed>(); failed.ok() && frame.call == kHelloCall) {
    if (on_end_) on_end_(Status(failed.value().failure.code, failed.value().failure.message));
    return;
  }
  connection_->Close(Status(Code::kCorrupt, Cat("message ", int(frame.kind), " is not for a scheduler")));
}

void Scheduler::OnView(const wire::ClusterView& view) {
  const bool first = rule_ == nullptr;
  if (view.whole) {
    // A new connection, and with it a new number: tickets must not be mistaken for earlier ones.
    rule_ = std::make_unique<rules::GlobalScheduler>(replica_);
    facts_.clear();
  }
  if (rule_ == nullptr) return;
  for (const wire::NodeFacts& facts : view.nodes) {
    if (!facts.lives()) {
      facts_.erase(facts.number);
      rule_->NodeDown(facts.number);
      continue;
    }
    const bool known = !facts_.insert_or_assign(facts.number, facts).second;
    if (known) continue;
    // So that it can be placed on before its first heartbeat; with what it had free when the head heard it last.
    rules::Heartbeat heartbeat;
    heartbeat.node = facts.number;
    heartbeat.incarnation = facts.incarnation;
    heartbeat.sequence = 1;
    heartbeat.total = facts.total;
    heartbeat.available = facts.available.empty() ? facts.total : facts.available;
    heartbeat.labels = facts.labels;
    heartbeat.draining = facts.state == wire::NodeFacts::State::kDraining;
    rule_->Heard(heartbeat);
  }
  if (first && on_joined_) on_joined_();
}

// ---- nodes ----

void Scheduler::Add(wire::Link link) {
  const std::uint64_t serial = next_serial_++;
  auto peer = std::make_unique<Peer>();
  peer->connection = std::make_unique<wire::Connection>(
      loop_, std::move(link.stream), [this, serial](wire::Frame& frame) { OnNodeFrame(serial, frame); },
      [this, serial](const Status&) { peers_.erase(serial); });
  if (!peer->connection->Start().ok()) return;
  peers_[serial] = std::move(peer);
}

void Scheduler::OnNodeFrame(std::uint64_t serial, const wire::Frame& frame) {
  const auto it = peers_.find(serial);
  if (it == peers_.end()) return;
  Peer& peer = *it->second;
  if (peer.node == 0) {
    const Result<wire::FarHello> hello = frame.As<wire::FarHello>();
    if (!hello.ok() || hello.value().node == 0) {
      return peer.connection->Close(Status(Code::kCorrupt, "a node begins with FarHello"));
    }
    peer.node = hello.value().node;
    return peer.connection->Send(wire::FarHello{}, frame.call);
  }
  if (frame.kind == wire::kPlace) return Place(peer, frame);
  if (const Result<wire::Withdraw> withdraw = frame.As<wire::Withdraw>(); withdraw.ok()) {
    if (rule_ != nullptr) rule_->Withdrawn(withdraw.value().ticket);
    return;
  }
  peer.connection->Close(Status(Code::kCorrupt, Cat("message ", int(frame.kind), " is not for a scheduler")));
}

void Scheduler::Place(Peer& peer, const wire::Frame& frame) {
  Result<rules::PlaceRequest> request = frame.BodyAs<rules::PlaceRequest>();
  if (!request.ok()) return peer.connection->Close(request.status());
  if (rule_ == nullptr) {
    return peer.connection->Fail(frame.call, Status(Code::kUnavailable, "this scheduler has not heard from the head"));
  }
  request->from = peer.node;
  if (!request->node.empty()) {
    for (const auto& [number, facts] : facts_) {
      if (NamesNode(request->node, facts.name, number)) request->affinity = number;
    }
  }
  const Result<std::vector<rules::Placement>> placed = rule_->Place(*request, base::NowMicros());
  if (!placed.ok()) return peer.connection->Fail(frame.call, placed.status());
  peer.connection->SendEncoded(wire::EncodeFrameOf(wire::kPlaced, placed.value(), frame.call));
}

}  // namespace manta::control
