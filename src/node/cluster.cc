#include "node/cluster.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/clock.h"
#include "base/log.h"

namespace manta::node {
namespace {

constexpr std::int64_t kFirstPauseUs = 2'000;
constexpr std::int64_t kLongestPauseUs = 100'000;
constexpr std::int64_t kDialUs = 1'000'000;
// For a head to know a node that comes back. Long, because one that has welcomed us and then sees us hang up takes that
// for our death; one that is stopped does not get as far as this.
constexpr std::int64_t kWelcomeUs = 3'000'000;
constexpr std::uint64_t kHelloCall = 1;

// The same for all processes that see the same files: this boot of this machine, and its view of the file system.
std::string ThisMachine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  char text[128];
  const ssize_t size = readlink("/proc/self/ns/mnt", text, sizeof text);
  return Cat(boot, " ", std::string(text, size > 0 ? static_cast<std::size_t>(size) : 0));
}

// The head's machine says that nobody listens: nobody is there who could declare us dead.
bool NobodyListens(const Status& why) { return why.message().find("nobody listens") != std::string::npos; }

}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::Create(base::Loop& loop, ClusterConfig config) {
  if (config.secrets.empty()) config.secrets = wire::Secrets::DefaultFolder();
  if (config.machine.empty()) config.machine = ThisMachine();
  Result<std::unique_ptr<base::Loop>> head_loop = base::Loop::Create();
  if (!head_loop.ok()) return head_loop.status();
  std::unique_ptr<Cluster> made(new Cluster(loop, std::move(*head_loop), std::move(config)));
  if (Status status =
          loop.Watch(made->head_loop_->fd(), EPOLLIN, [raw = made.get()](std::uint32_t) { raw->RunHead(); });
      !status.ok()) {
    return status;
  }
  Result<std::shared_ptr<wire::Secrets>> secrets = wire::Secrets::Open(made->config_.secrets);
  if (!secrets.ok()) return secrets.status();
  made->secrets_ = std::move(*secrets);
  made->links_ = std::make_unique<NodeLinks>(loop, made->secrets_);
  made->scheduler_ = std::make_unique<SchedulerLink>(loop, made->secrets_);
  wire::ListenOptions options;
  options.address = made->config_.listen;
  options.secrets = made->secrets_;
  options.tls = made->config_.tls;
  options.roles = RoleBit(wire::LinkRole::kNode) | RoleBit(wire::LinkRole::kTransfer);
  Cluster* raw = made.get();
  Result<std::unique_ptr<wire::Listener>> listener = wire::Listener::Create(
      loop, std::move(options),
      [raw](wire::Link link) {
        if (link.role == wire::LinkRole::kNode) return raw->links_->Accepted(std::move(link));
        if (raw->on_transfer_) raw->on_transfer_(std::move(link));
      },
      [](const std::string& peer, const Status& what) {
        if (!what.ok()) base::LogWarning("%s: %s", peer.c_str(), what.message().c_str());
      });
  if (!listener.ok()) return listener.status();
  made->listener_ = std::move(*listener);
  return made;
}

Cluster::~Cluster() {
  loop_.Cancel(run_head_);
  loop_.Unwatch(head_loop_->fd());
}

void Cluster::RunHead() {
  head_loop_->RunOnce(0);
  if (stand_) Stand();
  ArmHead();
}

void Cluster::ArmHead() {
  loop_.Cancel(std::exchange(run_head_, 0));
  const int wait_ms = head_loop_->WaitMillis();
  if (wait_ms < 0) return;
  run_head_ = loop_.After(wait_ms * std::int64_t{1000}, [this] {
    run_head_ = 0;
    RunHead();
  });
}

Status Cluster::Join(wire::NodeFacts facts, Events events, std::int64_t timeout_us) {
  self_ = std::move(facts);
  events_ = std::move(events);
  self_.address = listener_->address();
  self_.machine = config_.machine;
  self_.pid = static_cast<std::uint32_t>(getpid());
  const std::int64_t deadline = base::NowMicros() + timeout_us;
  Connect();
  ArmHead();
  while (!joined_ && refused_.ok()) {
    const std::int64_t left = deadline - base::NowMicros();
    if (left <= 0) {
      leaving_ = true;
      return Status(Code::kUnavailable, Cat("the head at ", config_.head, " did not answer within ",
                                            timeout_us / 1'000'000, " s", not_yet_.ok() ? "" : ": ", not_yet_.message(),
                                            "; is it started (`manta start --head`), and is this its address?"));
    }
    loop_.RunOnce(left);
  }
  return refused_;
}

// ---- the connection to the head ----

void Cluster::Connect() {
  former_.clear();
  tried_us_ = base::NowMicros();
  wire::DialOptions options;
  options.role = wire::LinkRole::kNode;
  options.secrets = secrets_;
  options.timeout_us = kDialUs;
  dial_ = std::make_unique<wire::Dial>(*head_loop_, heads_, std::move(options),
                                       [this](Result<wire::Link> link) { OnConnected(std::move(link)); });
}

void Cluster::OnConnected(Result<wire::Link> link) {
  dial_.reset();
  if (!link.ok()) return ConnectAgain(link.status());
  // What a head says over a connection that was given up counts no more.
  const std::uint64_t serial = ++serial_;
  connection_ = std::make_unique<wire::Connection>(
      *head_loop_, std::move(link->stream),
      [this, serial](wire::Frame& frame) {
        if (serial == serial_ && connection_ != nullptr) OnFrame(frame);
      },
      [this, serial](const Status& why) {
        if (serial == serial_ && connection_ != nullptr) OnLost(why);
      });
  if (const Status status = connection_->Start(); !status.ok()) return OnLost(status);
  tried_us_ = base::NowMicros();
  connection_->Send(wire::NodeHello{self_}, kHelloCall);
  if (!joined_) return;  // its record is written first, which may take its time
  hello_timer_ = head_loop_->After(kWelcomeUs, [this] {
    hello_timer_ = 0;
    connection_->Close(Status(Code::kTimedOut, Cat("the head did not answer within ", kWelcomeUs / 1000, " ms")));
  });
}

void Cluster::NextHead() {
  const std::size_t comma = heads_.find(',');
  if (comma != std::string::npos) heads_ = Cat(heads_.substr(comma + 1), ",", heads_.substr(0, comma));
}

void Cluster::OnLost(const Status& why) {
  former_.push_back(std::move(connection_));
  const bool was = std::exchange(welcomed_, false);
  sent_.clear();
  head_loop_->Cancel(std::exchange(beat_timer_, 0));
  head_loop_->Cancel(std::exchange(soon_, 0));
  head_loop_->Cancel(std::exchange(hello_timer_, 0));
  if (!was) NextHead();
  for (const auto& [call, done] : std::exchange(placing_, {})) {
    done(Status(Code::kUnavailable, "the connection to the cluster's head was lost"));
  }
  for (const auto& [call, done] : std::exchange(asking_, {})) {
    done(Status(Code::kUnavailable, "the connection to the cluster's head was lost; try again"));
  }
  if (leaving_) return;
  if (was) {
    base::LogWarning("the connection to the head at %s was lost%s%s; trying again", config_.head.c_str(),
                     why.ok() ? "" : ": ", why.message().c_str());
    pause_us_ = 0;
  }
  ConnectAgain(why.ok() ? Status(Code::kUnavailable, "the head closed the connection") : why);
}

void Cluster::ConnectAgain(const Status& why) {
  if (leaving_) return;
  if (!joined_ && why.code() != Code::kUnavailable && why.code() != Code::kTimedOut) {
    refused_ = why;  // a wrong token or version: it will not get better
    return;
  }
  if (!joined_) not_yet_ = why;
  if (joined_) {
    if (NobodyListens(why)) lease_.Refused(tried_us_);
    CheckLease();
    if (leaving_) return;
  }
  pause_us_ = std::clamp(pause_us_ * 2, kFirstPauseUs, kLongestPauseUs);
  retry_ = head_loop_->After(pause_us_, [this] {
    retry_ = 0;
    Connect();
  });
}

void Cluster::OnFrame(wire::Frame& frame) {
  const auto bad = [this](const Status& why) { connection_->Close(why); };
  if (frame.call != 0 && Answer(frame)) return;
  switch (static_cast<wire::ClusterKind>(frame.kind)) {
    case wire::ClusterKind::kNodeWelcome: {
      const Result<wire::NodeWelcome> welcome = frame.As<wire::NodeWelcome>();
      return welcome.ok() ? OnWelcome(welcome.value()) : bad(welcome.status());
    }
    case wire::ClusterKind::kHeartbeatSeen: {
      const Result<wire::HeartbeatSeen> seen = frame.As<wire::HeartbeatSeen>();
      if (!seen.ok()) return bad(seen.status());
      while (!sent_.empty() && sent_.front().first <= seen.value().sequence) {
        lease_.Answered(sent_.front().second);
        sent_.pop_front();
      }
      return;
    }
    case wire::ClusterKind::kClusterView: {
      const Result<wire::ClusterView> view = frame.As<wire::ClusterView>();
      return view.ok() ? OnView(view.value()) : bad(view.status());
    }
    case wire::ClusterKind::kPlaced: {
      const auto it = placing_.find(frame.call);
      if (it == placing_.end()) return;
      const OnPlaced done = std::move(it->second);
      placing_.erase(it);
      return done(frame.BodyAs<std::vector<rules::Placement>>());
    }
    case wire::ClusterKind::kProbe:
      return Beat();
    case wire::ClusterKind::kNewToken: {
      const Result<wire::NewToken> changed = frame.As<wire::NewToken>();
      return changed.ok() ? OnNewToken(changed.value()) : bad(changed.status());
    }
    case wire::ClusterKind::kDrain:
      return events_.drain();
    case wire::ClusterKind::kFenced: {
      const Result<wire::Fenced> fenced = frame.As<wire::Fenced>();
      return fenced.ok() ? Fenced(fenced.value().stop, fenced.value().why) : bad(fenced.status());
    }
    default:
      break;
  }
  if (events_.groups && events_.groups(frame)) return;
  if (frame.kind != wire::Kind::kFailed) {
    return bad(Status(Code::kCorrupt, Cat("message ", int(frame.kind), " of the head makes no sense")));
  }
  const Result<wire::Failed> failed = frame.As<wire::Failed>();
  if (!failed.ok()) return bad(failed.status());
  const Status why(failed.value().failure.code, failed.value().failure.message);
  if (frame.call == kHelloCall && !joined_) {
    if (why.code() == Code::kUnavailable) return;  // it closes now; tried again
    refused_ = why;
    leaving_ = true;
    return;
  }
  const auto it = placing_.find(frame.call);
  if (it == placing_.end()) return;
  const OnPlaced done = std::move(it->second);
  placing_.erase(it);
  done(why);
}

void Cluster::OnWelcome(const wire::NodeWelcome& welcome) {
  self_.number = welcome.number;
  self_.incarnation = welcome.incarnation;
  job_quota_ = welcome.job_quota;
  links_->SetSelf(welcome.number, welcome.incarnation);
  wait_us_ = welcome.wait_us;
  lease_.Answered(tried_us_);
  welcomed_ = true;
  pause_us_ = 0;
  if (silent_ != nullptr) {
    silent_->Close({});
    former_.push_back(std::move(silent_));
  }
  head_loop_->Cancel(retry_);
  head_loop_->Cancel(std::exchange(hello_timer_, 0));
  head_loop_->Cancel(beat_timer_);
  beat_timer_ = head_loop_->Every(kHeartbeatUs, [this] {
    CheckLease();
    if (welcomed_) Beat();
  });
}

void Cluster::OnNewToken(const wire::NewToken& changed) {
  wire::Token token{};
  if (changed.token.size() != token.size()) return;
  std::memcpy(token.data(), changed.token.data(), token.size());
  if (wire::SameSecret(token, secrets_->keys().token)) return;  // the folder is the head's, or it was told before
  if (const Status status = secrets_->InstallToken(token, changed.good_seconds); !status.ok()) {
    base::LogWarning("the cluster has a new token, which cannot be kept: %s", status.message().c_str());
  }
}

void Cluster::OnView(const wire::ClusterView& view) {
  scheduler_->Update(self_.number, self_.incarnation, view.schedulers);
  if (view.whole) {
    // Who is not in it is gone.
    std::vector<wire::NodeFacts> gone;
    for (const auto& [number, facts] : nodes_) {
      const bool there = std::any_of(view.nodes.begin(), view.nodes.end(),
                                     [&, wanted = number](const auto& node) { return node.number == wanted; });
      if (!there && number != self_.number) gone.push_back(facts);
    }
    for (wire::NodeFacts& facts : gone) {
      facts.state = wire::NodeFacts::State::kDead;
      facts.why = "the head does not know it any more";
      Apply(facts);
    }
  }
  for (const wire::NodeFacts& facts : view.nodes) Apply(facts);
  if (view.whole) {
    if (const wire::NodeFacts* registered = Find(self_.number); !joined_ && registered != nullptr) {
      self_.name = registered->name;
      self_.labels = registered->labels;
    }
    joined_ = true;
    Beat();
  }
}

void Cluster::Apply(const wire::NodeFacts& facts) {
  if (facts.lives()) {
    nodes_[facts.number] = facts;
    if (facts.number != self_.number) links_->NodeUp(facts.number, facts.address);
  } else if (facts.number != self_.number) {
    nodes_.erase(facts.number);
  }
  events_.changed(facts);
  if (!facts.lives() && facts.number != self_.number) {
    links_->NodeDead(facts.number, Status(Code::kUnavailable, Cat("node ", facts.name, " is gone: ", facts.why)));
  }
}

// ---- heartbeats ----

void Cluster::Beat() {
  head_loop_->Cancel(std::exchange(soon_, 0));
  if (!welcomed_) return;
  rules::Heartbeat heartbeat = events_.load();
  heartbeat.node = self_.number;
  heartbeat.incarnation = self_.incarnation;
  heartbeat.sequence = ++sequence_;
  sent_.emplace_back(heartbeat.sequence, base::NowMicros());
  connection_->SendEncoded(wire::EncodeFrameOf(wire::kHeartbeat, heartbeat));
}

void Cluster::LoadChanged() {
  if (soon_ != 0 || !welcomed_) return;
  soon_ = head_loop_->After(kSoonUs, [this] {
    soon_ = 0;
    Beat();
  });
  ArmHead();
}

void Cluster::CheckLease() {
  if (leaving_ || standing_ || lease_.MayAct(base::NowMicros())) return;
  // The answer may be here already, unread: this process may have been stopped for a while.
  if (connection_ != nullptr) connection_->ReadNow();
  if (leaving_ || lease_.MayAct(base::NowMicros())) return;
  stand_ = true;  // RunHead does it, not a callback of the connection
}

void Cluster::Stand() {
  stand_ = false;
  if (leaving_) return;
  standing_ = true;
  events_.still(true);
  const std::int64_t began_us = base::NowMicros();
  base::LogWarning("%s stands still: no head at %s has answered for %lld ms", self_.name.c_str(), config_.head.c_str(),
                   static_cast<long long>(rules::NodeLease::kLengthUs / 1000));
  if (connection_ != nullptr) {
    silent_ = std::move(connection_);
    NextHead();
    OnLost(Status(Code::kUnavailable, "it does not answer"));
  }
  const auto told_to_end = [] {
    sigset_t pending;
    return sigpending(&pending) == 0 && (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
  };
  while (!welcomed_ && !leaving_ && !told_to_end()) {
    if (base::NowMicros() - began_us >= wait_us_) {
      Fenced(false, Cat("no head at ", config_.head, " has answered for ", wait_us_ / 1'000'000,
                        " s: this node is cut off, and others may be doing its work by now"));
      break;
    }
    head_loop_->RunOnce(kHeartbeatUs);
  }
  standing_ = false;
  if (!welcomed_ || leaving_) return;
  base::LogInfo("%s goes on after %lld ms", self_.name.c_str(),
                static_cast<long long>((base::NowMicros() - began_us) / 1000));
  events_.still(false);
}

void Cluster::Fenced(bool stop, const std::string& why) {
  if (leaving_) return;
  leaving_ = true;
  lease_.Fenced();
  events_.fenced(stop, why);
}

void Cluster::Farewell(const std::string& why) {
  if (std::exchange(leaving_, true)) return;
  if (welcomed_) connection_->Send(wire::Farewell{why});
}

// ---- questions ----

void Cluster::Place(const rules::PlaceRequest& request, OnPlaced done) {
  const bool asked =
      scheduler_->Place(request, [this, request, done](const Result<std::vector<rules::Placement>>& placed) {
        // What it does not know may be known to the head by now: a node that has just come.
        const bool again = !placed.ok() && (placed.status().code() == Code::kUnavailable ||
                                            placed.status().code() == Code::kInfeasible);
        if (again && !leaving_) return PlaceByHead(request, done);
        done(placed);
      });
  if (!asked) PlaceByHead(request, std::move(done));
}

void Cluster::PlaceByHead(const rules::PlaceRequest& request, OnPlaced done) {
  if (!welcomed_) {
    loop_.After(0, [done = std::move(done)] {
      done(Status(Code::kUnavailable, "the cluster's head is out of reach just now"));
    });
    return;
  }
  const std::uint64_t call = next_call_++;
  placing_[call] = std::move(done);
  connection_->SendEncoded(wire::EncodeFrameOf(wire::kPlace, request, call));
}

void Cluster::AskFrame(std::string frame, std::uint64_t call, OnAnswer done) {
  if (!welcomed_) {
    loop_.After(0, [done = std::move(done)] {
      done(Status(Code::kUnavailable, "the cluster's head is out of reach just now; try again"));
    });
    return;
  }
  asking_[call] = std::move(done);
  connection_->SendEncoded(std::move(frame));
}

bool Cluster::Answer(wire::Frame& frame) {
  const auto it = asking_.find(frame.call);
  if (it == asking_.end()) return false;
  const OnAnswer done = std::move(it->second);
  asking_.erase(it);
  if (frame.kind != wire::Kind::kFailed) {
    done(&frame);
    return true;
  }
  const Result<wire::Failed> failed = frame.As<wire::Failed>();
  done(failed.ok() ? Status(failed.value().failure.code, failed.value().failure.message) : failed.status());
  return true;
}

void Cluster::Withdraw(std::uint64_t ticket) {
  if (ticket == 0) return;
  scheduler_->Withdraw(ticket);
  if (welcomed_) connection_->Send(wire::Withdraw{ticket});
}

const wire::NodeFacts* Cluster::Find(NodeNumber node) const {
  const auto it = nodes_.find(node);
  return it == nodes_.end() ? nullptr : &it->second;
}

std::string Cluster::NameOf(NodeNumber node) const {
  const wire::NodeFacts* facts = Find(node);
  return facts == nullptr ? Cat("node ", node) : facts->name;
}

Resources Cluster::LargestTotal() const {
  Resources most = self_.total;
  for (const auto& [number, facts] : nodes_) {
    for (const auto& [name, amount] : facts.total.amounts()) most.Set(name, std::max(amount, most.Get(name)));
  }
  return most;
}

Resources Cluster::WholeTotal() const {
  Resources sum;
  for (const auto& [number, facts] : nodes_) sum.Add(facts.total);
  return sum;
}

bool Cluster::AllSent() const {
  return links_->AllSent() && (connection_ == nullptr || connection_->outgoing_bytes() == 0);
}

}  // namespace manta::node
