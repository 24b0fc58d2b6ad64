#include "control/etcd_keeper.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"

namespace manta::control {
namespace {

constexpr std::int64_t kRenewals = 8;    // in a term
constexpr std::int64_t kDriftPart = 10;  // of a term: what clocks may differ by, and more
constexpr std::int64_t kSaveAgainUs = 20'000;
constexpr std::int64_t kFarewellUs = 500'000;

std::string Compare(const std::string& key, const char* target, const char* field, std::int64_t revision) {
  return Cat(R"({"key":")", ToBase64(key), R"(","target":")", target, R"(","result":"EQUAL",")", field, R"(":")",
             revision, R"("})");
}
std::string Unchanged(const std::string& key, std::int64_t revision) {
  return Compare(key, "MOD", "mod_revision", revision);
}
std::string Absent(const std::string& key) { return Compare(key, "CREATE", "create_revision", 0); }
std::string Range(const std::string& key) { return Cat(R"({"request_range":{"key":")", ToBase64(key), R"("}})"); }
std::string Put(const std::string& key, const std::string& value, std::int64_t lease = 0) {
  return Cat(R"({"request_put":{"key":")", ToBase64(key), R"(","value":")", ToBase64(value), R"(","lease":")", lease,
             R"("}})");
}

}  // namespace

Result<std::unique_ptr<EtcdKeeper>> EtcdKeeper::Create(base::Loop& loop, EtcdOptions options) {
  std::unique_ptr<EtcdKeeper> keeper(new EtcdKeeper(loop, std::move(options)));
  Result<std::unique_ptr<EtcdClient>> client = EtcdClient::Create(loop, keeper->options_.servers);
  if (!client.ok()) return client.status();
  keeper->client_ = std::move(*client);
  return keeper;
}

EtcdKeeper::~EtcdKeeper() {
  *alive_ = false;
  if (renew_timer_ != 0) loop_.Cancel(renew_timer_);
  if (save_timer_ != 0) loop_.Cancel(save_timer_);
  client_.reset();
  if (!seated_) return;
  // On a loop of its own: nobody else is to be called back from here.
  Result<std::unique_ptr<base::Loop>> loop = base::Loop::Create();
  if (!loop.ok()) return;
  Result<std::unique_ptr<EtcdClient>> client = EtcdClient::Create(**loop, options_.servers);
  if (!client.ok()) return;
  bool done = false;
  (*client)->Ask("lease/revoke", Cat(R"({"ID":")", lease_, R"("})"), [&done](const Result<Json>&) { done = true; });
  const std::int64_t until = base::NowMicros() + kFarewellUs;
  while (!done && base::NowMicros() < until) (*loop)->RunOnce(10'000);
}

std::string EtcdKeeper::Where() const { return Cat("etcd (", ConfigKey(), ")"); }

void EtcdKeeper::Note(const std::string& text) const {
  if (options_.note) options_.note(text);
}

std::string EtcdKeeper::LookBody() const {
  return Cat(R"({"success":[)", Range(ConfigKey()), ",", Range(SeatKey()), "]}");
}

// With `config` as a new opening; without, only the seat, for the configuration that we have.
std::string EtcdKeeper::TakeBody(const std::string* config) const {
  const std::string seat = Put(SeatKey(), options_.name, lease_);
  return Cat(R"({"compare":[)", Absent(SeatKey()), ",", Unchanged(ConfigKey(), revision_), R"(],"success":[)", seat,
             config != nullptr ? "," + Put(ConfigKey(), *config) : std::string(), R"(],"failure":[)",
             Range(ConfigKey()), ",", Range(SeatKey()), "]}");
}

Result<EtcdKeeper::Found> EtcdKeeper::ReadFound(const Json& answer) {
  Found found;
  const Json& config = answer["responses"][std::size_t{0}]["response_range"]["kvs"][std::size_t{0}];
  const Json& seat = answer["responses"][std::size_t{1}]["response_range"]["kvs"][std::size_t{0}];
  found.config_revision = config["mod_revision"].Number();
  found.seat_lease = seat["lease"].Number();
  Result<std::string> value = FromBase64(config["value"].text);
  if (!value.ok()) return value.status();
  found.config = std::move(*value);
  Result<std::string> name = FromBase64(seat["value"].text);
  if (!name.ok()) return name.status();
  found.seat_name = std::move(*name);
  if (!seat.null() && found.seat_lease == 0) {
    return Status(Code::kCorrupt, Cat("the key of the front in etcd has no lease: somebody else than Manta wrote it"));
  }
  return found;
}

Result<SavedChain> EtcdKeeper::Look(base::Loop& loop, const EtcdOptions& options) {
  Result<std::unique_ptr<EtcdKeeper>> keeper = Create(loop, options);
  if (!keeper.ok()) return keeper.status();
  const Result<Json> answer = (*keeper)->client_->AskAndWait("kv/txn", (*keeper)->LookBody());
  if (!answer.ok()) return answer.status();
  const Result<Found> found = ReadFound(answer.value());
  if (!found.ok()) return found.status();
  if (found.value().config_revision == 0) return Status(Code::kNotFound, Cat("there is no ", (*keeper)->Where()));
  return DecodeChain(found.value().config, (*keeper)->Where());
}

Status EtcdKeeper::GrantLease() {
  lease_asked_us_ = base::NowMicros();
  const Result<Json> granted =
      client_->AskAndWait("lease/grant", Cat(R"({"TTL":")", options_.term_us / 1'000'000, R"("})"));
  if (!granted.ok()) return granted.status();
  lease_ = granted.value()["ID"].Number();
  return lease_ != 0 ? Status() : Status(Code::kCorrupt, "etcd granted a lease without a number");
}

Result<SavedChain> EtcdKeeper::Take(const Opening& opening) {
  std::string told;
  const auto wait = [&](const std::string& why) {
    if (why != std::exchange(told, why)) Note(why);
    const std::int64_t until = base::NowMicros() + options_.look_us;
    while (base::NowMicros() < until) loop_.RunOnce(options_.look_us);
  };
  for (;;) {
    if (options_.give_up && options_.give_up()) return Status(Code::kCancelled, "told to stop while waiting for etcd");
    const Result<Json> looked = client_->AskAndWait("kv/txn", LookBody());
    if (!looked.ok()) {
      if (looked.status().code() != Code::kUnavailable) return looked.status();
      wait(looked.status().message());
      continue;
    }
    Result<Found> found = ReadFound(looked.value());
    if (!found.ok()) return found.status();
    std::optional<SavedChain> last;
    if (found->config_revision != 0) {
      Result<SavedChain> read = DecodeChain(found->config, Where());
      if (!read.ok()) return read;
      last = std::move(*read);
    }
    if (found->seat_lease != 0 && found->seat_lease == lease_) {
      // It was made, only the answer was lost.
      revision_ = found->config_revision;
      saving_ = found->config;
    } else if (found->seat_lease != 0) {
      wait(Cat(found->seat_name, " is the front of the chain in ", Where(), "; waiting to take over"));
      continue;
    } else {
      Result<SavedChain> next = opening(std::move(last));
      if (!next.ok()) return next;
      // A new lease each time: an old one may be over.
      if (const Status granted = GrantLease(); !granted.ok()) {
        wait(granted.message());
        continue;
      }
      base::Failpoint("etcd.leased");
      revision_ = found->config_revision;
      saving_ = EncodeChain(*next);
      const Result<Json> taken = client_->AskAndWait("kv/txn", TakeBody(&saving_));
      if (!taken.ok()) {
        if (taken.status().code() != Code::kUnavailable && taken.status().code() != Code::kIo) return taken.status();
        wait(taken.status().message());
        continue;
      }
      if (!taken.value()["succeeded"].truth) continue;  // another one was quicker
      base::Failpoint("etcd.seated");
      revision_ = taken.value()["header"]["revision"].Number();
    }
    Result<SavedChain> mine = DecodeChain(std::exchange(saving_, {}), Where());
    if (!mine.ok()) return mine;
    seated_ = true;
    attached_ = true;
    Extend(lease_asked_us_);
    renew_timer_ = loop_.Every(options_.term_us / kRenewals, [this] { Renew(); });
    return mine;
  }
}

void EtcdKeeper::Extend(std::int64_t asked_us) {
  until_us_ = std::max(until_us_, asked_us + options_.term_us - options_.term_us / kDriftPart);
}

void EtcdKeeper::Renew() {
  if (renewing_ || !seated_) return;
  if (!attached_) return TakeAgain();
  renewing_ = true;
  const std::int64_t asked_us = base::NowMicros();
  client_->Ask("lease/keepalive", Cat(R"({"ID":")", lease_, R"("})"),
               [this, asked_us, alive = alive_](const Result<Json>& answer) {
                 if (!*alive) return;
                 renewing_ = false;
                 if (!answer.ok() || !seated_) return;  // the next one may succeed
                 if (answer.value()["result"]["TTL"].Number() > 0) return Extend(asked_us);
                 attached_ = false;
                 TakeAgain();
               });
}

// The lease is over: etcd did not hear of us for a term. If nobody has come meanwhile, nothing is lost.
void EtcdKeeper::TakeAgain() {
  if (!saving_.empty()) return;  // that one decides first whether the configuration is still ours
  renewing_ = true;
  const std::int64_t asked_us = base::NowMicros();
  const auto granted = [this, asked_us, alive = alive_](const Result<Json>& answer) {
    if (!*alive) return;
    renewing_ = false;
    if (!answer.ok() || !saving_.empty() || !seated_) return;
    const std::int64_t former = std::exchange(lease_, answer.value()["ID"].Number());
    renewing_ = true;
    client_->Ask("kv/txn", TakeBody(nullptr), [this, former, asked_us, alive](const Result<Json>& taken) {
      if (!*alive) return;
      renewing_ = false;
      if (!taken.ok() || !seated_) return;  // tried again; if it was made, under the lease that is `former` then
      if (taken.value()["succeeded"].truth) {
        base::Failpoint("etcd.retaken");
        attached_ = true;
        Note("the seat was lost and taken again: etcd had not heard of this front for a term");
        return Extend(asked_us);
      }
      const Result<Found> found = ReadFound(taken.value());
      if (!found.ok()) return;
      const bool ours = found.value().config_revision == revision_ && found.value().seat_lease == former;
      if (!ours) return Lose("another front has taken over while etcd did not hear of this one");
      lease_ = former;
      attached_ = true;  // the next renewal tells until when
    });
  };
  client_->Ask("lease/grant", Cat(R"({"TTL":")", options_.term_us / 1'000'000, R"("})"), granted);
}

void EtcdKeeper::Save(const SavedChain& chain, std::function<void(const Status&)> done) {
  saving_ = EncodeChain(chain);
  on_saved_ = std::move(done);
  TrySave();
}

void EtcdKeeper::TrySave() {
  const std::string body = Cat(R"({"compare":[)", Unchanged(ConfigKey(), revision_), R"(],"success":[)",
                               Put(ConfigKey(), saving_), R"(],"failure":[)", Range(ConfigKey()), "]}");
  client_->Ask("kv/txn", body, [this, alive = alive_](const Result<Json>& answer) {
    if (!*alive || saving_.empty()) return;
    if (!answer.ok()) {
      save_timer_ = loop_.After(kSaveAgainUs, [this] {
        save_timer_ = 0;
        TrySave();
      });
      return;
    }
    if (answer.value()["succeeded"].truth) {
      base::Failpoint("etcd.saved");
      revision_ = answer.value()["header"]["revision"].Number();
    } else {
      // An attempt of ours may have been made whose answer was lost.
      const Json& there = answer.value()["responses"][std::size_t{0}]["response_range"]["kvs"][std::size_t{0}];
      if (there["value"].text != ToBase64(saving_)) return Lose("another front has changed the configuration");
      revision_ = there["mod_revision"].Number();
    }
    saving_.clear();
    const auto done = std::exchange(on_saved_, nullptr);
    done({});
  });
}

void EtcdKeeper::Lose(const std::string& why) {
  seated_ = false;
  until_us_ = 0;
  saving_.clear();
  const Status lost(Code::kLost, Cat(why, " (", Where(), ")"));
  if (const auto done = std::exchange(on_saved_, nullptr)) done(lost);
  if (on_lost_) on_lost_(lost);
}

}  // namespace manta::control
