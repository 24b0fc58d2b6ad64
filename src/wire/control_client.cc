#include "wire/control_client.h"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/clock.h"
#include "base/fd.h"
#include "wire/dial.h"
#include "wire/local_connect.h"

namespace manta::wire {
namespace {

constexpr std::uint64_t kHelloCall = 1;

Id DrawId() {
  Id id;
  while (id.empty()) {
    if (getrandom(&id, sizeof id, 0) != sizeof id) {
      // Not before the kernel's pool is ready, at boot: better than none.
      id = DeriveId(Id{static_cast<std::uint64_t>(base::NowMicros()), static_cast<std::uint64_t>(getpid())}, 1, 1);
    }
  }
  return id;
}

}  // namespace

ControlClient::ControlClient(base::Loop& loop, Connect connect, ControlClientOptions options)
    : loop_(loop), connect_(std::move(connect)), options_(options) {
  if (options_.client.empty()) options_.client = DrawId();
  lost_since_ = base::NowMicros();
  connecting_ = loop_.After(0, [this] {
    connecting_ = 0;
    StartConnecting();
  });
}

ControlClient::~ControlClient() {
  *alive_ = false;
  if (connecting_ != 0) loop_.Cancel(connecting_);
  if (timer_ != 0) loop_.Cancel(timer_);
}

void ControlClient::Get(Table table, std::string key, OnValue done) {
  Ask<ControlValue>(ControlGet{table, std::move(key)}, 0, std::move(done));
}

void ControlClient::Put(Table table, std::string key, std::string value, OnWritten done) {
  Write(ControlWrite{{}, 0, table, std::move(key), std::move(value), {}}, std::move(done));
}

void ControlClient::PutIfAbsent(Table table, std::string key, std::string value, OnWritten done) {
  Write(ControlWrite{{}, 0, table, std::move(key), std::move(value), 0}, std::move(done));
}

void ControlClient::CompareAndSet(Table table, std::string key, std::uint64_t version, std::optional<std::string> value,
                                  OnWritten done) {
  Write(ControlWrite{{}, 0, table, std::move(key), std::move(value), version}, std::move(done));
}

void ControlClient::Delete(Table table, std::string key, OnWritten done) {
  Write(ControlWrite{{}, 0, table, std::move(key), {}, {}}, std::move(done));
}

void ControlClient::Write(ControlWrite write, OnWritten done) {
  write.client = options_.client;
  write.sequence = next_sequence_++;
  Ask<ControlWritten>(write, write.sequence, std::move(done));
}

void ControlClient::Scan(Table table, std::string prefix, std::string after, std::uint32_t limit, OnEntries done) {
  Ask<ControlEntries>(ControlScan{table, std::move(prefix), std::move(after), limit}, 0, std::move(done));
}

void ControlClient::ScanAll(Table table, std::string prefix, OnAll done) {
  auto gathered = std::make_shared<Gathered>();
  gathered->table = table;
  gathered->prefix = std::move(prefix);
  gathered->done = std::move(done);
  ScanMore(gathered);
}

void ControlClient::ScanMore(const std::shared_ptr<Gathered>& gathered) {
  const std::string after = gathered->entries.empty() ? std::string() : gathered->entries.back().key;
  Scan(gathered->table, gathered->prefix, after, 0, [this, gathered](Result<ControlEntries> page) {
    if (!page.ok()) return gathered->done(page.status());
    std::move(page->entries.begin(), page->entries.end(), std::back_inserter(gathered->entries));
    if (page->more && !page->entries.empty()) return ScanMore(gathered);
    gathered->done(std::move(gathered->entries));
  });
}

ControlClient::WatchId ControlClient::Watch(Table table, std::string prefix, Watcher watcher) {
  const WatchId id = next_watch_++;
  auto watched = std::make_shared<Watched>(Watched{table, std::move(prefix), std::move(watcher), false});
  watches_[id] = watched;
  if (welcomed_) connection_->Send(ControlWatch{id, table, watched->prefix});
  return id;
}

void ControlClient::Unwatch(WatchId watch) {
  if (watches_.erase(watch) == 0) return;
  if (welcomed_) connection_->Send(ControlUnwatch{watch});
}

template <typename Answer, typename M>
void ControlClient::Ask(const M& message, std::uint64_t sequence, std::function<void(Result<Answer>)> done) {
  const std::uint64_t call = next_call_++;
  Request& request = requests_[call];
  request.frame = EncodeFrame(message, call);
  request.until = base::NowMicros() + options_.patience_us;
  request.sequence = sequence;
  request.done = [done = std::move(done)](Result<Frame*> frame) {
    if (!frame.ok()) return done(frame.status());
    done((*frame)->template As<Answer>());
  };
  if (sequence != 0) unanswered_[sequence] = call;
  if (!MaySend(request)) {
    held_[sequence] = call;
  } else if (welcomed_) {
    connection_->SendEncoded(request.frame);
  }
  if (timer_ == 0) SetTimer();
}

bool ControlClient::MaySend(const Request& request) const {
  return request.sequence == 0 || request.sequence < unanswered_.begin()->first + kControlWindow;
}

void ControlClient::ReleaseHeld() {
  while (!held_.empty()) {
    const Request& request = requests_[held_.begin()->second];
    if (!MaySend(request)) return;
    if (welcomed_) connection_->SendEncoded(request.frame);
    held_.erase(held_.begin());
  }
}

void ControlClient::StartConnecting() {
  connect_([this, alive = alive_](Result<Stream> stream) {
    if (*alive) OnConnected(std::move(stream));
  });
}

void ControlClient::OnConnected(Result<Stream> stream) {
  if (!stream.ok()) return ConnectLater(stream.status());
  connection_ = std::make_unique<Connection>(
      loop_, std::move(*stream), [this](Frame& frame) { OnFrame(frame); },
      [this](const Status& why) { OnLost(why.ok() ? Status(Code::kUnavailable, "it closed the connection") : why); });
  if (Status status = connection_->Start(); !status.ok()) {
    connection_.reset();
    return ConnectLater(status);
  }
  connection_->Send(ControlHello{kControlVersion, options_.client}, kHelloCall);
}

void ControlClient::OnLost(const Status& why) {
  connection_.reset();
  const bool was_welcomed = std::exchange(welcomed_, false);
  if (was_welcomed) {
    lost_since_ = base::NowMicros();
    pause_us_ = 0;  // at once, for it worked until now
  }
  ConnectLater(why);
  if (was_welcomed && on_state_) on_state_(why);
}

void ControlClient::ConnectLater(const Status& why) {
  trouble_ = why;
  connecting_ = loop_.After(pause_us_, [this] {
    connecting_ = 0;
    StartConnecting();
  });
  pause_us_ = std::clamp(pause_us_ * 2, options_.first_pause_us, options_.longest_pause_us);
}

void ControlClient::Welcomed(const ControlWelcome& welcome) {
  welcomed_ = true;
  epoch_ = welcome.epoch;
  pause_us_ = 0;
  trouble_ = {};
  for (const auto& [call, request] : requests_) {
    if (request.sequence == 0 || !held_.contains(request.sequence)) connection_->SendEncoded(request.frame);
  }
  std::vector<std::shared_ptr<Watched>> again;
  for (const auto& [id, watched] : watches_) {
    connection_->Send(ControlWatch{id, watched->table, watched->prefix});
    if (std::exchange(watched->told, false)) again.push_back(watched);
  }
  for (const auto& watched : again) {
    if (watched->watcher.on_reset) watched->watcher.on_reset();
  }
  if (on_state_) on_state_({});
}

void ControlClient::OnFrame(Frame& frame) {
  if (!welcomed_) {
    const Result<ControlWelcome> welcome = frame.As<ControlWelcome>();
    if (welcome.ok()) return Welcomed(welcome.value());
    const Result<Failed> failed = frame.As<Failed>();
    connection_->Close(failed.ok() ? Status(failed.value().failure.code, failed.value().failure.message)
                                   : welcome.status());
    return;
  }
  switch (static_cast<ControlKind>(frame.kind)) {
    case ControlKind::kChanges: {
      Result<ControlChanges> changes = frame.As<ControlChanges>();
      if (!changes.ok()) return connection_->Close(changes.status());
      const auto it = watches_.find(changes->watch);
      if (it == watches_.end()) return;  // dropped meanwhile
      const std::shared_ptr<Watched> watched = it->second;
      watched->told = true;
      watched->watcher.on_changes(changes->changes, changes->complete);
      return;
    }
    case ControlKind::kWatchEnded: {
      const Result<ControlWatchEnded> ended = frame.As<ControlWatchEnded>();
      if (!ended.ok()) return connection_->Close(ended.status());
      const auto it = watches_.find(ended.value().watch);
      if (it == watches_.end()) return;
      const std::shared_ptr<Watched> watched = it->second;
      watches_.erase(it);
      if (watched->watcher.on_end) {
        watched->watcher.on_end(Status(ended.value().failure.code, ended.value().failure.message));
      }
      return;
    }
    default:
      OnAnswer(frame);
  }
}

void ControlClient::OnAnswer(Frame& frame) {
  const auto it = requests_.find(frame.call);
  if (it == requests_.end()) return;  // given up meanwhile
  const Request request = std::move(it->second);
  requests_.erase(it);
  if (request.sequence != 0) {
    unanswered_.erase(request.sequence);
    ReleaseHeld();
  }
  if (frame.kind != Kind::kFailed) return request.done(&frame);
  const Result<Failed> failed = frame.As<Failed>();
  request.done(failed.ok() ? Status(failed.value().failure.code, failed.value().failure.message) : failed.status());
}

void ControlClient::SetTimer() {
  if (requests_.empty()) return;
  const std::int64_t wait = requests_.begin()->second.until - base::NowMicros();
  timer_ = loop_.After(std::max<std::int64_t>(wait, 1000), [this] {
    timer_ = 0;
    GiveUpOld();
  });
}

void ControlClient::GiveUpOld() {
  const std::shared_ptr<bool> alive = alive_;
  const std::int64_t now = base::NowMicros();
  while (!requests_.empty() && requests_.begin()->second.until <= now) {
    const Request request = std::move(requests_.begin()->second);
    requests_.erase(requests_.begin());
    if (request.sequence != 0) {
      unanswered_.erase(request.sequence);
      held_.erase(request.sequence);
      ReleaseHeld();
    }
    const std::int64_t seconds = options_.patience_us / 1'000'000;
    request.done(welcomed_
                     ? Status(Code::kUnavailable, Cat("the control store has not answered for ", seconds,
                                                      " s; look at its log and its disk"))
                     : Status(Code::kUnavailable,
                              Cat("the control store is out of reach for ", (now - lost_since_) / 1'000'000, " s (",
                                  trouble_.ok() ? "connecting" : trouble_.message(), "); is manta-control running?")));
    if (!*alive) return;
  }
  if (timer_ == 0) SetTimer();
}

ControlClient::Connect ConnectLocally(std::string address) {
  return [address = std::move(address)](const ControlClient::Connected& done) {
    Result<base::Fd> fd = ConnectToLocal(address);
    if (!fd.ok()) {
      return done(Status(fd.status().code(), Cat("cannot connect to ", address, ": ", fd.status().message())));
    }
    if (fcntl(fd->get(), F_SETFL, O_NONBLOCK) != 0) return done(Status(Code::kIo, std::strerror(errno)));
    done(Stream(std::move(*fd)));
  };
}

ControlClient::Connect ConnectOverTcp(base::Loop& loop, std::string address, std::shared_ptr<Secrets> secrets) {
  // One attempt at a time; it lives as long as the function that made it.
  auto dial = std::make_shared<std::unique_ptr<Dial>>();
  return [&loop, address = std::move(address), secrets = std::move(secrets), dial](ControlClient::Connected done) {
    DialOptions options;
    options.role = LinkRole::kControl;
    options.secrets = secrets;
    *dial = std::make_unique<Dial>(loop, address, options, [done = std::move(done)](Result<Link> link) {
      if (!link.ok()) return done(link.status());
      done(std::move(link->stream));
    });
  };
}

}  // namespace manta::wire
