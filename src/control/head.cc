#include "control/head.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace manta::control {
namespace {

using State = wire::NodeFacts::State;

constexpr std::int64_t kTickUs = 100'000;
constexpr std::int64_t kStopUs = 1'000'000;  // for nodes that were told to go
constexpr std::int64_t kSaveAgainUs = 200'000;
constexpr std::int64_t kDropAgainUs = 500'000;

std::string KeyOf(NodeNumber number) {
  char key[24];
  std::snprintf(key, sizeof key, "node/%010u", number);
  return key;
}

std::string Encoded(const wire::NodeFacts& facts) {
  std::string text(EncodedSize(facts), '\0');
  Encode(facts, std::as_writable_bytes(std::span(text)));
  return text;
}

Result<wire::NodeFacts> Decoded(const std::string& text) {
  try {
    return Decode<wire::NodeFacts>(std::as_bytes(std::span(text)));
  } catch (const Error& error) {
    return Status(Code::kCorrupt, Cat("a record in the table of nodes does not decode: ", error.what()));
  }
}

wire::NewToken MessageOf(const wire::Keys& keys) {
  const std::int64_t left = keys.has_previous ? keys.previous_until - wire::UnixNow() : 0;
  return {std::string(reinterpret_cast<const char*>(keys.token.data()), keys.token.size()),
          std::max<std::int64_t>(left, 0)};
}

}  // namespace

Head::Head(base::Loop& loop, Tables& tables, HeadOptions options)
    : loop_(loop),
      tables_(tables),
      options_(std::move(options)),
      scheduler_(1),
      groups_(loop, tables,
              Groups::Ways{[this](NodeNumber node, std::string frame) {
                             if (Peer* peer = PeerOf(node); peer != nullptr) {
                               peer->connection->SendEncoded(std::move(frame));
                             }
                           },
                           [this](const std::string& frame) {
                             for (const auto& [number, serial] : serials_) Find(serial)->connection->SendEncoded(frame);
                           }}),
      names_(tables),
      kept_(tables, KeptActors::Ways{
                        [this](NodeNumber node, std::string frame) {
                          if (Peer* peer = PeerOf(node); peer != nullptr) {
                            peer->connection->SendEncoded(std::move(frame));
                          }
                        },
                        [this] {
                          std::vector<NodeNumber> out;
                          for (const auto& [number, facts] : nodes_) {
                            const Peer* peer = PeerOf(number);
                            if (facts.state == State::kAlive && peer != nullptr && peer->heard) out.push_back(number);
                          }
                          return out;
                        },
                        [this](const Id& actor, NodeNumber home) { names_.Moved(actor, home); },
                    }) {}

Head::~Head() {
  *alive_ = false;
  loop_.Cancel(timer_);
  loop_.Cancel(stop_timer_);
}

void Head::Open(std::function<void(const Status&)> done) {
  const std::shared_ptr<bool> alive = alive_;
  auto finish = [this, alive, done = std::move(done)](const Result<Page>& page) {
    if (!*alive) return;
    if (!page.ok()) return done(page.status());
    const std::int64_t now = base::NowMicros();
    for (const Entry& entry : page.value().entries) {
      const Result<wire::NodeFacts> facts = Decoded(entry.value);
      if (!facts.ok()) return done(facts.status());
      const wire::NodeFacts& node = facts.value();
      next_number_ = std::max(next_number_, node.number + 1);
      if (!node.lives()) continue;
      nodes_[node.number] = node;
      membership_.Restore(node.number, node.incarnation, true, now);
      Introduce(node);
    }
    CountFormerNumbers();
    // Of those that are gone only the highest number matters, and what the head before us has not dropped yet.
    for (const Entry& entry : page.value().entries) {
      const Result<wire::NodeFacts> facts = Decoded(entry.value);
      const NodeNumber number = facts.value().number;
      if (facts.value().lives()) continue;
      DropValuesOf(number, [this, key = entry.key, highest = number + 1 == next_number_] {
        if (highest) return;
        wire::ControlWrite write;
        write.table = Table::kNodes;
        write.key = key;
        tables_.Write(std::move(write), [](const Result<ControlWritten>&) {});
      });
    }
    timer_ = loop_.Every(kTickUs, [this] { Tick(); });
    const auto lives = [this](NodeNumber node) {
      const auto it = nodes_.find(node);
      return it != nodes_.end() && it->second.lives();
    };
    const auto open_names = [this, alive, done, lives](const Status& kept) {
      if (!*alive) return;
      if (!kept.ok()) return done(kept);
      names_.Open([this, lives](const wire::NamedActor& named) { return lives(named.home) || kept_.Has(named.actor); },
                  [this, alive, done](const Status& opened) {
                    if (!*alive) return;
                    if (!opened.ok()) return done(opened);
                    groups_.Open(done);
                  });
    };
    kept_.Open(lives, open_names);
  };
  auto all = std::make_shared<Page>();
  const auto each = [all](const Entry& entry) {
    all->entries.push_back(entry);
    return Status();
  };
  tables_.ScanAll(Table::kNodes, "node/", each, [alive, all, finish](const Status& status) {
    if (*alive) finish(status.ok() ? Result<Page>(std::move(*all)) : Result<Page>(status));
  });
}

bool Head::InOffice() const { return !options_.until_us || base::NowMicros() < options_.until_us(); }

void Head::Tick() {
  TellToken();
  const bool was = std::exchange(in_office_, InOffice());
  if (!in_office_) return;
  const std::int64_t now = base::NowMicros();
  // Nodes that were not answered meanwhile stand still, and have their time to come back.
  for (const auto& [number, facts] : nodes_) {
    if (!was) static_cast<void>(membership_.Heard(number, facts.incarnation, now));
  }
  rules::MembershipActions actions;
  membership_.Tick(now, &actions);
  Perform(actions);
}

// A cluster without a live node begins anew: its first node is n1, whatever numbers its predecessors in the same folder
// used. A head that takes over a live cluster goes on with the names that its nodes have.
void Head::CountFormerNumbers() {
  former_numbers_ = next_number_ - 1;
  for (const auto& [number, facts] : nodes_) {
    if (!facts.name.starts_with("n")) continue;
    const NodeNumber suffix = static_cast<NodeNumber>(std::strtoul(facts.name.c_str() + 1, nullptr, 10));
    if (facts.name == Cat("n", suffix) && suffix <= number)
      former_numbers_ = std::min(former_numbers_, number - suffix);
  }
}

void Head::Introduce(const wire::NodeFacts& facts) {
  rules::Heartbeat heartbeat;
  heartbeat.node = facts.number;
  heartbeat.incarnation = facts.incarnation;
  heartbeat.sequence = 1;
  heartbeat.total = facts.total;
  heartbeat.available = facts.total;
  heartbeat.labels = facts.labels;
  heartbeat.draining = facts.state == State::kDraining;
  scheduler_.Heard(heartbeat);
}

// ---- who is connected ----

void Head::Add(wire::Link link) {
  auto peer = std::make_unique<Peer>();
  Peer* raw = peer.get();
  raw->serial = next_serial_++;
  raw->role = link.role;
  raw->connection = std::make_unique<wire::Connection>(
      loop_, std::move(link.stream), [this, raw](wire::Frame& frame) { OnFrame(*raw, frame); },
      [this, serial = raw->serial](const Status&) { OnClosed(serial); });
  if (const Status status = raw->connection->Start(); !status.ok()) return;
  peers_[raw->serial] = std::move(peer);
}

Head::Peer* Head::Find(std::uint64_t serial) const {
  const auto it = peers_.find(serial);
  return it == peers_.end() ? nullptr : it->second.get();
}

Head::Peer* Head::PeerOf(NodeNumber number) const {
  const auto it = serials_.find(number);
  return it == serials_.end() ? nullptr : Find(it->second);
}

bool Head::AllSent() const {
  return saving_ == 0 && groups_.AllSaved() && std::all_of(peers_.begin(), peers_.end(), [](const auto& entry) {
           return entry.second->connection->outgoing_bytes() == 0;
         });
}

void Head::OnClosed(std::uint64_t serial) {
  const auto it = peers_.find(serial);
  if (it == peers_.end()) return;
  const std::unique_ptr<Peer> peer = std::move(it->second);
  peers_.erase(it);
  if (peer->replica != 0) {
    base::LogInfo("scheduler %u at %s is gone", peer->replica, peer->address.c_str());
    schedulers_.erase(peer->replica);
    return Tell({});
  }
  if (peer->number == 0) return;
  const auto mine = serials_.find(peer->number);
  if (mine == serials_.end() || mine->second != serial) return;  // it is back already, or declared dead
  serials_.erase(mine);
  if (!InOffice()) return;  // it went to look for the one who is
  rules::MembershipActions actions;
  membership_.Closed(peer->number, peer->incarnation, &actions);
  Perform(actions);
  // Who waits for it to leave: it has, if not in order.
  if (nodes_[peer->number].lives()) return;
  for (const auto& [tool_serial, call] : peer->draining) {
    if (Peer* tool = Find(tool_serial); tool != nullptr) tool->connection->Send(wire::Done{}, call);
  }
}

void Head::OnFrame(Peer& peer, wire::Frame& frame) {
  if (peer.role == wire::LinkRole::kTool) return OnTool(peer, frame);
  if (peer.greeted) return OnNode(peer, frame);
  Hello(peer, frame);
}

void Head::HelloScheduler(Peer& peer, std::uint64_t call, const wire::SchedulerHello& hello) {
  peer.greeted = true;
  peer.replica = next_replica_++;
  peer.address = hello.address;
  peer.pid = hello.pid;
  schedulers_[peer.replica] = peer.serial;
  peer.connection->Send(wire::SchedulerWelcome{peer.replica}, call);
  base::LogInfo("scheduler %u joined, at %s", peer.replica, peer.address.c_str());
  peer.connection->Send(View(false));
  Tell({});
}

std::vector<wire::SchedulerFacts> Head::Schedulers() const {
  std::vector<wire::SchedulerFacts> out;
  for (const auto& [replica, serial] : schedulers_) {
    const Peer* peer = Find(serial);
    out.push_back({replica, peer->address, peer->pid});
  }
  return out;
}

void Head::Hello(Peer& peer, const wire::Frame& frame) {
  if (const Result<wire::SchedulerHello> scheduler = frame.As<wire::SchedulerHello>(); scheduler.ok()) {
    return HelloScheduler(peer, frame.call, scheduler.value());
  }
  Result<wire::NodeHello> hello = frame.As<wire::NodeHello>();
  if (!hello.ok()) return peer.connection->Close(hello.status());
  peer.greeted = true;
  wire::NodeFacts& facts = hello->facts;
  if (!InOffice()) {
    const Status why(Code::kUnavailable, "another head may have taken over: this one cannot reach etcd");
    peer.connection->Fail(frame.call, why);
    return peer.connection->CloseAfterSending(why);
  }
  if (facts.number != 0) return Return(peer, frame.call, facts);
  const auto bearer = [&] {
    return std::find_if(nodes_.begin(), nodes_.end(),
                        [&](const auto& entry) { return entry.second.lives() && entry.second.name == facts.name; });
  };
  if (facts.name.empty()) {
    // Never the name of a node that this head has seen die: what is pinned to that one must not run on another.
    const auto used = [&] {
      return std::any_of(nodes_.begin(), nodes_.end(),
                         [&](const auto& entry) { return entry.second.name == facts.name; });
    };
    NodeNumber suffix = next_number_ - former_numbers_;
    do facts.name = Cat("n", suffix++);
    while (used());
  }
  const auto taken = bearer();
  if (taken != nodes_.end()) {
    // One that is not connected may be about to be declared dead: then this one may try again.
    const bool there = PeerOf(taken->first) != nullptr;
    const Status why(there ? Code::kInvalid : Code::kUnavailable,
                     Cat("a node named '", facts.name, "' (number ", taken->first, ", at ", taken->second.address,
                         ") is in the cluster already: choose another --name"));
    peer.connection->Fail(frame.call, why);
    return peer.connection->CloseAfterSending(why);
  }
  Register(peer, frame.call, std::move(facts));
}

void Head::Register(Peer& peer, std::uint64_t call, wire::NodeFacts facts) {
  facts.number = next_number_++;
  facts.incarnation = 1;
  facts.state = State::kAlive;
  facts.why.clear();
  AddNodeIdLabels(facts.name, &facts.labels);
  // Known from now on, so that nobody else takes its name; alive when it is on disk.
  nodes_[facts.number] = facts;
  const NodeNumber number = facts.number;
  Save(facts, [this, number, call, serial = peer.serial](const Status& saved) {
    Peer* to = Find(serial);
    if (!saved.ok() || to == nullptr) {
      nodes_.erase(number);
      if (to == nullptr) return;
      to->connection->Fail(call, saved);
      return to->connection->CloseAfterSending(saved);
    }
    to->number = number;
    rules::MembershipActions actions;
    to->incarnation = membership_.Register(number, base::NowMicros(), &actions);
    serials_[number] = serial;
    Introduce(nodes_[number]);
    Welcome(*to, call);
    Perform(actions);
  });
}

void Head::Return(Peer& peer, std::uint64_t call, const wire::NodeFacts& facts) {
  if (!membership_.Heard(facts.number, facts.incarnation, base::NowMicros())) {
    const auto known = nodes_.find(facts.number);
    const std::string why =
        known == nodes_.end() || known->second.why.empty() ? "nobody here remembers it" : known->second.why;
    return Fence(peer, call, Cat("node ", facts.name, " was declared dead: ", why));
  }
  if (Peer* former = PeerOf(facts.number); former != nullptr) {
    serials_.erase(facts.number);
    peer.draining = std::move(former->draining);  // they wait for the node, not for its connection
    former->connection->Close(Status(Code::kUnavailable, "the node has made a new connection"));
  }
  peer.number = facts.number;
  peer.incarnation = facts.incarnation;
  serials_[facts.number] = peer.serial;
  Welcome(peer, call);
}

void Head::Welcome(Peer& peer, std::uint64_t call) {
  peer.connection->Send(wire::NodeWelcome{peer.number, peer.incarnation, options_.job_quota, options_.wait_us}, call);
  wire::ClusterView view;
  view.whole = true;
  view.schedulers = Schedulers();
  view.job_quota = options_.job_quota;
  for (const auto& [number, facts] : nodes_) {
    if (membership_.Find(number) == nullptr) continue;
    if (facts.lives()) view.nodes.push_back(facts);
    // Nobody may take it for dead yet.
    if (!dying_.contains(number)) continue;
    view.nodes.push_back(facts);
    view.nodes.back().state = State::kSuspect;
  }
  peer.connection->Send(view);
  peer.connection->SendEncoded(groups_.WholeView());
  // It may have come with the token from before a rotation.
  if (!secrets_) return;
  if (const wire::Keys keys = secrets_->keys(); keys.has_previous) peer.connection->Send(MessageOf(keys));
}

void Head::Fence(Peer& peer, std::uint64_t call, const std::string& why) {
  peer.connection->Send(wire::Fenced{false, why}, call);
  peer.connection->CloseAfterSending(Status(Code::kUnavailable, why));
}

// ---- what they say ----

void Head::OnNode(Peer& peer, const wire::Frame& frame) {
  if (peer.replica != 0) return peer.connection->Close(Status(Code::kCorrupt, "a scheduler has nothing to say"));
  if (peer.number == 0) return peer.connection->Close(Status(Code::kCorrupt, "a node spoke before it was welcomed"));
  if (!membership_.Heard(peer.number, peer.incarnation, base::NowMicros())) {
    return Fence(peer, 0, nodes_[peer.number].why);
  }
  if (frame.kind == wire::kHeartbeat) return Heartbeat(peer, frame);
  if (frame.kind == wire::kPlace) return Place(peer, frame);
  if (const Result<wire::Withdraw> withdraw = frame.As<wire::Withdraw>(); withdraw.ok()) {
    return scheduler_.Withdrawn(withdraw.value().ticket);
  }
  if (const Result<wire::Farewell> farewell = frame.As<wire::Farewell>(); farewell.ok()) {
    return Farewell(peer, farewell.value().why);
  }
  const auto answer_to = [this, alive = alive_, serial = peer.serial](std::string answer) {
    if (Peer* to = *alive ? Find(serial) : nullptr; to != nullptr) to->connection->SendEncoded(std::move(answer));
  };
  if (const Result<wire::FindName> find = frame.As<wire::FindName>(); find.ok()) {
    // Of a detached one that is between two homes: when it has the next.
    const Id named = names_.ActorOf(find.value());
    if (kept_.Has(named)) {
      return kept_.WhenHome(named, [this, frame_call = frame.call, find = find.value(), answer_to](const auto& home) {
        if (!home.ok()) return answer_to(wire::EncodeFrame(wire::Failed{ToFailure(home.status())}, frame_call));
        answer_to(names_.Find(find, frame_call));
      });
    }
  }
  if (names_.OnFrame(peer.number, frame, answer_to) || kept_.OnFrame(peer.number, frame, answer_to)) return;
  if (const Result<wire::NodesRequest> request = frame.As<wire::NodesRequest>(); request.ok()) {
    return peer.connection->Send(View(request.value().all), frame.call);
  }
  if (const Result<wire::JobGone> gone = frame.As<wire::JobGone>(); gone.ok()) {
    const std::string job = ToHex(gone.value().job);
    DropValues(Cat("durable/", job, "/"),
               [this, key = Cat("durable-of/", peer.number, "/", job)] { DropValues(key, nullptr); });
  }
  // The answer may have to wait for the disk.
  const bool grouped = groups_.OnFrame(peer.number, frame, [this, serial = peer.serial](std::string answer) {
    if (Peer* to = Find(serial); to != nullptr) to->connection->SendEncoded(std::move(answer));
  });
  if (grouped) return;
  peer.connection->Close(Status(Code::kCorrupt, Cat("message ", int(frame.kind), " makes no sense to the head")));
}

// Of a job that has ended: its durable values (owner/durable.h), one after another. What fails, because the disk is
// full, is tried again: nobody else would do it before the next start.
void Head::DropValues(const std::string& prefix, std::function<void()> then) {
  const auto again = [this, alive = alive_, prefix, then] {
    loop_.After(kDropAgainUs, [this, alive, prefix, then] {
      if (*alive) DropValues(prefix, then);
    });
  };
  tables_.Scan(Table::kObjects, prefix, {}, 1, [this, alive = alive_, prefix, then, again](Result<Page> page) {
    if (!*alive) return;
    if (!page.ok()) return again();
    if (page->entries.empty()) {
      if (then) then();
      return;
    }
    wire::ControlWrite write;
    write.table = Table::kObjects;
    write.key = page->entries.front().key;
    tables_.Write(std::move(write), [this, alive, prefix, then, again](const Result<ControlWritten>& written) {
      if (!*alive) return;
      if (!written.ok()) return again();
      DropValues(prefix, then);
    });
  });
}

// Of the jobs that have ended with their node, however many: one after another, the first that is left each time. That
// a job had it as its home is forgotten last: if this process dies meanwhile, the next one finds the node dead and goes
// on.
void Head::DropValuesOf(NodeNumber home, std::function<void()> then) {
  const std::string prefix = Cat("durable-of/", home, "/");
  tables_.Scan(Table::kObjects, prefix, {}, 1, [this, alive = alive_, home, prefix, then](const Result<Page>& page) {
    if (!*alive) return;
    if (!page.ok()) {
      loop_.After(kDropAgainUs, [this, alive, home, then] {
        if (*alive) DropValuesOf(home, then);
      });
      return;
    }
    if (page.value().entries.empty()) return then();
    const std::string key = page.value().entries.front().key;
    DropValues(Cat("durable/", key.substr(prefix.size()), "/"),
               [this, home, key, then] { DropValues(key, [this, home, then] { DropValuesOf(home, then); }); });
  });
}

void Head::Heartbeat(Peer& peer, const wire::Frame& frame) {
  Result<rules::Heartbeat> heartbeat = frame.BodyAs<rules::Heartbeat>();
  if (!heartbeat.ok()) return peer.connection->Close(heartbeat.status());
  heartbeat->node = peer.number;
  heartbeat->incarnation = peer.incarnation;
  if (!InOffice()) return;
  peer.connection->Send(wire::HeartbeatSeen{heartbeat->sequence});
  if (!std::exchange(peer.heard, true)) kept_.NodeUp(peer.number);
  if (!scheduler_.Heard(*heartbeat)) return;
  if (!schedulers_.empty()) {
    const std::string beat = wire::EncodeFrameOf(wire::kNodeBeat, *heartbeat);
    for (const auto& [replica, serial] : schedulers_) Find(serial)->connection->SendEncoded(beat);
  }
  groups_.Heard(*heartbeat);
  wire::NodeFacts& facts = nodes_[peer.number];
  facts.available = heartbeat->available;
  const State state = heartbeat->draining ? State::kDraining : State::kAlive;
  if (facts.state == state && facts.total == heartbeat->total && facts.labels == heartbeat->labels) return;
  facts.state = state;
  facts.total = heartbeat->total;
  facts.labels = heartbeat->labels;
  Save(facts, nullptr);
  Tell({facts});
}

void Head::Place(Peer& peer, const wire::Frame& frame) {
  Result<rules::PlaceRequest> request = frame.BodyAs<rules::PlaceRequest>();
  if (!request.ok()) return peer.connection->Close(request.status());
  request->from = peer.number;
  if (!request->node.empty()) {
    for (const auto& [number, facts] : nodes_) {
      if (facts.lives() && NamesNode(request->node, facts.name, number)) request->affinity = number;
    }
  }
  const Result<std::vector<rules::Placement>> placed = scheduler_.Place(*request, base::NowMicros());
  if (!placed.ok()) return peer.connection->Fail(frame.call, placed.status());
  peer.connection->SendEncoded(wire::EncodeFrameOf(wire::kPlaced, placed.value(), frame.call));
}

void Head::Farewell(Peer& peer, const std::string& why) {
  rules::MembershipActions actions;
  membership_.Left(peer.number, peer.incarnation, &actions);
  nodes_[peer.number].state = State::kLeft;
  nodes_[peer.number].why = why;
  Perform(actions);
}

void Head::OnTool(Peer& peer, const wire::Frame& frame) {
  if (const Result<wire::NodesRequest> request = frame.As<wire::NodesRequest>(); request.ok()) {
    return peer.connection->Send(View(request.value().all), frame.call);
  }
  if (const Result<wire::Drain> drain = frame.As<wire::Drain>(); drain.ok()) {
    return Drain(peer, frame.call, drain.value().node);
  }
  if (frame.As<wire::StopCluster>().ok()) {
    for (const auto& [number, serial] : serials_) {
      Find(serial)->connection->Send(wire::Fenced{true, "the cluster was stopped"});
    }
    for (const auto& [replica, serial] : schedulers_) {
      Find(serial)->connection->Send(wire::Fenced{true, "the cluster was stopped"});
    }
    peer.connection->Send(wire::Done{}, frame.call);
    stopping_ = true;
    kept_.ForgetAll();
    stop_timer_ = loop_.After(kStopUs, [this] {
      stop_timer_ = 0;
      if (on_stop_) on_stop_();
    });
    return StopIfAlone();
  }
  peer.connection->Close(Status(Code::kCorrupt, Cat("message ", int(frame.kind), " is not for the head")));
}

wire::ClusterView Head::View(bool all) const {
  wire::ClusterView view;
  view.whole = true;
  view.schedulers = Schedulers();
  view.job_quota = options_.job_quota;
  for (const auto& [number, facts] : nodes_) {
    const rules::Membership::Node* known = membership_.Find(number);
    if (known == nullptr || (!facts.lives() && !all)) continue;
    view.nodes.push_back(facts);
    if (facts.state == State::kAlive && known->phase == rules::NodePhase::kSuspect) {
      view.nodes.back().state = State::kSuspect;
    }
  }
  return view;
}

void Head::StopIfAlone() {
  if (!stopping_ || !serials_.empty() || stop_timer_ == 0) return;
  loop_.Cancel(std::exchange(stop_timer_, 0));
  if (on_stop_) on_stop_();
}

void Head::Drain(Peer& tool, std::uint64_t call, const std::string& node) {
  for (const auto& [number, facts] : nodes_) {
    if (!facts.lives() || (facts.name != node && std::to_string(number) != node)) continue;
    Peer* peer = PeerOf(number);
    if (peer == nullptr) {
      return tool.connection->Fail(
          call, Status(Code::kUnavailable, Cat("node ", facts.name, " is not connected at the moment; try again")));
    }
    peer->draining.emplace_back(tool.serial, call);
    peer->connection->Send(wire::Drain{node});
    return;
  }
  tool.connection->Fail(call, Status(Code::kNotFound, Cat("no living node has the name or number '", node,
                                                          "'; `manta nodes` shows them")));
}

// ---- what follows from it ----

void Head::Perform(const rules::MembershipActions& actions) {
  for (const rules::MembershipAction& action : actions) {
    if (const auto* up = std::get_if<rules::NodeCameUp>(&action)) {
      nodes_[up->node].incarnation = up->incarnation;
      base::LogInfo("node %s (number %u) joined, at %s", nodes_[up->node].name.c_str(), up->node,
                    nodes_[up->node].address.c_str());
      Tell({nodes_[up->node]});
    } else if (const auto* probe = std::get_if<rules::ProbeNode>(&action)) {
      if (Peer* peer = PeerOf(probe->node); peer != nullptr) peer->connection->Send(wire::Probe{});
    } else if (const auto* died = std::get_if<rules::NodeDied>(&action)) {
      Died(died->node, died->why);
    }
  }
}

void Head::Died(NodeNumber number, const std::string& why) {
  wire::NodeFacts& facts = nodes_[number];
  if (facts.state != State::kLeft) {
    facts.state = State::kDead;
    facts.why = why;
  }
  base::LogWarning("node %s (number %u) %s: %s", facts.name.c_str(), number,
                   facts.state == State::kLeft ? "left" : "died", facts.why.c_str());
  scheduler_.NodeDown(number);
  dying_.insert(number);
  Save(facts, [this, number](const Status& saved) { Buried(number, saved); });
  if (Peer* peer = PeerOf(number); peer != nullptr) {
    serials_.erase(number);
    for (const auto& [serial, call] : std::exchange(peer->draining, {})) {
      if (Peer* tool = Find(serial); tool != nullptr) tool->connection->Send(wire::Done{}, call);
    }
    if (facts.state == State::kDead) {
      Fence(*peer, 0, why);
    } else {
      peer->connection->CloseAfterSending({});
    }
  }
  StopIfAlone();
}

void Head::Buried(NodeNumber number, const Status& saved) {
  if (!saved.ok()) {
    loop_.After(kSaveAgainUs, [this, alive = alive_, number] {
      if (*alive) Save(nodes_[number], [this, number](const Status& again) { Buried(number, again); });
    });
    // Whoever is the head after us decides by the tables, so they come first. A disk of our own that is full is no
    // reason to leave the work undone.
    if (options_.until_us) return;
  }
  if (dying_.erase(number) == 0) return;  // it was done already
  names_.NodeGone(number, [this](const Id& actor) { return kept_.Has(actor); });
  groups_.NodeDown(number);
  DropValuesOf(number, [] {});
  Tell({nodes_[number]});
  if (!stopping_) kept_.NodeGone(number, nodes_[number].why);
}

void Head::Tell(const std::vector<wire::NodeFacts>& changed) {
  const std::string frame = wire::EncodeFrame(wire::ClusterView{false, changed, Schedulers(), options_.job_quota});
  for (const auto& [number, serial] : serials_) Find(serial)->connection->SendEncoded(frame);
  for (const auto& [replica, serial] : schedulers_) Find(serial)->connection->SendEncoded(frame);
}

void Head::ShareToken(std::shared_ptr<wire::Secrets> secrets) {
  secrets_ = std::move(secrets);
  told_ = secrets_->keys().token;
}

void Head::TellToken() {
  if (!secrets_) return;
  const wire::Keys keys = secrets_->keys();
  if (wire::SameSecret(keys.token, told_)) return;
  told_ = keys.token;
  const std::string frame = wire::EncodeFrame(MessageOf(keys));
  for (const auto& [number, serial] : serials_) Find(serial)->connection->SendEncoded(frame);
}

void Head::Save(const wire::NodeFacts& facts, std::function<void(const Status&)> done) {
  wire::ControlWrite write;
  write.table = Table::kNodes;
  write.key = KeyOf(facts.number);
  wire::NodeFacts record = facts;
  record.available = {};
  write.value = Encoded(record);
  ++saving_;
  tables_.Write(std::move(write),
                [this, alive = alive_, done = std::move(done)](const Result<ControlWritten>& written) {
                  if (!*alive) return;
                  --saving_;
                  // It is tried again until it is saved, and said once.
                  if (!written.ok() && unsaved_ != written.status().message())
                    base::LogWarning("cannot save a node: %s", written.status().message().c_str());
                  unsaved_ = written.status().message();
                  if (done) done(written.status());
                });
}

}  // namespace manta::control
