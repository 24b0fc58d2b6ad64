#include "node/daemon.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "shm/arena.h"
#include "store/pins.h"
#include "wire/local_connect.h"

namespace manta::node {
namespace {

constexpr std::size_t kPrestart = 4;
constexpr std::int64_t kResumeLookUs = 20'000;

static_assert(shm::kPinBoardOffset + store::PinBoard::kBytes <= shm::kChunksOffset);

std::size_t Cpus(const Resources& total) {
  return static_cast<std::size_t>(std::max<std::int64_t>(total.Get("CPU") / kUnit, 1));
}

WorkerPool::Limits LimitsOf(const Config& config) {
  WorkerPool::Limits limits = config.pool;
  limits.idle = Cpus(config.total);
  return limits;
}

store::KeeperConfig KeeperConfigOf(const Config& config, shm::NodeArea& area) {
  store::KeeperConfig keeper;
  keeper.node = config.node;
  keeper.capacity = config.store_bytes;
  keeper.spill_folder = config.spill_folder;
  keeper.disk = shm::DiskShare(config.spill_limit, area, kNoProcess);
  return keeper;
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::Create(Config config) {
  if (config.address.empty()) config.address = Cat("@manta-", getuid(), "-", getpid());
  if (config.cluster.head.empty()) AddNodeIdLabels(config.node, &config.labels);  // in a cluster the head does it
  Result<std::unique_ptr<base::Loop>> loop = base::Loop::Create();
  if (!loop.ok()) return loop.status();
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  Result<shm::NodeArea> area = shm::NodeArea::Create(static_cast<std::uint32_t>(std::max(cores, 1L)));
  if (!area.ok()) return area.status();
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(config), std::move(*loop), std::move(*area)));
  if (Status status = daemon->JoinCluster(); !status.ok()) return status;
  if (Status status = daemon->Listen(); !status.ok()) return status;
  return daemon;
}

Daemon::Daemon(Config config, std::unique_ptr<base::Loop> loop, shm::NodeArea area)
    : config_(std::move(config)),
      started_us_(base::NowMicros()),
      loop_(std::move(loop)),
      area_(std::move(area)),
      peers_(*loop_),
      pool_(*loop_, peers_, LimitsOf(config_),
            WorkerPool::Events{
                [this](Peer& peer, wire::Frame& frame) { OnFrame(peer, frame); },
                [this](Worker& worker, const Failure& failure) { WorkerDied(worker, failure); },
                [this](const Id& job, std::vector<wire::LogLine> lines) { SendLines(job, std::move(lines)); },
                [this](const Id& job) { return ReadyForLines(job); },
                [this](const Worker& worker) { return IsRunning(worker); },
                [this](const Worker& worker) {
                  const shm::Doorbell& bell = area_.bell(worker.process());
                  return bell.submitted.load() == bell.completed.load() && !directory_.Involved(worker.process());
                },
            }),
      leases_(*loop_, peers_, pool_, area_, config_.node, config_.total),
      quotas_(*loop_, leases_),
      directory_(peers_),
      actors_(peers_, pool_, leases_, directory_),
      groups_(*loop_, peers_, leases_, [this](const Id& job) { return jobs_.contains(job); }),
      placer_(peers_, leases_, groups_, Placer::Self{config_.node, config_.labels}),
      keeper_(KeeperConfigOf(config_, area_)),
      lineage_(area_.bell(kNoProcess)) {
  actors_.UsePlacer(placer_);
  groups_.SetLabels(config_.labels);
  groups_.OnQuota([this](const Id& job, NodeNumber home, const Resources& quota) { quotas_.AddFar(job, home, quota); });
  keeper_.SetOnWarning([](const std::string& text) { base::LogWarning("%s", text.c_str()); });
  loop_->AfterRound([this] { EndRound(); });
}

Daemon::~Daemon() {
  listener_.reset();
  loop_->Cancel(drain_timer_);
  // The pool's last words would go to members that are destroyed before it: end it all here.
  std::vector<Id> ids;
  ids.reserve(jobs_.size());
  for (const auto& [id, job] : jobs_) ids.push_back(id);
  for (const Id& id : ids) pool_.RemoveJob(id);
  StopSharing();
}

Status Daemon::Listen() {
  Result<std::unique_ptr<wire::LocalListener>> listener = wire::LocalListener::Listen(
      *loop_, config_.address, "mantad", [this](base::Fd socket) { Accept(std::move(socket)); });
  if (!listener.ok()) return listener.status();
  listener_ = std::move(*listener);
  if (config_.private_fd < 0) return {};
  base::Fd socket(fcntl(config_.private_fd, F_DUPFD_CLOEXEC, 3));
  if (!socket.valid() || fcntl(socket.get(), F_SETFL, O_NONBLOCK) != 0) {
    return Status(Code::kInvalid, Cat("--private-fd ", config_.private_fd, ": ", std::strerror(errno)));
  }
  if (Status status = wire::CheckPeerUser(socket.get(), Cat("--private-fd ", config_.private_fd)); !status.ok()) {
    return status;
  }
  close(config_.private_fd);
  Result<Peer*> peer = peers_.Add(
      std::move(socket), [this](Peer& from, wire::Frame& frame) { OnFrame(from, frame); },
      [this](Peer& from, const Status& why) { OnClosed(from, why); });
  if (!peer.ok()) return peer.status();
  private_peer_ = (*peer)->serial;
  return {};
}

void Daemon::Accept(base::Fd socket) {
  const Result<Peer*> peer = peers_.Add(
      std::move(socket), [this](Peer& from, wire::Frame& frame) { OnFrame(from, frame); },
      [this](Peer& from, const Status& why) { OnClosed(from, why); });
  if (!peer.ok()) base::LogWarning("%s", peer.status().message().c_str());
}

void Daemon::OnFrame(Peer& peer, wire::Frame& frame) {
  if (!peer.welcomed && peer.waits_until_us == 0) {
    Hello(peer, frame);
  } else if (!peer.welcomed || frame.kind == wire::Kind::kHello) {
    peer.connection->Close(
        Status(Code::kCorrupt, peer.welcomed ? "Hello was said twice" : "it spoke before it was welcomed"));
  } else {
    Dispatch(peer, frame);
  }
}

void Daemon::Hello(Peer& peer, wire::Frame& frame) {
  if (frame.kind != wire::Kind::kHello) {
    return peer.connection->Close(Status(Code::kCorrupt, "the first message was not Hello"));
  }
  const Result<wire::Hello> hello = frame.As<wire::Hello>();
  if (!hello.ok()) return Refuse(peer, frame.call, hello.status());
  if (hello.value().version != wire::kVersion) {
    return Refuse(peer, frame.call,
                  Status(Code::kUnavailable, Cat("process ", hello.value().pid, " speaks version ",
                                                 hello.value().version, " of Manta's protocol, this daemon version ",
                                                 wire::kVersion, ": both must come from the same release")));
  }
  bool job_lives = false;
  if (const Status status = Join(peer, hello.value(), frame.fds, &job_lives); !status.ok()) {
    if (!job_lives || !hello.value().resume) return Refuse(peer, frame.call, status);
    const std::int64_t now = base::NowMicros();
    if (peer.waits_until_us == 0) peer.waits_until_us = now + config_.resume_us;
    if (now >= peer.waits_until_us) {
      return Refuse(peer, frame.call,
                    Status(status.code(), Cat(status.message(), "; waited ", config_.resume_us / 1000,
                                              " ms in case that it had just crashed")));
    }
    // Whoever resumes comes right after a crash, which its daemon has yet to see.
    loop_->After(kResumeLookUs, [this, serial = peer.serial, again = std::make_shared<wire::Frame>(std::move(frame))] {
      const auto it = peers_.all().find(serial);
      if (it != peers_.all().end()) Hello(*it->second, *again);
    });
    return;
  }
  wire::Welcome welcome;
  welcome.process = peer.process;
  FillWelcome(peer, &welcome);
  peer.connection->Send(welcome, frame.call, {area_.fd()});
  if (peer.worker != nullptr) pool_.Started(*peer.worker);
  if (peer.role == wire::Role::kDriver) pool_.Prestart(peer.job, std::min(Cpus(config_.total), kPrestart));
}

void Daemon::Refuse(Peer& peer, std::uint64_t call, const Status& why) {
  peer.connection->Fail(call, why);
  peer.connection->CloseAfterSending(why);
}

Status Daemon::Join(Peer& peer, const wire::Hello& hello, std::vector<base::Fd>& fds, bool* job_lives) {
  if (ending_) return Status(Code::kUnavailable, "the node is shutting down");
  if ((hello.role == wire::Role::kWorker) != (peer.worker != nullptr)) {
    return Status(Code::kInvalid, "only what the daemon itself had forked can be a worker");
  }
  peer.role = hello.role;
  peer.pid = hello.pid;
  if (hello.role == wire::Role::kTool) {
    peer.welcomed = true;
    return {};
  }
  if (hello.role != wire::Role::kDriver && hello.role != wire::Role::kWorker) {
    return Status(Code::kCorrupt, "Hello names no known role");
  }
  const std::size_t wanted = hello.role == wire::Role::kDriver ? 2 : 1;
  if (fds.size() != wanted) {
    return Status(Code::kCorrupt, Cat("Hello came with ", fds.size(), " descriptors instead of ", wanted));
  }
  // Its size is sealed, or it could be cut under the mapping and end this process.
  const int seals = fcntl(fds[0].get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status(Code::kCorrupt, "a descriptor that should be a process's arena is something else");
  }
  Result<shm::Mapping> pins = shm::Mapping::Of(fds[0].get(), 0, shm::kChunksOffset, true);
  if (!pins.ok()) return pins.status();
  if (hello.role == wire::Role::kDriver && (hello.job.empty() || jobs_.contains(hello.job))) {
    return Status(Code::kInvalid, "the job's id is empty or taken");
  }
  Id job = peer.worker != nullptr ? peer.worker->job : hello.job;
  bool resumed = false;
  if (hello.role == wire::Role::kDriver && !hello.job_name.empty()) {
    if (Status s = OpenLineage(hello, &job, &resumed, job_lives); !s.ok()) return s;
  }
  if (!peers_.Number(peer)) {
    return Status(Code::kUnavailable,
                  Cat("the node has ", kMaxProcesses - 1, " processes already; wait for some to end"));
  }
  peer.arena = std::move(fds[0]);
  peer.pins = std::move(*pins);
  peer.welcomed = true;
  peer.job = job;
  area_.Reset(peer.process);
  keeper_.ProcessJoined(peer.process, peer.pins.data() + shm::kPinBoardOffset);
  if (hello.role == wire::Role::kDriver) {
    AddJob(peer, hello, std::move(fds[1]));
    jobs_[job].resumed = resumed;
  }
  return lineage_.AddOwner(peer.job, peer.process, peer.arena.get());
}

void Daemon::OnClosed(Peer& peer, const Status& why) {
  if (!why.ok()) {
    base::LogWarning("the connection of process %u was closed: %s", peer.pid, why.message().c_str());
  }
  const bool was_private = peer.serial == private_peer_;
  if (peer.process != kNoProcess) {
    const Id job = peer.job;
    ProcessGone(peer, Cat("driver ", peer.pid));
    if (const auto it = jobs_.find(job); it != jobs_.end()) {
      it->second.driver = kNoProcess;
      it->second.goodbye = 0;
      EndJob(it->second);
    }
  }
  peers_.Remove(peer);
  if (was_private) Shutdown();
}

void Daemon::ProcessGone(Peer& peer, const std::string& who) {
  const ProcessId process = peer.process;
  if (process == kNoProcess) return;
  if (nodes_ != nullptr) {
    // Before they hear that it is gone, for which they would free all that was its.
    for (auto& [node, objects] : directory_.StoredElsewhere(process)) {
      if (nodes_->Knows(node)) nodes_->Send(node, wire::FarKeep{std::move(objects)});
    }
  }
  leases_.OwnerDied(process);
  placer_.OwnerDied(process);
  groups_.ProcessDied(process);
  if (far_ != nullptr) far_->OwnerDied(process);
  actors_.ProcessDied(process);
  if (far_actors_ != nullptr) far_actors_->ProcessDied(process);
  directory_.ProcessDied(process, who);
  keeper_.ProcessDied(process, [this](const Id& id) { return Needed(id); }, base::NowMicros());
  if (transfers_) transfers_->OwnerGone(process, [this](const Id& id) { return Needed(id); });
  lineage_.OwnerGone(process);
  finished_ += area_.bell(process).ran.load();
  area_.Reset(process);
  rouse_ = true;  // it may have died while it rang for somebody
}

void Daemon::EndRound() {
  bool again = false;
  if (std::exchange(rouse_, false)) {
    for (const auto& [serial, peer] : peers_.all()) {
      if (peer->process != kNoProcess) area_.RouseDeaf(peer->process);
    }
  }
  if (directory_.HasLettingGo()) {
    directory_.BeginLettingGo();
    loop_->Drain();
    directory_.ApplyLettingGo([this](const std::vector<Id>& ids, const std::vector<Place>& places) {
      std::vector<Id> objects;
      std::vector<Place> at;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (actors_.HandlesGone(ids[i])) continue;
        objects.push_back(ids[i]);
        at.push_back(places[i]);
      }
      if (!objects.empty()) FreeObjects(objects, at);
    });
    again = directory_.HasLettingGo();
  }
  directory_.Flush();
  groups_.EndRound();
  quotas_.EndRound();
  leases_.EndRound();
  if (far_ != nullptr) far_->EndRound();
  const std::int64_t due = keeper_.NextTick();
  if (due != keeper_due_us_ || (due >= 0 && keeper_timer_ == 0)) {
    loop_->Cancel(keeper_timer_);
    keeper_timer_ = 0;
    keeper_due_us_ = due;
    if (due >= 0) {
      keeper_timer_ = loop_->After(std::max<std::int64_t>(due - base::NowMicros(), 0), [this] {
        keeper_timer_ = 0;
        keeper_.Tick(base::NowMicros());
      });
    }
  }
  if (again || directory_.HasLettingGo()) loop_->After(0, [] {});
}

}  // namespace manta::node
