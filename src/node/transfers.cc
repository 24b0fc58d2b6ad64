#include "node/transfers.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"
#include "types/text.h"

namespace manta::node {
namespace {

// Of smaller ones the time says how busy the machine is, not how fast the network.
constexpr std::uint64_t kMeasuredBytes = 1U << 20;
constexpr std::int64_t kPauseUs = 20'000;  // before a source that failed is tried again, times the failures so far

std::string Name(const Id& object, const Place& place) {
  return Cat("object ", ToString(object), " (", Bytes(place.size), ")");
}

}  // namespace

Result<std::unique_ptr<Transfers>> Transfers::Create(base::Loop& loop, FarNodes& nodes, store::Keeper& keeper,
                                                     TransferOptions options) {
  std::unique_ptr<Transfers> transfers(new Transfers(loop, nodes, keeper));
  Result<std::unique_ptr<Mailbox>> mailbox = Mailbox::Create(loop);
  if (!mailbox.ok()) return mailbox.status();
  transfers->mailbox_ = std::move(*mailbox);
  transfers->threads_ =
      std::make_unique<TransferThreads>(*transfers->mailbox_, keeper, nodes.self(), std::move(options));
  keeper.SetOnEvicted([raw = transfers.get()](const std::vector<Id>& objects) { raw->Evicted(objects); });
  return transfers;
}

Transfers::Transfers(base::Loop& loop, FarNodes& nodes, store::Keeper& keeper)
    : loop_(loop),
      nodes_(nodes),
      keeper_(keeper),
      copies_(nodes, Copies::Here{
                         [this](const wire::FarFetchFrom& message) { FarFetchFrom(nodes_.self(), message); },
                         [this](const wire::FarStopFetch& message) { FarStopFetch(nodes_.self(), message); },
                         [this](const wire::FarCopyLost& message) { FarCopyLost(nodes_.self(), message); },
                         [this](const std::vector<Id>& objects, const std::vector<Place>& places) {
                           FreeHere(objects, places, nodes_.self());
                         },
                     }) {}

Transfers::~Transfers() {
  keeper_.SetOnEvicted(nullptr);
  for (auto& [id, fetching] : fetching_) {
    loop_.Cancel(fetching.pause);
    if (fetching.pull) TransferThreads::Stop(*fetching.pull);
  }
  fetching_.clear();  // before the store they write to
  threads_.reset();
}

// ---- what processes ask for ----

void Transfers::Fetch(const Id& object, const Place& place, ProcessId owner, Reply reply) {
  if (place.nowhere() || place.node == nodes_.self()) return reply(place);
  Begin(object, place, owner, std::move(reply), false);
}

void Transfers::FetchAhead(const wire::FetchAhead& message) {
  for (std::size_t i = 0; i < std::min(message.objects.size(), message.places.size()); ++i) {
    const Place& place = message.places[i];
    if (place.nowhere() || place.node == nodes_.self()) continue;
    ahead_.push_back(Ahead{message.objects[i], place, i < message.owners.size() ? message.owners[i] : kNoProcess});
  }
  BeginAhead();
}

void Transfers::BeginAhead() {
  while (ahead_running_ < kAheadAtOnce && !ahead_.empty()) {
    const Ahead next = ahead_.front();
    ahead_.pop_front();
    Begin(next.object, next.place, next.owner, nullptr, true);
  }
}

void Transfers::Begin(const Id& object, const Place& place, ProcessId owner, Reply reply, bool ahead) {
  if (const Place copy = threads_->FindCopy(object); !copy.nowhere()) {
    if (reply) reply(copy);
    return;
  }
  if (const auto it = fetching_.find(object); it != fetching_.end()) {
    if (!reply) return;
    if (it->second.place == place) {
      it->second.replies.push_back(std::move(reply));
    } else {
      it->second.others.push_back({place, std::move(reply)});
    }
    return;
  }
  const NodeNumber home = owner == kNoProcess ? place.node : NodeOf(owner);
  if (home != nodes_.self() && !nodes_.Knows(home)) {
    if (!reply) return;
    return reply(Status(Code::kLost, Cat(Name(object, place), " is lost: node ", home, ", its owner's, is gone")));
  }
  Fetching& fetching = fetching_[object];
  fetching.place = place;
  fetching.owner = owner;
  fetching.home = home;
  if (reply) fetching.replies.push_back(std::move(reply));
  // Those below us in a broadcast may come before our own order does.
  fetching.incoming = threads_->Expect(object, place);
  fetching.missing = fetching.incoming->parts();
  fetching.ahead = ahead;
  if (ahead) ++ahead_running_;
  ToHome(home, wire::FarWant{object, place, owner},
         [&](const wire::FarWant& message) { copies_.Want(nodes_.self(), message); });
}

// ---- how a fetch goes ----

void Transfers::FarFetchFrom(NodeNumber from, const wire::FarFetchFrom& message) {
  const auto it = fetching_.find(message.object);
  if (it == fetching_.end() || it->second.home != from) return;
  Fetching& fetching = it->second;
  fetching.from = message.from;
  fetching.transfer = message.transfer;
  if (fetching.pull) {
    fetching.again = true;
    return TransferThreads::Stop(*fetching.pull);
  }
  if (fetching.failures == 0) return StartPull(message.object, fetching);
  loop_.Cancel(fetching.pause);
  fetching.pause = loop_.After(kPauseUs * fetching.failures, [this, id = message.object] {
    const auto paused = fetching_.find(id);
    if (paused == fetching_.end()) return;
    paused->second.pause = 0;
    if (paused->second.transfer != 0 && !paused->second.pull) StartPull(id, paused->second);
  });
}

void Transfers::StartPull(const Id& object, Fetching& fetching) {
  fetching.again = false;
  if (fetching.since_us == 0) fetching.since_us = base::NowMicros();
  const std::string address = nodes_.AddressFor(fetching.from);
  if (address.empty()) {
    return Complain(object, fetching, false, Status(Code::kUnavailable, Cat("node ", fetching.from, " is not known")));
  }
  fetching.pull = threads_->Start(fetching.incoming, fetching.from, address,
                                  [this, object](const TransferThreads::Ended& ended) { this->Ended(object, ended); });
}

void Transfers::FarStopFetch(NodeNumber from, const wire::FarStopFetch& message) {
  const auto it = fetching_.find(message.object);
  if (it == fetching_.end() || it->second.home != from || it->second.transfer != message.transfer) return;
  it->second.transfer = 0;
  it->second.again = false;
  if (it->second.pull) TransferThreads::Stop(*it->second.pull);
}

void Transfers::FarCopyLost(NodeNumber from, const wire::FarCopyLost& message) {
  const auto it = fetching_.find(message.object);
  if (it == fetching_.end() || it->second.home != from) return;
  const Place place = it->second.place;
  Finish(message.object,
         Status(Code::kLost, Cat(Name(message.object, place), " is lost: it was on node ", place.node,
                                 ", which is gone or does not have it any more, and there is no other copy")));
}

void Transfers::Ended(const Id& object, const TransferThreads::Ended& ended) {
  const auto it = fetching_.find(object);
  if (it == fetching_.end()) return;
  Fetching& fetching = it->second;
  fetching.pull.reset();
  if (ended.place.ok()) {
    base::Failpoint("transfer.fetched");
    homes_[object] = fetching.home;
    if (fetching.place.size >= kMeasuredBytes) {
      speed_.bytes += fetching.place.size;
      speed_.us += std::max<std::int64_t>(base::NowMicros() - fetching.since_us, 1);
    }
    ToHome(fetching.home, wire::FarFetched{object, fetching.transfer},
           [&](const wire::FarFetched& message) { copies_.Fetched(nodes_.self(), message); });
    return Finish(object, ended.place);
  }
  if (ended.refused) {
    ToHome(fetching.home, wire::FarForgo{object},
           [&](const wire::FarForgo& message) { copies_.Forgo(nodes_.self(), message.object); });
    return Finish(object,
                  Status(ended.place.status().code(), Cat("cannot bring ", Name(object, fetching.place), " from node ",
                                                          fetching.place.node, ": ", ended.place.status().message())));
  }
  if (fetching.again) return StartPull(object, fetching);
  if (fetching.transfer != 0) Complain(object, fetching, ended.source_gone, ended.place.status());
  // Else the home called it off, and will say how it goes on.
}

// A source failed: the home finds another, or this one again.
void Transfers::Complain(const Id& object, Fetching& fetching, bool gone, const Status& why) {
  const std::size_t missing = fetching.incoming->missing();
  fetching.failures = missing < std::exchange(fetching.missing, missing) ? 1 : fetching.failures + 1;
  const std::uint64_t transfer = std::exchange(fetching.transfer, 0);
  if (fetching.failures >= kAttempts) {
    ToHome(fetching.home, wire::FarForgo{object},
           [&](const wire::FarForgo& message) { copies_.Forgo(nodes_.self(), message.object); });
    return Finish(object,
                  Status(Code::kLost, Cat(Name(object, fetching.place), " cannot be fetched from node ", fetching.from,
                                          ", tried ", fetching.failures, " times: ", why.message())));
  }
  ToHome(fetching.home, wire::FarFetchFailed{object, transfer, fetching.from, gone, why.message()},
         [&](const wire::FarFetchFailed& message) { copies_.Failed(nodes_.self(), message); });
}

void Transfers::Finish(const Id& object, const Result<Place>& result) {
  const auto node = fetching_.extract(object);
  if (node.empty()) return;
  Fetching& fetching = node.mapped();
  loop_.Cancel(fetching.pause);
  if (fetching.pull) TransferThreads::Stop(*fetching.pull);
  if (!result.ok()) threads_->Forget(fetching.incoming);
  for (const Reply& reply : fetching.replies) reply(result);
  for (Fetching::Other& other : fetching.others) {
    if (result.ok()) {
      other.reply(result);
    } else {
      Begin(object, other.place, fetching.owner, std::move(other.reply), false);
    }
  }
  if (!fetching.ahead) return;
  --ahead_running_;
  BeginAhead();
}

// ---- letting go ----

void Transfers::Free(const std::vector<Id>& objects, const std::vector<Place>& places) {
  const bool here = copies_.size() == 0 && homes_.empty() &&
                    std::all_of(places.begin(), places.end(),
                                [&](const Place& place) { return place.node == 0 || place.node == nodes_.self(); });
  if (here) {
    keeper_.FreeObjects(objects, places, base::NowMicros());
  } else {
    copies_.Free(objects, places);
  }
}

void Transfers::FreeHere(const std::vector<Id>& objects, const std::vector<Place>& places, NodeNumber from) {
  std::vector<Id> freed;
  std::vector<Place> at;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    Place place = i < places.size() ? places[i] : Place{};
    homes_.erase(objects[i]);
    kept_.erase(objects[i]);
    const Place copy = threads_->ForgetCopy(objects[i]);
    if (place.nowhere() || place.node != nodes_.self()) {
      // Another node may mean a copy only, unless it says that this very node is to look for the object.
      const bool search =
          place.nowhere() && (place.node == nodes_.self() || (place.node == 0 && from == nodes_.self()));
      place = copy;
      if (copy.nowhere() && !search) continue;
    }
    freed.push_back(objects[i]);
    at.push_back(place);
  }
  if (!freed.empty()) keeper_.FreeObjects(freed, at, base::NowMicros());
}

void Transfers::FarKeep(NodeNumber from, const wire::FarKeep& message) {
  for (const Id& id : message.objects) kept_[id] = from;
}

void Transfers::Evicted(const std::vector<Id>& objects) {
  std::unordered_map<NodeNumber, wire::FarCopyDropped> dropped;
  for (const Id& id : objects) {
    threads_->ForgetCopy(id);
    const auto node = homes_.extract(id);
    if (!node.empty()) dropped[node.mapped()].objects.push_back(id);
  }
  for (const auto& [home, message] : dropped) {
    ToHome(home, message, [&](const wire::FarCopyDropped& here) { copies_.Dropped(nodes_.self(), here.objects); });
  }
}

void Transfers::NodeDown(NodeNumber node, const std::string& why) {
  threads_->NodeDown(node);
  copies_.NodeDown(node);
  std::vector<Id> orphans;
  for (const auto& [id, fetching] : fetching_) {
    if (fetching.home == node) orphans.push_back(id);
  }
  for (const Id& id : orphans) {
    const auto it = fetching_.find(id);
    if (it == fetching_.end()) continue;
    Finish(id, Status(Code::kLost,
                      Cat(Name(id, it->second.place), " is lost: node ", node, ", its owner's, is gone: ", why)));
  }
  // Nobody will ever free what was at home there.
  std::vector<Id> gone;
  for (const auto* homes : {&homes_, &kept_}) {
    for (const auto& [id, home] : *homes) {
      if (home == node) gone.push_back(id);
    }
  }
  if (!gone.empty()) FreeHere(gone, {}, nodes_.self());
}

}  // namespace manta::node
