#include "control/server.h"

#include <utility>

namespace manta::control {
namespace {

wire::ControlEntries ToMessage(Page&& page) {
  wire::ControlEntries message;
  message.more = page.more;
  message.entries.reserve(page.entries.size());
  for (Entry& entry : page.entries) {
    message.entries.push_back(wire::ControlEntry{std::move(entry.key), entry.version, std::move(entry.value)});
  }
  return message;
}
ControlValue ToMessage(ControlValue&& value) { return std::move(value); }
ControlWritten ToMessage(ControlWritten&& written) { return written; }

wire::ControlKind KindOf(const wire::Frame& frame) { return static_cast<wire::ControlKind>(frame.kind); }

}  // namespace

Server::~Server() {
  *alive_ = false;
  for (const auto& [serial, peer] : peers_) {
    for (const auto& [number, watch] : peer->watches) tables_.Unwatch(watch);
  }
}

Status Server::Add(wire::Stream stream) {
  auto peer = std::make_unique<Peer>();
  Peer* raw = peer.get();
  raw->serial = next_serial_++;
  raw->connection = std::make_unique<wire::Connection>(
      loop_, std::move(stream), [this, raw](wire::Frame& frame) { OnFrame(*raw, frame); },
      [this, serial = raw->serial](const Status&) { OnClosed(serial); });
  if (Status status = raw->connection->Start(); !status.ok()) return status;
  peers_[raw->serial] = std::move(peer);
  return {};
}

Server::Peer* Server::Find(std::uint64_t serial) {
  const auto it = peers_.find(serial);
  return it == peers_.end() ? nullptr : it->second.get();
}

void Server::OnClosed(std::uint64_t serial) {
  const auto it = peers_.find(serial);
  if (it == peers_.end()) return;
  const std::unique_ptr<Peer> peer = std::move(it->second);
  peers_.erase(it);
  for (const auto& [number, watch] : peer->watches) tables_.Unwatch(watch);
}

void Server::OnFrame(Peer& peer, wire::Frame& frame) {
  ++requests_;
  if (!frame.fds.empty()) return peer.connection->Close(Status(Code::kCorrupt, "descriptors sent to control"));
  if (peer.welcomed) {
    Dispatch(peer, frame);
  } else {
    Hello(peer, frame);
  }
}

void Server::Hello(Peer& peer, const wire::Frame& frame) {
  const Result<wire::ControlHello> hello = frame.As<wire::ControlHello>();
  Status wrong = hello.status();
  if (wrong.ok() && hello.value().version != wire::kControlVersion) {
    wrong = Status(Code::kInvalid, Cat("this process speaks version ", hello.value().version,
                                       " of the control store's protocol, the store version ", wire::kControlVersion,
                                       "; run the same release everywhere"));
  }
  if (!wrong.ok()) {
    peer.connection->Fail(frame.call, wrong);
    peer.connection->CloseAfterSending(wrong);
    return;
  }
  peer.welcomed = true;
  peer.connection->Send(wire::ControlWelcome{tables_.epoch(), static_cast<std::uint32_t>(tables_.shards())},
                        frame.call);
}

template <typename M, typename From>
void Server::Answer(std::uint64_t serial, std::uint64_t call, Result<From> result) {
  Peer* peer = Find(serial);
  if (peer == nullptr) return;
  --peer->unanswered;
  if (!result.ok()) {
    peer->connection->Fail(call, result.status());
    return;
  }
  const M message = ToMessage(std::move(*result));
  peer->connection->Send(message, call);
}

void Server::Dispatch(Peer& peer, const wire::Frame& frame) {
  const std::uint64_t serial = peer.serial;
  const std::uint64_t call = frame.call;
  const auto refuse = [&](const Status& status) { peer.connection->Close(status); };
  if (peer.unanswered >= kMaxUnanswered) {
    return refuse(Status(Code::kInvalid, Cat(peer.unanswered, " requests without waiting for an answer")));
  }
  // Callbacks of the tables end with the tables, which outlive this object.
  const std::shared_ptr<bool> alive = alive_;
  switch (KindOf(frame)) {
    case wire::ControlKind::kGet: {
      Result<wire::ControlGet> get = frame.As<wire::ControlGet>();
      if (!get.ok()) return refuse(get.status());
      ++peer.unanswered;
      tables_.Get(get->table, std::move(get->key), [this, alive, serial, call](Result<ControlValue> value) {
        if (*alive) Answer<ControlValue>(serial, call, std::move(value));
      });
      return;
    }
    case wire::ControlKind::kWrite: {
      Result<ControlWrite> write = frame.As<ControlWrite>();
      if (!write.ok()) return refuse(write.status());
      ++peer.unanswered;
      tables_.Write(std::move(*write), [this, alive, serial, call](Result<ControlWritten> written) {
        if (*alive) Answer<ControlWritten>(serial, call, std::move(written));
      });
      return;
    }
    case wire::ControlKind::kScan: {
      Result<wire::ControlScan> scan = frame.As<wire::ControlScan>();
      if (!scan.ok()) return refuse(scan.status());
      ++peer.unanswered;
      tables_.Scan(scan->table, std::move(scan->prefix), std::move(scan->after), scan->limit,
                   [this, alive, serial, call](Result<Page> page) {
                     if (*alive) Answer<wire::ControlEntries>(serial, call, std::move(page));
                   });
      return;
    }
    case wire::ControlKind::kWatch: {
      Result<wire::ControlWatch> watch = frame.As<wire::ControlWatch>();
      if (!watch.ok()) return refuse(watch.status());
      return Watch(peer, std::move(*watch));
    }
    case wire::ControlKind::kUnwatch: {
      const Result<wire::ControlUnwatch> unwatch = frame.As<wire::ControlUnwatch>();
      if (!unwatch.ok()) return refuse(unwatch.status());
      const auto it = peer.watches.find(unwatch.value().watch);
      if (it == peer.watches.end()) return;
      tables_.Unwatch(it->second);
      peer.watches.erase(it);
      return;
    }
    default:
      return refuse(Status(Code::kCorrupt, Cat("message ", int(frame.kind), " is not for the control store")));
  }
}

void Server::Watch(Peer& peer, wire::ControlWatch watch) {
  if (peer.watches.contains(watch.watch) || peer.watches.size() >= wire::kControlWindow) {
    return peer.connection->Close(
        Status(Code::kInvalid, Cat("watch ", watch.watch, " is there already, or there are too many")));
  }
  const std::uint64_t serial = peer.serial;
  const std::uint64_t number = watch.watch;
  Subscriber subscriber;
  subscriber.on_changes = [this, serial, number](std::vector<ControlChange> changes, bool complete) {
    Peer* to = Find(serial);
    if (to != nullptr) to->connection->Send(wire::ControlChanges{number, complete, std::move(changes)});
  };
  subscriber.on_end = [this, serial, number](const Status& why) {
    Peer* to = Find(serial);
    if (to == nullptr) return;
    to->watches.erase(number);
    to->connection->Send(wire::ControlWatchEnded{number, ToFailure(why)});
  };
  subscriber.backlog = [this, serial] {
    const Peer* to = Find(serial);
    return to == nullptr ? 0 : to->connection->outgoing_bytes();
  };
  peer.watches[number] = tables_.Watch(watch.table, std::move(watch.prefix), std::move(subscriber));
}

}  // namespace manta::control
