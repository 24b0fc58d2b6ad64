// What the daemon does as a node of a cluster.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>

#include "base/clock.h"
#include "base/log.h"
#include "node/daemon.h"
#include "node/linked_nodes.h"
#include "store/pins.h"
#include "wire/address.h"
#include "wire/cancel_messages.h"

namespace manta::node {
namespace {

constexpr std::int64_t kDrainLookUs = 10'000;

// Beside this daemon's own executable.
std::string LibraryFolder() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  const std::string self(path, size > 0 ? static_cast<std::size_t>(size) : 0);
  return self.substr(0, self.rfind('/') + 1) + MANTA_BIN_TO_LIB;
}

}  // namespace

Status Daemon::JoinCluster() {
  if (config_.cluster.head.empty()) return {};
  Result<std::unique_ptr<Cluster>> made = Cluster::Create(*loop_, config_.cluster);
  if (!made.ok()) return made.status();
  cluster_ = std::move(*made);
  groups_.Join(*cluster_);
  quotas_.Join(*cluster_);
  placer_.Join(*cluster_, Placer::Patience{config_.infeasible_us, [this](const Id& job, const std::string& line) {
                                             SendLines(job, {wire::LogLine{static_cast<std::uint32_t>(getpid()), true,
                                                                           "mantad", line}});
                                           }});
  programs_ = std::make_unique<Programs>(*loop_, cluster_->links());
  far_ = std::make_unique<FarLeases>(
      *loop_, *cluster_, peers_, leases_, *programs_, placer_,
      FarLeases::Host{
          [this](const Id& job) { return !JobIsEnding(job); },
          [this](const wire::JobFacts& facts, base::Fd executable) { AddFarJob(facts, std::move(executable)); },
          [this] { return StandIn(); },
          [this](ProcessId stand_in) { StandInGone(stand_in); },
          [this](const Id& job) { return JobIsEnding(job) ? nullptr : &jobs_.find(job)->second.facts; },
          [this](const Id& job) { return EndFarJob(job); },
          [this](const Id& job) { CheckJob(job); },
          [this](ProcessId stand_in, const wire::KillWorker& order) {
            const Worker* worker = pool_.FindByProcess(order.worker);
            if (worker != nullptr && leases_.OwnerOf(*worker) == stand_in) KillWorkerOf(stand_in, order);
          },
      });
  guests_ = std::make_unique<Guests>(*cluster_, peers_, pool_, leases_, *far_, placer_, actors_);
  far_actors_ = std::make_unique<FarActors>(
      FarActors::Parts{*loop_, *cluster_, peers_, leases_, directory_, *programs_, *far_, placer_, actors_, *guests_},
      FarActors::Host{
          [this](const Id& job) { return JobIsEnding(job) ? nullptr : &jobs_.find(job)->second.facts; },
          [this](const Id& job, const wire::JobFacts& creators, base::Fd executable) {
            AddDetachedJob(job, creators, std::move(executable));
          },
          [this](const Id& job) { CheckJob(job); },
          [this](const Id& job) { return jobs_.contains(job); },
      });
  actors_.Join(*far_actors_, Actors::GuestEvents{
                                 [this](const Id& actor, std::uint64_t lease, const std::vector<std::uint32_t>& gpus) {
                                   guests_->Granted(actor, lease, gpus);
                                 },
                                 [this](const Id& actor, const Failure& why) { guests_->Evict(actor, why); },
                             });
  cluster_->links().On<wire::FarLogLines>([this](NodeNumber, wire::FarLogLines& message, std::uint64_t) {
    SendLines(message.job, std::move(message.lines.lines));
  });
  cluster_->links().On<wire::FarCancelObject>([this](NodeNumber, const wire::FarCancelObject& message, std::uint64_t) {
    peers_.Send(message.order.owner, message.order);
  });
  cluster_->links().On<wire::FarAdopt>(
      [this](NodeNumber from, const wire::FarAdopt& message, std::uint64_t call) { Adopt(from, call, message); });
  ConnectObjects(cluster_->links(), *this);
  cluster_->OnTransfer([this](wire::Link link) {
    if (transfers_) transfers_->Accepted(std::move(link));
  });
  wire::NodeFacts facts;
  facts.name = config_.node;
  facts.local = config_.address;
  facts.total = config_.total;
  facts.labels = config_.labels;
  facts.store_bytes = config_.store_bytes;
  Cluster::Events events;
  events.load = [this] {
    rules::Heartbeat heartbeat;
    far_->Describe(&heartbeat);
    if (transfers_) {
      const Transfers::Speed speed = transfers_->TakeSpeed();
      heartbeat.fetched_bytes = speed.bytes;
      heartbeat.fetched_us = speed.us;
    }
    return heartbeat;
  };
  events.changed = [this](const wire::NodeFacts& node) { NodeChanged(node); };
  events.fenced = [this](bool stop, const std::string& why) { Fenced(stop, why); };
  events.still = [this](bool still) { pool_.SignalAll(still ? SIGSTOP : SIGCONT); };
  events.drain = [this] { Drain(); };
  events.groups = [this](const wire::Frame& frame) {
    return groups_.OnHeadFrame(frame) || far_actors_->OnHeadFrame(frame);
  };
  if (Status status = cluster_->Join(std::move(facts), std::move(events), config_.join_us); !status.ok()) return status;
  config_.node = cluster_->self().name;
  config_.labels = cluster_->self().labels;
  peers_.SetNode(cluster_->self().number);
  linked_ = std::make_unique<LinkedNodes>(cluster_->links());
  TransferOptions options;
  options.secrets = cluster_->secrets();
  return ShareObjects(*linked_, std::move(options));
}

void Daemon::FillWelcome(const Peer& peer, wire::Welcome* welcome) const {
  if (const auto it = jobs_.find(peer.job); it != jobs_.end()) {
    welcome->space = it->second.space;
    welcome->resumed = it->second.resumed;
  }
  welcome->job = peer.job;
  welcome->lineage = lineage_.FolderOf(peer.job);
  welcome->quota = QuotaOfJob(peer.job);
  welcome->total = config_.total;
  welcome->store_bytes = config_.store_bytes;
  welcome->lineage_memory = config_.lineage_memory;
  welcome->spill = config_.spill_folder;
  welcome->spill_limit = config_.spill_limit;
  welcome->node = config_.node;
  welcome->address = config_.address;
  if (cluster_ == nullptr) return;
  welcome->total = cluster_->LargestTotal();
  welcome->number = cluster_->self().number;
  welcome->secrets = cluster_->secrets()->folder();
  welcome->head = cluster_->config().head;
  // The same interface as the node's own port, and any free port of it.
  const Result<wire::Address> own = wire::ParseAddress(cluster_->self().address);
  welcome->listen = own.ok() ? wire::ToString(wire::Address{own.value().host, 0}) : "127.0.0.1:0";
  welcome->tls = cluster_->config().tls;
}

void Daemon::NodeChanged(const wire::NodeFacts& node) {
  if (node.lives()) {
    if (node.number == cluster_->self().number) far_actors_->HeadIsBack();
    return;
  }
  std::vector<Id> ended;
  for (const auto& [id, job] : jobs_) {
    if (job.far && job.facts.home == node.number) ended.push_back(id);
  }
  for (const Id& id : ended) {
    cluster_->Tell(wire::JobGone{id});  // who would have said so is gone
    EndFarJob(id);
  }
  if (node.number != cluster_->self().number) quotas_.NodeGone(node.number);
}

void Daemon::Fenced(bool stop, const std::string& why) {
  base::LogWarning("%s ends: %s", config_.node.c_str(), why.c_str());
  if (!stop) fenced_ = why;
  Shutdown();
}

void Daemon::Drain() {
  if (ending_ || drain_timer_ != 0) return;
  base::LogInfo("%s is being drained", config_.node.c_str());
  far_->StartDraining();
  groups_.StartDraining();
  drain_timer_ = loop_->Every(kDrainLookUs, [this] { LeaveWhenDrained(); });
}

// When nobody here has anything to do any more: no lease, no actor, no driver.
void Daemon::LeaveWhenDrained() {
  if (ending_) return;
  guests_->MoveAway();
  far_actors_->LeaveHomes();
  const bool drivers =
      std::any_of(jobs_.begin(), jobs_.end(), [](const auto& entry) { return entry.second.driver != kNoProcess; });
  if (drivers || actors_.living() > 0 || !leases_.queue().leases().empty() || !far_->Quiet()) return;
  if (!std::exchange(moving_, true)) return MoveObjects();
  if (movers_ == 0) Shutdown();
}

void Daemon::MoveObjects() {
  std::map<NodeNumber, wire::FarAdopt> orders;
  std::uint64_t bytes = 0;
  for (const auto& [stand_in, owner] : far_->Owners()) {
    // To the owner's node: it is the one that knows of copies, and likely to need it.
    const wire::NodeFacts* node = cluster_->Find(NodeOf(owner));
    if (node == nullptr) continue;
    wire::FarAdopt& order = orders[NodeOf(owner)];
    for (const auto& [object, place] : keeper_.ObjectsOf(stand_in)) {
      order.objects.push_back(object);
      order.places.push_back(place);
      order.owners.push_back(owner);
      bytes += place.size;
    }
  }
  std::erase_if(orders, [](const auto& entry) { return entry.second.objects.empty(); });
  if (orders.empty()) return;
  base::LogInfo("%s moves %s to their owners' nodes", config_.node.c_str(), Bytes(bytes).c_str());
  movers_ = orders.size();
  for (const auto& [node, order] : orders) {
    cluster_->links().Call<wire::Done>(node, order, [this, number = node](const Result<wire::Done>& moved) {
      --movers_;
      if (moved.ok()) return;
      base::LogWarning("%s: node %s did not take over all it owns: %s", config_.node.c_str(),
                       cluster_->NameOf(number).c_str(), moved.status().message().c_str());
    });
  }
}

void Daemon::Adopt(NodeNumber from, std::uint64_t call, const wire::FarAdopt& message) {
  const std::size_t count =
      std::min({message.objects.size(), message.places.size(), message.owners.size(), std::size_t{1} << 24});
  struct Progress {
    std::size_t left = 0;
    Status failure;
  };
  const auto progress = std::make_shared<Progress>();
  progress->left = count + 1;
  const auto done = [this, progress, from, call](const Status& status) {
    if (!status.ok() && progress->failure.ok()) progress->failure = status;
    if (--progress->left > 0) return;
    if (progress->failure.ok()) return cluster_->links().Answer(from, call, wire::Done{});
    cluster_->links().Fail(from, call, progress->failure);
  };
  for (std::size_t i = 0; i < count && transfers_; ++i) {
    keeper_.Adopt(message.objects[i]);
    transfers_->Fetch(message.objects[i], message.places[i], message.owners[i],
                      [done](const Result<Place>& place) { done(place.status()); });
  }
  if (!transfers_) progress->left = 1;
  done({});
}

// ---- owners and jobs of other nodes ----

ProcessId Daemon::StandIn() {
  const ProcessId process = peers_.Reserve();
  if (process == kNoProcess) return kNoProcess;
  std::unique_ptr<std::byte[]> board = std::make_unique<std::byte[]>(store::PinBoard::kBytes);
  area_.Reset(process);
  keeper_.ProcessJoined(process, board.get());
  boards_[process] = std::move(board);
  return process;
}

void Daemon::StandInGone(ProcessId stand_in) {
  directory_.ProcessDied(stand_in, "an owner on another node");
  keeper_.ProcessDied(stand_in, [this](const Id& id) { return Needed(id); }, base::NowMicros());
  area_.Reset(stand_in);
  boards_.erase(stand_in);
  peers_.Release(stand_in);
}

Program Daemon::ProgramOf(const wire::JobFacts& facts, base::Fd executable) {
  Program program;
  program.path = facts.program;
  program.executable = std::move(executable);
  program.arguments = facts.arguments;
  program.environment = facts.environment;
  if (!facts.directory.empty()) {
    program.directory.Reset(open(facts.directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  if (facts.file.empty()) {
    // It is not beside its libraries any more ($ORIGIN): Manta's own is here, too.
    constexpr std::string_view kName = "LD_LIBRARY_PATH=";
    const auto it = std::find_if(program.environment.begin(), program.environment.end(),
                                 [&](const std::string& entry) { return entry.starts_with(kName); });
    if (it == program.environment.end()) {
      program.environment.push_back(Cat(kName, LibraryFolder()));
    } else {
      *it += Cat(":", LibraryFolder());
    }
  }
  return program;
}

void Daemon::AddFarJob(const wire::JobFacts& facts, base::Fd executable) {
  Job& job = jobs_[facts.job];
  job.id = facts.job;
  job.facts = facts;
  job.space = facts.space;
  job.quota = facts.quota;
  job.far = true;
  quotas_.AddFar(facts.job, facts.home, facts.quota);
  pool_.AddJob(facts.job, ProgramOf(facts, std::move(executable)));
}

void Daemon::AddDetachedJob(const Id& id, const wire::JobFacts& creators, base::Fd executable) {
  Job& job = jobs_[id];
  job.id = id;
  job.facts = creators;
  job.facts.job = id;
  job.facts.home = cluster_->self().number;
  job.facts.file.clear();
  job.program = creators.program;
  job.quota = MostForAJob();
  job.facts.quota = job.quota;
  quotas_.AddHome(id, job.quota);
  job.space = creators.space;
  job.output_job = creators.job;
  job.output_node = creators.home;
  programs_->AddJob(job.facts, executable.get());
  // A file of this machine lies beside its libraries.
  wire::JobFacts facts = creators;
  if (facts.home == cluster_->self().number) facts.file = facts.program;
  pool_.AddJob(id, ProgramOf(facts, std::move(executable)));
}

bool Daemon::EndFarJob(const Id& id) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end() || !it->second.far) return false;
  EndJob(it->second);
  return true;
}

namespace {

// Output whose program has ended, of a detached actor say: this node's log is where it can still be read.
void LogOutput(const std::vector<wire::LogLine>& lines) {
  for (const wire::LogLine& line : lines) {
    base::LogInfo("(%s pid=%u) %s", line.label.empty() ? "worker" : line.label.c_str(), line.pid, line.text.c_str());
  }
}

}  // namespace

void Daemon::SendLines(const Id& job, std::vector<wire::LogLine> lines) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return LogOutput(lines);
  if (!it->second.output_job.empty() && it->second.output_node != cluster_->self().number) {
    if (cluster_->Find(it->second.output_node) == nullptr) return LogOutput(lines);
    return cluster_->links().Send(it->second.output_node,
                                  wire::FarLogLines{it->second.output_job, wire::LogLines{std::move(lines)}});
  }
  if (!it->second.output_job.empty()) return SendLines(it->second.output_job, std::move(lines));
  if (!it->second.far) {
    if (peers_.Find(it->second.driver) == nullptr) return LogOutput(lines);
    return peers_.Send(it->second.driver, wire::LogLines{std::move(lines)});
  }
  if (cluster_->Find(it->second.facts.home) == nullptr) return LogOutput(lines);
  cluster_->links().Send(it->second.facts.home, wire::FarLogLines{job, wire::LogLines{std::move(lines)}});
}

bool Daemon::ReadyForLines(const Id& job) const {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return true;
  if (it->second.far) {
    return cluster_->links().Backlog(it->second.facts.home) < wire::Connection::kMaxOutgoing / 8;
  }
  const Peer* driver = peers_.Find(it->second.driver);
  return driver == nullptr || driver->connection->outgoing_bytes() < wire::Connection::kMaxOutgoing / 8;
}

}  // namespace manta::node
