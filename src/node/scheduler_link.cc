#include "node/scheduler_link.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "types/id.h"

namespace manta::node {
namespace {

constexpr std::int64_t kDialUs = 1'000'000;
constexpr std::int64_t kLookUs = 50'000;
constexpr std::uint64_t kHelloCall = 1;

}  // namespace

SchedulerLink::~SchedulerLink() {
  *alive_ = false;
  loop_.Cancel(timer_);
}

std::uint32_t SchedulerLink::Choose(NodeNumber node, const std::vector<std::uint32_t>& replicas) {
  std::uint32_t best = 0;
  std::uint64_t highest = 0;
  for (const std::uint32_t replica : replicas) {
    const std::uint64_t rank = Mix((static_cast<std::uint64_t>(node) << 32 | replica) * 0x9e3779b97f4a7c15ULL);
    if (best != 0 && rank <= highest) continue;
    best = replica;
    highest = rank;
  }
  return best;
}

void SchedulerLink::Update(NodeNumber self, std::uint64_t incarnation,
                           const std::vector<wire::SchedulerFacts>& schedulers) {
  self_ = self;
  incarnation_ = incarnation;
  all_.clear();
  for (const wire::SchedulerFacts& one : schedulers) all_[one.replica] = one;
  std::erase_if(avoided_, [&](const auto& entry) { return !all_.contains(entry.first); });
  if (replica_ != 0 && !all_.contains(replica_)) Leave(false);
  Connect();
}

// To the one that is this node's, unless it is connected already.
void SchedulerLink::Connect() {
  const std::int64_t now = base::NowMicros();
  std::erase_if(avoided_, [&](const auto& entry) { return entry.second <= now; });
  std::vector<std::uint32_t> good;
  for (const auto& [replica, facts] : all_) {
    if (!avoided_.contains(replica)) good.push_back(replica);
  }
  if (!avoided_.empty() && timer_ == 0) Look();
  const std::uint32_t chosen = Choose(self_, good);
  if (chosen == replica_) return;
  if (replica_ != 0) Leave(false);
  replica_ = chosen;
  if (chosen == 0) return;
  wire::DialOptions options;
  options.role = wire::LinkRole::kNode;
  options.secrets = secrets_;
  options.timeout_us = kDialUs;
  dial_ = std::make_unique<wire::Dial>(loop_, all_[chosen].address, std::move(options),
                                       [this, chosen](Result<wire::Link> link) { Connected(chosen, std::move(link)); });
}

void SchedulerLink::Connected(std::uint32_t replica, Result<wire::Link> link) {
  if (replica != replica_) return;
  former_dials_.push_back(std::move(dial_));
  if (!link.ok()) return Leave(true);
  connection_ = std::make_unique<wire::Connection>(
      loop_, std::move(link->stream), [this](wire::Frame& frame) { OnFrame(frame); },
      [this](const Status&) { Leave(true); });
  if (!connection_->Start().ok()) return Leave(true);
  connection_->Send(wire::FarHello{self_, incarnation_}, kHelloCall);
}

void SchedulerLink::Leave(bool avoid) {
  if (avoid && replica_ != 0) avoided_[replica_] = base::NowMicros() + kAvoidUs;
  replica_ = 0;
  open_ = false;
  if (dial_ != nullptr) former_dials_.push_back(std::move(dial_));
  if (connection_ != nullptr) former_.push_back(std::move(connection_));
  // From the loop: this may be a callback of the very connection.
  loop_.After(0, [this, alive = alive_] {
    if (!*alive) return;
    former_.clear();
    former_dials_.clear();
    Connect();
  });
  for (const auto& [call, asked] : std::exchange(asked_, {})) {
    asked.done(Status(Code::kUnavailable, "the scheduler that was asked is out of reach"));
  }
}

void SchedulerLink::OnFrame(const wire::Frame& frame) {
  if (frame.call == kHelloCall) {
    open_ = frame.As<wire::FarHello>().ok();
    return open_ ? void() : Leave(true);
  }
  const auto it = asked_.find(frame.call);
  if (it == asked_.end()) return;
  const OnPlaced done = std::move(it->second.done);
  asked_.erase(it);
  if (frame.kind == wire::kPlaced) return done(frame.BodyAs<std::vector<rules::Placement>>());
  const Result<wire::Failed> failed = frame.As<wire::Failed>();
  done(failed.ok() ? Status(failed.value().failure.code, failed.value().failure.message) : failed.status());
}

bool SchedulerLink::Place(const rules::PlaceRequest& request, const OnPlaced& done) {
  if (!open_) return false;
  const std::uint64_t call = next_call_++;
  asked_[call] = Asked{done, base::NowMicros() + kAnswerUs};
  connection_->SendEncoded(wire::EncodeFrameOf(wire::kPlace, request, call));
  if (timer_ == 0) Look();
  return true;
}

void SchedulerLink::Withdraw(std::uint64_t ticket) {
  if (open_) connection_->Send(wire::Withdraw{ticket});
}

void SchedulerLink::Look() {
  timer_ = loop_.After(kLookUs, [this] {
    timer_ = 0;
    const std::int64_t now = base::NowMicros();
    if (!asked_.empty() && asked_.begin()->second.deadline_us <= now) {
      // The answer may be here already, unread: this process may have been stopped for a while.
      connection_->ReadNow();
      if (!asked_.empty() && asked_.begin()->second.deadline_us <= now) Leave(true);
    }
    if (!asked_.empty() || !avoided_.empty()) Look();
    Connect();
  });
}

}  // namespace manta::node
