// What each message of a welcomed process does: most go to one of the daemon's parts.
#include <unistd.h>

#include <csignal>
#include <vector>

#include "base/clock.h"
#include "node/daemon.h"
#include "shm/lane.h"
#include "wire/cancel_messages.h"

namespace manta::node {
namespace {

// Decodes, then handles; a message that does not decode ends the connection.
template <typename M, typename Handle>
void On(Peer& peer, const wire::Frame& frame, const Handle& handle) {
  const Result<M> message = frame.As<M>();
  if (!message.ok()) return peer.connection->Close(message.status());
  handle(message.value());
}

constexpr std::int64_t kStackUs = 200'000;  // for a worker to print its stack
constexpr std::int64_t kKillAgainUs = 1'000;
constexpr int kKillTries = 20;

// The workers of this node that serve this one, those that serve them, and so on: tasks that it has called.
void KillTree(Worker& root, const Failure& why, WorkerPool& pool, const Leases& leases) {
  std::vector<Worker*> parents{&root};
  std::vector<Worker*> rest = pool.OfJob(root.job);
  for (std::size_t i = 0; i < parents.size(); ++i) {
    std::erase_if(rest, [&](Worker* worker) {
      const bool serves = worker->actor.empty() && worker->lease != 0 &&
                          leases.OwnerOf(*worker) == parents[i]->process() && worker != &root;
      if (serves) parents.push_back(worker);
      return serves;
    });
  }
  for (std::size_t i = 1; i < parents.size(); ++i) pool.Kill(*parents[i], why);
}

}  // namespace

void Daemon::Dispatch(Peer& peer, wire::Frame& frame) {
  using wire::Kind;
  const std::uint64_t call = frame.call;
  if (frame.kind == Kind::kStatus) return StatusRequest(peer, call);
  if (frame.kind == Kind::kMemory) return MemoryRequest(peer, call);
  if (peer.role == wire::Role::kTool) {
    return peer.connection->Close(Status(Code::kCorrupt, "a tool may only ask for the status and the memory"));
  }
  if (frame.kind == wire::CopyJournal::kKind) {
    return On<wire::CopyJournal>(peer, frame, [&](const auto& message) {
      if (guests_ != nullptr) return guests_->Copy(peer, call, message);
      peer.connection->Fail(call, Status(Code::kInvalid, "a node of its own has no guests"));
    });
  }
  if (frame.kind == wire::CancelObject::kKind) {
    return On<wire::CancelObject>(peer, frame, [&](const auto& message) {
      if (cluster_ == nullptr || NodeOf(message.owner) == cluster_->self().number) {
        return peers_.Send(message.owner, message);
      }
      // Of a node that is gone: there is no task to cancel.
      if (cluster_->Find(NodeOf(message.owner)) == nullptr) return;
      cluster_->links().Send(NodeOf(message.owner), wire::FarCancelObject{message});
    });
  }
  switch (frame.kind) {
    case Kind::kGoodbye: {
      const auto it = jobs_.find(peer.job);
      if (peer.role != wire::Role::kDriver || it == jobs_.end()) break;
      it->second.goodbye = call;
      EndJob(it->second);
      if (peer.serial == private_peer_) Shutdown();
      return;
    }

    case Kind::kLeaseRequest:
      return On<wire::LeaseRequest>(peer, frame, [&](const auto& message) {
        if (!JobIsEnding(peer.job)) {
          const Resources quota = message.strategy.group.empty() ? QuotaOfJob(peer.job) : Resources();
          if (const Status fits = Quotas::Check(message.need, quota, "a task"); !fits.ok()) {
            return peer.connection->Send(wire::LeaseRefused{message.request, ToFailure(fits)});
          }
          if (far_ != nullptr) return far_->Request(peer, message);
          return message.strategy.empty() ? leases_.Request(peer, message) : placer_.RequestAlone(peer, message);
        }
        peer.connection->Send(
            wire::LeaseRefused{message.request, Failure{Code::kUnavailable, "the job has ended", {}, {}}});
      });
    case Kind::kLeaseCancel:
      return On<wire::LeaseCancel>(peer, frame, [&](const auto& message) {
        if (far_ != nullptr) return far_->Cancel(peer, message);
        if (!placer_.CancelAlone(peer, message.request)) leases_.Cancel(peer, message);
      });
    case Kind::kLeaseBroken:
      return On<wire::LeaseBroken>(peer, frame, [&](const auto& message) {
        if (far_ != nullptr) far_->Broken(peer, message);
      });
    case Kind::kFarReady:
      return On<wire::FarReady>(peer, frame, [&](const auto& message) {
        if (message.lease != 0) return leases_.FarReady(peer, message);
        if (guests_ != nullptr) guests_->FarReady(peer, message);
      });
    case Kind::kLeaseReturn:
      return On<wire::LeaseReturn>(peer, frame, [&](const auto& message) { leases_.Return(peer, message); });
    case Kind::kBlocked:
      return On<wire::Blocked>(peer, frame, [&](const auto& message) { leases_.Blocked(peer, message); });
    case Kind::kUnblock:
      return On<wire::Unblock>(peer, frame, [&](const auto& message) { leases_.Unblock(peer, call, message); });
    case Kind::kKillWorker:
      return On<wire::KillWorker>(peer, frame, [&](const auto& message) { KillWorker(peer, message); });

    case Kind::kCreateActor:
      return On<wire::CreateActor>(peer, frame, [&](const auto& message) {
        if (!JobIsEnding(peer.job)) {
          const Resources quota = message.options.strategy.group.empty() ? QuotaOfJob(peer.job) : Resources();
          const std::string who = Cat("actor ", message.options.class_name);
          if (const Status fits = Quotas::Check(message.options.need, quota, who); !fits.ok()) {
            return peer.connection->Fail(call, fits);
          }
          return far_actors_ != nullptr ? far_actors_->Create(peer, call, message)
                                        : actors_.Create(peer, call, message);
        }
        peer.connection->Fail(call, Status(Code::kUnavailable, "the job has ended"));
      });
    case Kind::kActorReady:
      return On<wire::ActorReady>(peer, frame, [&](const auto& message) {
        if (guests_ == nullptr || !guests_->Ready(peer, message)) actors_.Ready(peer, message);
      });
    case Kind::kActorFailed:
      return On<wire::ActorFailed>(peer, frame, [&](const auto& message) {
        if (guests_ == nullptr || !guests_->Failed(peer, message)) actors_.Failed(peer, message);
      });
    case Kind::kActorKeeps:
      return On<wire::ActorKeeps>(peer, frame, [&](const auto& message) { actors_.Keeps(peer, message); });
    case Kind::kAttachActor:
      return On<wire::AttachActor>(peer, frame, [&](const auto& message) {
        return far_actors_ != nullptr ? far_actors_->Attach(peer, message) : actors_.Attach(peer, message);
      });
    case Kind::kKillActor:
      return On<wire::KillActor>(peer, frame, [&](const auto& message) {
        return far_actors_ != nullptr ? far_actors_->Kill(peer, message) : actors_.Kill(peer, message);
      });
    case Kind::kFindActor:
      return On<wire::FindActor>(peer, frame, [&](const auto& message) {
        return far_actors_ != nullptr ? far_actors_->Find(peer, call, message) : actors_.Find(peer, call, message);
      });

    case Kind::kListNames:
      return On<wire::ListNames>(peer, frame, [&](const auto& message) { ListNames(peer, call, message); });

    case Kind::kCreateGroup:
      return On<wire::CreateGroup>(peer, frame, [&](const auto& message) { CreateGroup(peer, call, message); });
    case Kind::kRemoveGroup:
      return On<wire::RemoveGroup>(peer, frame, [&](const auto& message) { groups_.Remove(peer, call, message); });
    case Kind::kFindGroup:
      return On<wire::FindGroup>(peer, frame, [&](const auto& message) { groups_.Find(peer, call, message); });
    case Kind::kListGroups:
      return groups_.List(peer, call);
    case Kind::kWatchGroup:
      return On<wire::WatchGroup>(peer, frame, [&](const auto& message) { groups_.Watch(peer, message); });
    case Kind::kListNodes:
      return On<wire::ListNodes>(peer, frame, [&](const auto& message) { ListNodes(peer, call, message.all); });

    case Kind::kExpect:
      return On<wire::Expect>(peer, frame, [&](const auto& message) { directory_.Expect(peer, message); });
    case Kind::kPublish:
      return On<wire::Publish>(peer, frame, [&](const auto& message) { directory_.Publish(peer, message); });
    case Kind::kWaitObjects:
      return On<wire::WaitObjects>(peer, frame, [&](const auto& message) { directory_.Wait(peer, message); });
    case Kind::kHold:
      return On<wire::Hold>(peer, frame, [&](const auto& message) { directory_.Hold(peer, message); });
    case Kind::kDrop:
      return On<wire::Drop>(peer, frame, [&](const auto& message) { directory_.Drop(peer, message); });

    case Kind::kObjectLost:
      return On<wire::ObjectLost>(peer, frame, [&](const auto& message) { directory_.Lost(message); });
    case Kind::kUnmade:
      return On<wire::Unmade>(peer, frame, [&](const auto& message) { directory_.Unmade(peer, message); });
    case Kind::kHoldFar:
      return directory_.HoldFar(peer, call);
    case Kind::kFetch:
      return On<wire::Fetch>(peer, frame, [&](const auto& message) { Fetch(peer, call, message); });
    case Kind::kFetchAhead:
      return On<wire::FetchAhead>(peer, frame, [&](const auto& message) {
        if (transfers_) transfers_->FetchAhead(message);
      });

    case Kind::kSegmentRequest:
      return On<wire::SegmentRequest>(peer, frame, [&](const auto& message) { SegmentRequest(peer, call, message); });
    case Kind::kOpenSegment:
      return On<wire::OpenSegment>(peer, frame, [&](const auto& message) { OpenSegment(peer, call, message); });
    case Kind::kRestore:
      return On<wire::Restore>(peer, frame, [&](const auto& message) { Restore(peer, call, message); });
    case Kind::kFreeObjects:
      return On<wire::FreeObjects>(peer, frame, [&](wire::FreeObjects message) {
        message.places.resize(message.objects.size());
        FreeObjects(message.objects, message.places);
      });
    case Kind::kSegmentReturn:
      return On<wire::SegmentReturn>(peer, frame, [&](const auto& message) {
        keeper_.SegmentReturn(peer.process, message.segment, base::NowMicros());
      });
    default:
      break;
  }
  peer.connection->Close(
      Status(Code::kCorrupt, Cat("message ", static_cast<int>(frame.kind), " is not for the daemon")));
}

void Daemon::SegmentRequest(Peer& peer, std::uint64_t call, const wire::SegmentRequest& message) {
  // The answer may come much later; the process may be gone by then.
  keeper_.SegmentRequest(peer.process, message.bytes, base::NowMicros(),
                         [this, call, process = peer.process](const Result<store::Keeper::Loan>& loan) {
                           if (!loan.ok()) {
                             peers_.Send(process, wire::Failed{ToFailure(loan.status())}, call);
                             return;
                           }
                           const store::Keeper::Loan& lent = loan.value();
                           peers_.Send(process, wire::SegmentLent{lent.segment, lent.bytes, lent.whole}, call,
                                       {lent.fd});
                         });
}

void Daemon::OpenSegment(Peer& peer, std::uint64_t call, const wire::OpenSegment& message) {
  const Result<store::Keeper::Opened> opened = keeper_.OpenSegment(message.segment);
  if (!opened.ok()) return peer.connection->Fail(call, opened.status());
  peer.connection->Send(wire::SegmentOpened{opened.value().segment, opened.value().bytes, opened.value().offset}, call,
                        {opened.value().fd.get()});
}

void Daemon::Restore(Peer& peer, std::uint64_t call, const wire::Restore& message) {
  keeper_.Restore(peer.process, message.object, base::NowMicros(),
                  [this, call, process = peer.process](const Result<Place>& place) {
                    if (place.ok()) {
                      peers_.Send(process, wire::Restored{place.value()}, call);
                    } else {
                      peers_.Send(process, wire::Failed{ToFailure(place.status())}, call);
                    }
                  });
}

void Daemon::Fetch(Peer& peer, std::uint64_t call, const wire::Fetch& message) {
  const auto reply = [this, call, process = peer.process](const Result<Place>& place) {
    if (place.ok()) {
      peers_.Send(process, wire::Fetched{place.value()}, call);
    } else {
      peers_.Send(process, wire::Failed{ToFailure(place.status())}, call);
    }
  };
  if (transfers_) return transfers_->Fetch(message.object, message.place, message.owner, reply);
  reply(Status(Code::kLost, Cat("object ", ToString(message.object), " is on node ", message.place.node,
                                ", and this is the only one")));
}

void Daemon::FreeObjects(const std::vector<Id>& objects, const std::vector<Place>& places) {
  if (transfers_) return transfers_->Free(objects, places);
  keeper_.FreeObjects(objects, places, base::NowMicros());
}

void Daemon::KillWorker(Peer& peer, const wire::KillWorker& message) {
  if (far_ != nullptr && NodeOf(message.worker) != cluster_->self().number) {
    return far_->KillWorker(peer.process, message);
  }
  Worker* worker = pool_.FindByProcess(message.worker);
  if (worker == nullptr || worker->job != peer.job) return;
  if (worker->actor.empty() && leases_.OwnerOf(*worker) != peer.process) return;  // serves somebody else by now
  KillWorkerOf(peer.process, message);
}

// It is the owner's: serves it, or is an actor of its job.
void Daemon::KillWorkerOf(ProcessId owner, const wire::KillWorker& message) {
  const Worker* worker = pool_.FindByProcess(message.worker);
  if (worker == nullptr) return;
  if (!message.stack) return KillInCall(owner, message, 0);
  pool_.Signal(*worker, SIGQUIT);
  loop_->After(kStackUs, [this, owner, message] { KillInCall(owner, message, 0); });
}

// Stops the worker to see whether it still runs the call, so that no other one dies in its place. How long the stop
// takes is the machine's to say: the loop goes on meanwhile, and looks again.
void Daemon::KillInCall(ProcessId owner, const wire::KillWorker& message, int tries) {
  Worker* worker = pool_.FindByProcess(message.worker);
  if (worker == nullptr) return;
  if (worker->actor.empty() && leases_.OwnerOf(*worker) != owner) return pool_.Signal(*worker, SIGCONT);
  const auto end = [&] {
    if ((message.token & shm::kCancelTree) != 0) KillTree(*worker, message.failure, pool_, leases_);
    pool_.Kill(*worker, message.failure);
  };
  if (message.token == 0) return end();
  if (!pool_.Stop(*worker)) {
    loop_->After(kKillAgainUs, [this, owner, message, tries] { KillInCall(owner, message, tries); });
    return;
  }
  const std::uint64_t current = area_.bell(message.worker).current.load(std::memory_order_acquire);
  if (current == (message.token & ~shm::kCancelTree)) return end();
  pool_.Signal(*worker, SIGCONT);
  // It has claimed the call and may be about to begin.
  if (current != 0 || tries >= kKillTries) return;
  loop_->After(kKillAgainUs, [this, owner, message, tries] { KillInCall(owner, message, tries + 1); });
}

void Daemon::CreateGroup(Peer& peer, std::uint64_t call, const wire::CreateGroup& message) {
  const auto job = jobs_.find(peer.job);
  if (job == jobs_.end() || job->second.ending) {
    return peer.connection->Fail(call, Status(Code::kUnavailable, "the job has ended"));
  }
  Resources sum;
  for (const Resources& bundle : message.facts.bundles) sum.Add(bundle);
  if (const Status fits = Quotas::Check(sum, job->second.quota, "a placement group"); !fits.ok()) {
    return peer.connection->Fail(call, fits);
  }
  groups_.Create(peer, call, message, job->second.facts.home, job->second.quota);
}

void Daemon::ListNames(Peer& peer, std::uint64_t call, const wire::ListNames& message) {
  if (cluster_ == nullptr) return actors_.ListNames(peer, call, message);
  cluster_->Ask<wire::NameList>(message, [this, process = peer.process, call](const Result<wire::NameList>& list) {
    if (!list.ok()) return peers_.Send(process, wire::Failed{ToFailure(list.status())}, call);
    peers_.Send(process, list.value(), call);
  });
}

void Daemon::ListNodes(Peer& peer, std::uint64_t call, bool all) {
  Resources available = config_.total;
  available.Subtract(leases_.InUse());
  const NodeNumber self = cluster_ == nullptr ? 0 : cluster_->self().number;
  const std::string address = cluster_ == nullptr ? std::string() : cluster_->self().address;
  const wire::NodeList::Node here{self,
                                  config_.node,
                                  far_ != nullptr && far_->draining(),
                                  config_.labels,
                                  config_.total,
                                  available,
                                  true,
                                  address,
                                  {},
                                  config_.store_bytes};
  if (cluster_ == nullptr) return peer.connection->Send(wire::NodeList{{here}}, call);
  cluster_->Ask<wire::ClusterView>(
      wire::NodesRequest{all}, [this, process = peer.process, call, here](const Result<wire::ClusterView>& view) {
        wire::NodeList list;
        const auto add = [&](const wire::NodeFacts& node) {
          if (node.number == here.number) return list.nodes.push_back(here);
          list.nodes.push_back({node.number, node.name, node.state == wire::NodeFacts::State::kDraining, node.labels,
                                node.total, node.lives() ? node.available : Resources(), node.lives(), node.address,
                                node.why, node.store_bytes});
        };
        if (view.ok()) {
          for (const wire::NodeFacts& node : view.value().nodes) add(node);
        } else {  // what is known without the head
          for (const auto& [number, node] : cluster_->nodes()) add(node);
        }
        peers_.Send(process, list, call);
      });
}

void Daemon::MemoryRequest(Peer& peer, std::uint64_t call) {
  wire::MemoryReply reply;
  reply.node = config_.node;
  std::unordered_map<std::uint32_t, const Peer*> processes;
  for (const auto& [serial, one] : peers_.all()) {
    if (one->process != kNoProcess) processes[LocalOf(one->process)] = one.get();
  }
  const auto pid_of = [&](std::uint32_t local) {
    const auto it = processes.find(local);
    return it == processes.end() ? 0 : it->second->pid;
  };
  const store::KeeperStats stats = keeper_.stats();
  reply.store_bytes = stats.capacity;
  reply.store_used = stats.used;
  for (const store::Keeper::Facts& facts : keeper_.List()) {
    wire::MemoryReply::Object object;
    object.id = facts.object;
    object.bytes = facts.bytes;
    object.owner = OnNode(cluster_ == nullptr ? 0 : cluster_->self().number, facts.owner);
    object.owner_pid = facts.copy ? 0 : pid_of(facts.owner);
    object.holders = static_cast<std::uint32_t>(std::max<std::size_t>(directory_.Holders(facts.object), 1));
    for (const ProcessId reader : facts.readers) object.readers.push_back(pid_of(LocalOf(reader)));
    object.spilled = facts.spilled;
    object.copy = facts.copy;
    reply.objects.push_back(std::move(object));
  }
  peer.connection->Send(reply, call);
}

void Daemon::StatusRequest(Peer& peer, std::uint64_t call) {
  wire::StatusReply reply;
  reply.node = config_.node;
  reply.pid = static_cast<std::uint32_t>(getpid());
  reply.uptime_seconds = static_cast<double>(base::NowMicros() - started_us_) / 1e6;
  reply.total = config_.total;
  reply.in_use = leases_.InUse();
  reply.actors = static_cast<std::uint32_t>(actors_.living() - actors_.elsewhere());
  if (guests_ != nullptr) reply.actors += static_cast<std::uint32_t>(guests_->size());
  reply.tasks_finished = finished_;
  std::uint64_t unfinished = 0;
  for (const auto& [serial, other] : peers_.all()) {
    if (other->process == kNoProcess) continue;
    if (other->worker == nullptr) {
      ++reply.drivers;
    } else {
      ++reply.workers;
      if (IsRunning(*other->worker)) {
        ++reply.workers_busy;
        if (other->worker->actor.empty()) ++reply.tasks_running;
      }
    }
    const shm::Doorbell& bell = area_.bell(other->process);
    reply.tasks_finished += bell.ran.load();
    const std::uint64_t completed = bell.completed.load();
    const std::uint64_t submitted = bell.submitted.load();
    if (submitted > completed) unfinished += submitted - completed;
  }
  reply.tasks_finished -= std::min<std::uint64_t>(reply.tasks_finished, reply.workers_busy);  // these have begun only
  reply.head = cluster_ == nullptr ? std::string() : cluster_->config().head;
  reply.tasks_queued = unfinished > reply.tasks_running ? unfinished - reply.tasks_running : 0;
  const store::KeeperStats store = keeper_.stats();
  reply.store_bytes = store.capacity;
  reply.store_used = store.used;
  reply.store_objects = store.objects;
  reply.store_spilled = store.spilled;
  if (transfers_) {
    reply.bytes_sent = transfers_->counters().bytes_out.load(std::memory_order_relaxed);
    reply.bytes_fetched = transfers_->counters().bytes_in.load(std::memory_order_relaxed);
  }
  reply.calls_replayed = actors_.calls_replayed();
  if (far_) {
    reply.lease_requests = far_->counts().requests;
    reply.lease_questions = far_->counts().questions;
  }
  for (const auto& [id, job] : jobs_) {
    if (!job.far) reply.jobs.push_back({id, job.program, job.quota, quotas_.InUse(id)});
  }
  peer.connection->Send(reply, call);
}

}  // namespace manta::node
