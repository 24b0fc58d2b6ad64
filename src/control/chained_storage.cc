#include "control/chained_storage.h"

#include <sys/random.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"

namespace manta::control {

ChainedStorage::ChainedStorage(base::Loop& loop, ChainedOptions options)
    : loop_(loop),
      options_(std::move(options)),
      keeper_(options_.keeper ? options_.keeper : std::make_shared<DiskKeeper>(loop, options_.folder)) {}

ChainedStorage::~ChainedStorage() {
  *alive_ = false;
  if (timer_ != 0) loop_.Cancel(timer_);
}

Result<std::unique_ptr<ChainedStorage>> ChainedStorage::Open(base::Loop& loop, ChainedOptions options) {
  std::unique_ptr<ChainedStorage> storage(new ChainedStorage(loop, std::move(options)));
  if (Status status = storage->Prepare(); !status.ok()) return status;
  storage->Connect();
  if (Status status = storage->Load(); !status.ok()) return status;
  return storage;
}

Status ChainedStorage::Prepare() {
  const auto opening = [this](std::optional<SavedChain> last) -> Result<SavedChain> {
    SavedChain next;
    if (last) {
      next = std::move(*last);
      const bool same = next.addresses.size() <= options_.addresses.size() &&
                        std::equal(next.addresses.begin(), next.addresses.end(), options_.addresses.begin());
      if (!same) {
        return Status(Code::kInvalid,
                      Cat("the chain in ", keeper_->Where(), " has other members: give its ", next.addresses.size(),
                          " addresses in the same order, and new ones after them"));
      }
    } else {
      if (getrandom(&next.chain, sizeof next.chain, 0) != sizeof next.chain) {
        return Status(Code::kIo, "no random numbers to name the chain with");
      }
      next.config.epoch = rules::kCopiedEpoch;
      next.config.members = {1};
    }
    next.addresses = options_.addresses;
    ++next.openings;
    return next;
  };
  Result<SavedChain> taken = keeper_->Take(opening);
  if (!taken.ok()) return taken.status();
  saved_ = std::move(*taken);
  base::Failpoint("front.taken");
  keeper_->OnLost([this, alive = alive_](const Status& why) {
    if (*alive) Stop(why);
  });
  front_ = DeriveId(saved_.chain, 1, saved_.openings);
  const std::int64_t now_us = base::NowMicros();
  master_ = std::make_unique<rules::ChainMaster>(now_us, saved_.config, options_.times);
  client_ = std::make_unique<rules::ChainClient>(front_, options_.times);
  master_->Hold(keeper_->UntilMicros());
  rules::ChainClientActions actions;
  client_->Receive(now_us, rules::ChainConfigure{saved_.config, 0}, &actions);
  return {};
}

void ChainedStorage::Connect() {
  for (std::size_t i = 0; i < options_.addresses.size(); ++i) {
    const auto member = static_cast<rules::MemberId>(i + 1);
    ChainLink::Callbacks callbacks;
    callbacks.on_up = [this, member] {
      rules::ChainClientActions actions;
      client_->Connected(base::NowMicros(), member, &actions);
      Perform(std::move(actions));
    };
    callbacks.on_down = [this, member](const Status&) { OnDown(member); };
    callbacks.on_message = [this, member](const rules::ChainMessage& message) { OnMessage(member, message); };
    links_[member] = std::make_unique<ChainLink>(
        loop_, ConnectTo(loop_, options_.addresses[i], options_.secrets), [this, member] { return HelloTo(member); },
        std::move(callbacks));
  }
  timer_ = loop_.Every(options_.times.renew_us, [this] { Tick(); });
}

ChainHello ChainedStorage::HelloTo(rules::MemberId member) {
  ChainHello hello;
  hello.chain = saved_.chain;
  hello.to = member;
  hello.opening = saved_.openings;
  // Grows with every link that any front makes, so that of two lives of a member the later has the higher number.
  hello.incarnation = (saved_.openings << 32) + next_incarnation_++;
  // The very first configuration names a member that is empty yet.
  const std::vector<rules::MemberId>& members = saved_.config.members;
  hello.counted_on =
      saved_.config.epoch > rules::kCopiedEpoch && std::find(members.begin(), members.end(), member) != members.end();
  hello.addresses = options_.addresses;
  return hello;
}

// The clients' stamps, from the tail. Whatever is written from then on is told to us, since the links are there.
Status ChainedStorage::Load() {
  std::optional<Result<ChainAnswer>> answer;
  Ask(ChainStampsRequest{}, [&answer](Result<ChainAnswer> result) { answer = std::move(result); });
  while (!answer) loop_.RunOnce(10'000);
  if (!answer->ok()) return answer->status();
  const auto* stamps = std::get_if<ChainStamps>(&**answer);
  if (stamps == nullptr) return Status(Code::kCorrupt, "a chain member answered something else than was asked");
  for (const ChainStamp& stamp : stamps->stamps) Remember(stamp.client, stamp.client_sequence, stamp.position);
  last_sequence_ = std::max(last_sequence_, stamps->last);
  return {};
}

// ---- master and client ----

void ChainedStorage::OnMessage(rules::MemberId member, const rules::ChainMessage& message) {
  const std::int64_t now_us = base::NowMicros();
  if (const auto* renew = std::get_if<rules::ChainRenew>(&message)) {
    if (renew->member != member) return;
    incarnations_[member] = renew->incarnation;
    rules::ChainMasterActions actions;
    master_->Hold(keeper_->UntilMicros());
    master_->Receive(now_us, message, &actions);
    Perform(std::move(actions));
    if (master_->outdated()) {
      Stop(Status(Code::kLost,
                  Cat("member ", member, " of the chain follows epoch ", renew->epoch, ", but ", keeper_->Where(),
                      " knows only ", master_->config().epoch, ": it is an old copy; put back the last one")));
    }
    return;
  }
  if (const auto* written = std::get_if<rules::ChainWritten>(&message)) {
    // Also what somebody before us asked for.
    if (written->client != front_) Remember(written->client, written->sequence, written->position);
    last_sequence_ = std::max(last_sequence_, written->position);
  }
  rules::ChainClientActions actions;
  client_->Receive(now_us, message, &actions);
  Perform(std::move(actions));
}

void ChainedStorage::OnDown(rules::MemberId member) {
  const auto it = incarnations_.find(member);
  if (it == incarnations_.end()) return;
  // On this machine a closed connection means that its process, or the member in it, has ended. From elsewhere it may
  // be a lie of the network: then the lease is waited for.
  const std::string& address = options_.addresses[member - 1];
  const bool certain = address.starts_with("@") || address.starts_with("127.") || address.starts_with("[::1]") ||
                       address.starts_with("localhost:");
  rules::ChainMasterActions actions;
  master_->Gone(base::NowMicros(), member, it->second, certain, &actions);
  incarnations_.erase(it);
  Perform(std::move(actions));
}

void ChainedStorage::Tick() {
  const std::int64_t now_us = base::NowMicros();
  rules::ChainMasterActions master;
  master_->Hold(keeper_->UntilMicros());
  master_->Tick(now_us, &master);
  Perform(std::move(master));
  rules::ChainClientActions client;
  client_->Tick(now_us, &client);
  Perform(std::move(client));
  const std::shared_ptr<bool> alive = alive_;
  while (!asked_.empty() && asked_.begin()->second.until_us <= now_us) {
    const std::uint64_t number = asked_.begin()->first;
    const Asked asked = std::move(asked_.begin()->second);
    asked_.erase(asked_.begin());
    client_->GiveUp(number);
    const Status why(Code::kUnavailable, Cat("the chain has not answered for ", options_.patience_us / 1000, " ms (",
                                             Describe(), "); are its members running?"));
    if (asked.on_applied) asked.on_applied(why);
    if (asked.on_answer) asked.on_answer(why);
    if (!*alive) return;
  }
}

void ChainedStorage::Perform(rules::ChainMasterActions actions) {
  for (rules::ChainMasterAction& action : actions) {
    if (auto* send = std::get_if<rules::ChainSend>(&action)) {
      const bool tells = std::holds_alternative<rules::ChainConfigure>(send->message);
      const bool grants = std::holds_alternative<rules::ChainGrant>(send->message);
      Send(send->to, std::move(send->message));
      if (tells) base::Failpoint("front.told");
      if (grants) base::Failpoint("front.granted");
    } else if (auto* publish = std::get_if<rules::ChainPublish>(&action)) {
      rules::ChainClientActions more;
      client_->Receive(base::NowMicros(), rules::ChainConfigure{publish->config, 0}, &more);
      Perform(std::move(more));
      if (on_config_) on_config_();
    } else if (auto* save = std::get_if<rules::ChainSave>(&action)) {
      SavedChain next = saved_;
      next.config = save->config;
      base::Failpoint("front.saving");
      keeper_->Save(next, [this, config = save->config, alive = alive_](const Status& status) {
        if (!*alive || !stopped_.ok()) return;
        if (!status.ok()) return Stop(status);
        base::Failpoint("front.saved");
        saved_.config = config;
        rules::ChainMasterActions more;
        master_->Saved(base::NowMicros(), config.epoch, &more);
        Perform(std::move(more));
      });
    }
  }
}

void ChainedStorage::Perform(rules::ChainClientActions actions) {
  const std::shared_ptr<bool> alive = alive_;
  for (rules::ChainClientAction& action : actions) {
    if (auto* send = std::get_if<rules::ChainSend>(&action)) {
      Send(send->to, std::move(send->message));
      continue;
    }
    const auto* written = std::get_if<rules::ChainWriteDone>(&action);
    auto* read = std::get_if<rules::ChainReadDone>(&action);
    const auto it = asked_.find(written != nullptr ? written->number : read->number);
    if (it == asked_.end()) continue;
    const Asked asked = std::move(it->second);
    asked_.erase(it);
    if (written != nullptr) {
      Remember(asked.client, asked.client_sequence, written->position);
      last_sequence_ = std::max(last_sequence_, written->position);
      asked.on_applied(written->position);
    } else {
      asked.on_answer(FromBytes<ChainAnswer>(read->value));
    }
    if (!*alive) return;
  }
}

void ChainedStorage::Send(const rules::ChainPeer& to, rules::ChainMessage message) {
  if (to.kind == rules::ChainPeer::Kind::kMember) {
    const auto it = links_.find(to.member);
    if (it != links_.end()) it->second->Send(ChainPacket{std::move(message)});
  } else if (to.kind == rules::ChainPeer::Kind::kMaster) {
    rules::ChainClientActions actions;  // the client's question is answered here
    client_->Receive(base::NowMicros(), rules::ChainConfigure{master_->config(), 0}, &actions);
    Perform(std::move(actions));
  }
}

void ChainedStorage::Stop(const Status& why) {
  if (!stopped_.ok()) return;
  stopped_ = why;
  loop_.Cancel(std::exchange(timer_, 0));
  // Nobody who still has a lease is to be asked, and nobody to be told anything, from here.
  loop_.After(0, [this, alive = alive_] {
    if (!*alive) return;
    links_.clear();
    if (options_.on_stop) return options_.on_stop(stopped_);  // what was asked goes to the other front, unanswered here
    std::map<std::uint64_t, Asked> asked = std::exchange(asked_, {});
    for (auto& [number, one] : asked) {
      if (one.on_applied) one.on_applied(stopped_);
      if (*alive && one.on_answer) one.on_answer(stopped_);
      if (!*alive) return;
    }
  });
}

void ChainedStorage::Refuse(const std::function<void()>& say) const {
  if (!options_.on_stop) say();
}

std::string ChainedStorage::Describe() const {
  const rules::ChainConfig& config = master_->config();
  std::string text = Cat("epoch ", config.epoch, ":");
  for (const rules::MemberId member : config.members) text += Cat(" ", member);
  if (config.joiner != rules::kNoMember) text += Cat(" (", config.joiner, " joins)");
  for (const auto& [member, link] : links_) {
    if (!link->trouble().ok()) text += Cat("; member ", member, ": ", link->trouble().message());
  }
  return text;
}

// ---- storage ----

void ChainedStorage::Apply(Batch batch, OnApplied done) {
  if (!stopped_.ok()) return Refuse([&] { done(stopped_); });
  if (batch.sequence != 0) return done(Status(Code::kInvalid, "the head of a chain gives the sequence of a batch"));
  const std::int64_t now_us = base::NowMicros();
  rules::ChainClientActions actions;
  std::string payload = ToBytes(batch.writes);
  const std::uint64_t number = batch.client.empty() ? client_->Write(now_us, std::move(payload), &actions)
                                                    : client_->WriteFor(now_us, batch.client, batch.client_sequence,
                                                                        std::move(payload), &actions);
  Asked& asked = asked_[number];
  asked.until_us = now_us + options_.patience_us;
  asked.client = batch.client;
  asked.client_sequence = batch.client_sequence;
  asked.on_applied = std::move(done);
  Perform(std::move(actions));
}

void ChainedStorage::Ask(const ChainRequest& request, std::function<void(Result<ChainAnswer>)> done) {
  if (!stopped_.ok()) return Refuse([&] { done(stopped_); });
  const std::int64_t now_us = base::NowMicros();
  rules::ChainClientActions actions;
  const std::uint64_t number = client_->Read(now_us, ToBytes(request), &actions);
  Asked& asked = asked_[number];
  asked.until_us = now_us + options_.patience_us;
  asked.on_answer = std::move(done);
  Perform(std::move(actions));
}

namespace {

// The alternative that was asked for, or why there is none.
template <typename T>
Result<T> Expect(Result<ChainAnswer>& answer) {
  if (!answer.ok()) return answer.status();
  if (auto* value = std::get_if<T>(&*answer)) return std::move(*value);
  if (const auto* failure = std::get_if<ChainFailure>(&*answer)) {
    return Status(static_cast<Code>(failure->code), failure->message);
  }
  return Status(Code::kCorrupt, "a chain member answered something else than was asked");
}

}  // namespace

void ChainedStorage::Get(Table table, std::string key, OnValue done) {
  Ask(ChainGetRequest{table, std::move(key)},
      [done = std::move(done)](Result<ChainAnswer> answer) { done(Expect<std::optional<Entry>>(answer)); });
}

void ChainedStorage::Scan(Table table, std::string prefix, std::string after, std::size_t limit, OnPage done) {
  Ask(ChainScanRequest{table, std::move(prefix), std::move(after), limit},
      [done = std::move(done)](Result<ChainAnswer> answer) { done(Expect<Page>(answer)); });
}

void ChainedStorage::Remember(const Id& client, std::uint64_t client_sequence, std::uint64_t position) {
  if (client.empty()) return;
  std::vector<Stamp>& stamps = clients_[client];
  const std::size_t slot = client_sequence % wire::kControlWindow;
  if (stamps.size() <= slot) stamps.resize(slot + 1);
  if (stamps[slot].client_sequence <= client_sequence) stamps[slot] = Stamp{client_sequence, position};
}

std::uint64_t ChainedStorage::Applied(const Id& client, std::uint64_t client_sequence) const {
  const auto it = clients_.find(client);
  if (it == clients_.end()) return 0;
  const std::size_t slot = client_sequence % wire::kControlWindow;
  if (slot >= it->second.size() || it->second[slot].client_sequence != client_sequence) return 0;
  return it->second[slot].sequence;
}

void ChainedStorage::EachStamp(const OnStamp& take) const {
  for (const auto& [client, stamps] : clients_) {
    for (const Stamp& stamp : stamps) {
      if (stamp.sequence != 0) take(client, stamp.client_sequence, stamp.sequence);
    }
  }
}

void ChainedStorage::Forget(const Id& client) {
  clients_.erase(client);
  for (const auto& [member, link] : links_) link->Send(ChainForget{client});
}

std::vector<Id> ChainedStorage::Clients() const {
  std::vector<Id> clients;
  clients.reserve(clients_.size());
  for (const auto& [client, stamps] : clients_) clients.push_back(client);
  return clients;
}

void ChainedStorage::EntriesAfter(std::uint64_t, std::size_t, OnBatches done) {
  done(Status(Code::kNotFound, "the log is with the members of the chain, not with its front"));
}

}  // namespace manta::control
