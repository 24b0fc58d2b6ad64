#include "control/redis_storage.h"

#include <algorithm>
#include <charconv>

#include "base/clock.h"
#include "manta/codec.h"

namespace manta::control {
namespace {

constexpr std::int64_t kFirstPause = 2'000;  // microseconds
constexpr std::int64_t kLongestPause = 200'000;
constexpr std::size_t kLogPage = 100;  // batches
// A server on this machine answers a request about when we would have fallen asleep, its own waking included.
constexpr std::int64_t kSoonUs = 150;

std::uint64_t ToNumber(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// "<version> <value>"
Result<Entry> ToEntry(std::string key, const std::string& stored) {
  const std::size_t space = stored.find(' ');
  if (space == std::string::npos || space == 0 || space > 20) {
    return Status(Code::kCorrupt, Cat("the value of key ", key, " in Redis was not written by Manta"));
  }
  return Entry{std::move(key), ToNumber(std::string_view(stored).substr(0, space)), stored.substr(space + 1)};
}

Status Unexpected(const RespReply& reply) {
  if (!reply.is_error()) return Status(Code::kCorrupt, "Redis answered with another type than it should");
  if (reply.text.starts_with("OOM")) {
    return Status(Code::kOutOfMemory, Cat("Redis is out of memory (", reply.text, "); raise its maxmemory"));
  }
  if (reply.text.starts_with("LOADING") || reply.text.starts_with("BUSY") || reply.text.starts_with("MASTERDOWN")) {
    return Status(Code::kUnavailable, Cat("Redis is not ready: ", reply.text));
  }
  if (reply.text.starts_with("NOAUTH") || reply.text.starts_with("WRONGPASS") || reply.text.starts_with("ERR AUTH") ||
      reply.text.starts_with("ERR Client sent AUTH")) {
    return Status(Code::kInvalid, Cat("Redis refuses the password: ", reply.text));
  }
  if (reply.text.starts_with("WRONGTYPE")) {
    return Status(Code::kCorrupt, Cat("something else than Manta uses its keys in Redis: ", reply.text));
  }
  return Status(Code::kIo, Cat("Redis refuses: ", reply.text));
}

// The ids of those connections that go by this name, except our own.
std::vector<std::string> OthersNamed(const std::string& list, const std::string& name, std::int64_t own) {
  std::vector<std::string> ids;
  std::size_t start = 0;
  while (start < list.size()) {
    const std::size_t end = std::min(list.find('\n', start), list.size());
    const std::string line = " " + list.substr(start, end - start) + " ";
    start = end + 1;
    if (line.find(" name=" + name + " ") == std::string::npos) continue;
    const std::size_t id = line.find(" id=");
    if (id == std::string::npos) continue;
    const std::string number = line.substr(id + 4, line.find(' ', id + 4) - id - 4);
    if (number != std::to_string(own)) ids.push_back(number);
  }
  return ids;
}

// Asks and waits; for the opening, on a loop of its own.
class Asking {
 public:
  Asking(base::Loop& loop, std::int64_t until)
      : loop_(loop), until_(until), connection_(loop, [this](const Status& why) { closed_ = why; }) {}

  Status Connect(const RedisAddress& address) { return connection_.Start(address); }
  Result<RespReply> Ask(std::initializer_list<std::string_view> words) {
    std::string command;
    AppendCommand(&command, words);
    std::optional<RespReply> answer;
    connection_.Send(command, 1, [&](std::vector<RespReply>& replies) { answer = std::move(replies[0]); });
    while (!answer && closed_.ok()) {
      const std::int64_t left = until_ - base::NowMicros();
      if (left <= 0) return Status(Code::kUnavailable, "Redis does not answer in time");
      loop_.RunOnce(left);
    }
    if (!answer) return closed_;
    if (answer->is_error()) return Unexpected(*answer);
    return std::move(*answer);
  }

 private:
  base::Loop& loop_;
  std::int64_t until_;
  Status closed_;
  RedisConnection connection_;
};

}  // namespace

// All members of a chain write at the same time: those on one machine that look would take the cores from the others.
RedisStorage::RedisStorage(base::Loop& loop, RedisOptions options, RedisAddress address)
    : loop_(loop),
      options_(std::move(options)),
      address_(std::move(address)),
      rhythm_(options_.keep_log_entries > 0 ? 0 : kSoonUs) {}

Result<std::unique_ptr<RedisStorage>> RedisStorage::Open(base::Loop& loop, RedisOptions options) {
  Result<RedisAddress> address = ResolveRedis(options.address);
  if (!address.ok()) return address.status();
  if (!address->local && options.password.empty()) {
    return Status(Code::kInvalid, Cat("Redis at ", options.address,
                                      " over TCP needs a password (requirepass in its configuration), or everybody on "
                                      "this machine could write; or use its Unix socket"));
  }
  const std::int64_t until = base::NowMicros() + options.patience_us;
  std::unique_ptr<RedisStorage> storage(new RedisStorage(loop, std::move(options), std::move(*address)));
  // One that is just starting is worth a moment.
  Status status = storage->Load();
  while (status.code() == Code::kUnavailable && base::NowMicros() < until) {
    Result<std::unique_ptr<base::Loop>> pause = base::Loop::Create();
    if (!pause.ok()) return pause.status();
    (*pause)->RunOnce(50'000);
    status = storage->Load();
  }
  if (!status.ok()) return Status(status.code(), Cat("Redis at ", storage->options_.address, ": ", status.message()));
  storage->StartConnecting();
  return storage;
}

// Takes the server over, and learns what is in it.
Status RedisStorage::Load() {
  Result<std::unique_ptr<base::Loop>> loop = base::Loop::Create();
  if (!loop.ok()) return loop.status();
  Asking redis(**loop, base::NowMicros() + options_.patience_us);
  if (Status status = redis.Connect(address_); !status.ok()) return status;
  if (!options_.password.empty()) {
    if (const Result<RespReply> reply = redis.Ask({"AUTH", options_.password}); !reply.ok()) return reply.status();
  }
  const std::string state = Key("state");
  const Result<RespReply> epoch = redis.Ask({"HINCRBY", state, "e", "1"});
  if (!epoch.ok()) return epoch.status();
  const Result<RespReply> list = redis.Ask({"CLIENT", "LIST"});
  if (!list.ok()) return list.status();
  for (const std::string& id : OthersNamed(list.value().text, ClientName(), 0)) {
    // Gone already is as good.
    static_cast<void>(redis.Ask({"CLIENT", "KILL", "ID", id}));
  }
  const Result<RespReply> sequence = redis.Ask({"HGET", state, "s"});
  if (!sequence.ok()) return sequence.status();
  epoch_ = static_cast<std::uint64_t>(epoch.value().number);
  last_sequence_ = ToNumber(sequence.value().text);
  next_sequence_ = last_sequence_ + 1;
  clients_.clear();
  std::string cursor = "0";
  const std::string pattern = Key("c:");
  do {
    const Result<RespReply> page = redis.Ask({"SCAN", cursor, "MATCH", pattern + "*", "COUNT", "1000"});
    if (!page.ok()) return page.status();
    if (page.value().items.size() != 2) return Unexpected(page.value());
    cursor = page.value().items[0].text;
    for (const RespReply& key : page.value().items[1].items) {
      Id client;
      if (!FromHex(key.text.substr(pattern.size()), &client)) continue;
      const Result<RespReply> stamps = redis.Ask({"HVALS", key.text});
      if (!stamps.ok()) return stamps.status();
      for (const RespReply& stamp : stamps.value().items) {
        const std::size_t space = stamp.text.find(' ');
        if (space == std::string::npos) continue;
        Remember(client, Stamp{ToNumber(stamp.text), ToNumber(std::string_view(stamp.text).substr(space + 1))});
      }
    }
  } while (cursor != "0");
  return {};
}

Status RedisStorage::Erase(const RedisOptions& options) {
  const Result<RedisAddress> address = ResolveRedis(options.address);
  if (!address.ok()) return address.status();
  Result<std::unique_ptr<base::Loop>> loop = base::Loop::Create();
  if (!loop.ok()) return loop.status();
  Asking redis(**loop, base::NowMicros() + options.patience_us);
  if (Status status = redis.Connect(address.value()); !status.ok()) return status;
  if (!options.password.empty()) {
    if (const Result<RespReply> reply = redis.Ask({"AUTH", options.password}); !reply.ok()) return reply.status();
  }
  std::string cursor = "0";
  do {
    const Result<RespReply> page = redis.Ask({"SCAN", cursor, "MATCH", options.prefix + "*", "COUNT", "1000"});
    if (!page.ok()) return page.status();
    if (page.value().items.size() != 2) return Unexpected(page.value());
    cursor = page.value().items[0].text;
    for (const RespReply& key : page.value().items[1].items) {
      if (const Result<RespReply> reply = redis.Ask({"UNLINK", key.text}); !reply.ok()) return reply.status();
    }
  } while (cursor != "0");
  return {};
}

RedisStorage::~RedisStorage() {
  *alive_ = false;
  if (connecting_ != 0) loop_.Cancel(connecting_);
  if (timer_ != 0) loop_.Cancel(timer_);
}

std::string RedisStorage::TableKey(Table table) const { return Key(std::string("t:") + NameOf(table)); }
std::string RedisStorage::IndexKey(Table table) const { return Key(std::string("i:") + NameOf(table)); }

// ---- what is asked ----

void RedisStorage::Apply(Batch batch, OnApplied done) {
  if (batch.sequence == 0) batch.sequence = next_sequence_;
  if (batch.sequence < next_sequence_) {
    return done(Status(Code::kInvalid, Cat("batch ", batch.sequence, " comes after ", next_sequence_ - 1)));
  }
  next_sequence_ = batch.sequence + 1;
  if (batch.epoch == 0) batch.epoch = epoch_;
  const std::string version = std::to_string(batch.sequence);
  Asked asked;
  asked.replies = 2;
  std::string& out = asked.commands;
  AppendCommand(&out, {"MULTI"});
  const auto add = [&](std::initializer_list<std::string_view> words) {
    AppendCommand(&out, words);
    ++asked.replies;
  };
  std::string log;
  if (options_.keep_log_entries > 0) {
    log.resize(EncodedSize(batch));
    Encode(batch, std::as_writable_bytes(std::span(log)));
  }
  for (const Write& write : batch.writes) {
    if (write.value) {
      add({"HSET", TableKey(write.table), write.key, version + " " + *write.value});
      add({"ZADD", IndexKey(write.table), "0", write.key});
    } else {
      add({"HDEL", TableKey(write.table), write.key});
      add({"ZREM", IndexKey(write.table), write.key});
    }
  }
  if (!batch.client.empty()) {
    add({"HSET", Key("c:" + ToHex(batch.client)), std::to_string(batch.client_sequence % wire::kControlWindow),
         std::to_string(batch.client_sequence) + " " + version});
  }
  add({"HSET", Key("state"), "s", version});
  if (!log.empty()) {
    add({"XADD", Key("log"), "MAXLEN", "~", std::to_string(options_.keep_log_entries), version + "-0", "b", log});
  }
  AppendCommand(&out, {"EXEC"});
  asked.sequence = batch.sequence;
  asked.client = batch.client;
  asked.client_sequence = batch.client_sequence;
  asked.on_applied = std::move(done);
  Ask(std::move(asked));
}

void RedisStorage::Get(Table table, std::string key, OnValue done) {
  std::string command;
  AppendCommand(&command, {"HGET", TableKey(table), key});
  Read(
      std::move(command), 1,
      [key = std::move(key), done](std::vector<RespReply>& replies) {
        if (replies[0].is_null()) return done(std::optional<Entry>());
        if (replies[0].type != RespReply::Type::kBytes) return done(Unexpected(replies[0]));
        Result<Entry> entry = ToEntry(key, replies[0].text);
        if (!entry.ok()) return done(entry.status());
        done(std::optional<Entry>(std::move(*entry)));
      },
      [done](const Status& why) { done(why); });
}

void RedisStorage::Scan(Table table, std::string prefix, std::string after, std::size_t limit, OnPage done) {
  if (limit == 0 || limit > kPageEntries) limit = kPageEntries;
  const std::string from = after.empty() || after < prefix ? "[" + prefix : "(" + after;
  const std::string next = AfterPrefix(prefix);
  const std::string to = next.empty() ? "+" : "(" + next;
  const auto on_failure = [done](const Status& why) { done(why); };
  std::string command;
  // One more than asked for: whether there are more.
  AppendCommand(&command, {"ZRANGEBYLEX", IndexKey(table), from, to, "LIMIT", "0", std::to_string(limit + 1)});
  Read(
      std::move(command), 1,
      [this, table, prefix, limit, done, on_failure](std::vector<RespReply>& replies) {
        if (replies[0].type != RespReply::Type::kArray) return done(Unexpected(replies[0]));
        std::vector<std::string> words{"HMGET", TableKey(table)};
        const bool more = replies[0].items.size() > limit;
        if (more) replies[0].items.resize(limit);
        for (RespReply& key : replies[0].items) words.push_back(std::move(key.text));
        if (words.size() == 2) return done(Page{});
        std::string values;
        AppendCommand(&values, words);
        Read(
            std::move(values), 1,
            [this, table, prefix, limit, words, more, done](std::vector<RespReply>& found) {
              if (found[0].items.size() != words.size() - 2) return done(Unexpected(found[0]));
              Page page;
              page.more = more;
              std::size_t bytes = 0;
              for (std::size_t i = 0; i < found[0].items.size(); ++i) {
                if (bytes >= kPageBytes) {
                  page.more = true;
                  break;
                }
                if (found[0].items[i].is_null()) continue;  // deleted between the two
                Result<Entry> entry = ToEntry(words[i + 2], found[0].items[i].text);
                if (!entry.ok()) return done(entry.status());
                bytes += entry->key.size() + entry->value.size();
                page.entries.push_back(std::move(*entry));
              }
              // All were deleted meanwhile, and who asked needs a key to go on from.
              if (page.more && page.entries.empty()) return Scan(table, prefix, words.back(), limit, done);
              done(std::move(page));
            },
            on_failure);
      },
      on_failure);
}

void RedisStorage::EntriesAfter(std::uint64_t sequence, std::size_t limit, OnBatches done) {
  if (sequence >= last_sequence_) return done(std::vector<Batch>());
  const std::string log = Key("log");
  std::string commands;
  AppendCommand(&commands, {"XRANGE", log, "-", "+", "COUNT", "1"});
  AppendCommand(&commands, {"XRANGE", log, "(" + std::to_string(sequence) + "-0", "+", "COUNT",
                            std::to_string(std::min(limit, kLogPage))});
  Read(
      std::move(commands), 2,
      [this, sequence, done](std::vector<RespReply>& replies) {
        for (const RespReply& reply : replies) {
          if (reply.type != RespReply::Type::kArray) return done(Unexpected(reply));
        }
        const std::uint64_t first = replies[0].items.empty() || replies[0].items[0].items.empty()
                                        ? last_sequence_ + 1
                                        : ToNumber(replies[0].items[0].items[0].text);
        if (first > sequence + 1) {
          return done(Status(Code::kNotFound, Cat("the log in Redis starts with batch ", first, ", but those after ",
                                                  sequence, " were asked for: copy everything instead")));
        }
        std::vector<Batch> batches;
        for (const RespReply& entry : replies[1].items) {
          if (entry.items.size() != 2 || entry.items[1].items.size() != 2) return done(Unexpected(entry));
          try {
            batches.push_back(Decode<Batch>(std::as_bytes(std::span(entry.items[1].items[1].text))));
          } catch (const Error& error) {
            return done(Status(Code::kCorrupt, Cat("a batch in the log in Redis does not decode: ", error.what())));
          }
        }
        done(std::move(batches));
      },
      [done](const Status& why) { done(why); });
}

std::uint64_t RedisStorage::Applied(const Id& client, std::uint64_t client_sequence) const {
  const auto it = clients_.find(client);
  if (it == clients_.end()) return 0;
  const std::size_t slot = client_sequence % wire::kControlWindow;
  if (slot >= it->second.size() || it->second[slot].client_sequence != client_sequence) return 0;
  return it->second[slot].sequence;
}

void RedisStorage::Remember(const Id& client, const Stamp& stamp) {
  std::vector<Stamp>& stamps = clients_[client];
  const std::size_t slot = stamp.client_sequence % wire::kControlWindow;
  if (stamps.size() <= slot) stamps.resize(slot + 1);
  stamps[slot] = stamp;
}

void RedisStorage::EachStamp(const OnStamp& take) const {
  for (const auto& [client, stamps] : clients_) {
    for (const Stamp& stamp : stamps) {
      if (stamp.sequence != 0) take(client, stamp.client_sequence, stamp.sequence);
    }
  }
}

void RedisStorage::Forget(const Id& client) {
  if (clients_.erase(client) == 0) return;
  std::string command;
  AppendCommand(&command, {"DEL", Key("c:" + ToHex(client))});
  // If it does not get there, the next process that opens the storage forgets it.
  Read(std::move(command), 1, [](std::vector<RespReply>&) {}, [](const Status&) {});
}

std::vector<Id> RedisStorage::Clients() const {
  std::vector<Id> clients;
  clients.reserve(clients_.size());
  for (const auto& [client, stamps] : clients_) clients.push_back(client);
  return clients;
}

// ---- how it is asked ----

void RedisStorage::Read(std::string commands, std::size_t replies, RedisConnection::OnReplies on_replies,
                        std::function<void(const Status&)> on_failure) {
  Asked asked;
  asked.commands = std::move(commands);
  asked.replies = replies;
  asked.on_replies = std::move(on_replies);
  asked.on_failure = std::move(on_failure);
  Ask(std::move(asked));
}

void RedisStorage::Ask(Asked asked) {
  if (!stopped_.ok()) return asked.sequence != 0 ? asked.on_applied(stopped_) : asked.on_failure(stopped_);
  const std::int64_t now = base::NowMicros();
  const std::int64_t look_us = rhythm_.Asked(now, asked_.empty());
  asked.until = now + options_.patience_us;
  asked_.push_back(std::move(asked));
  if (ready_) SendFirst(asked_.back());
  if (look_us > 0) loop_.Expect(look_us);
  if (timer_ == 0) SetTimer();
}

void RedisStorage::SendFirst(Asked& asked) {
  connection_->Send(asked.commands, asked.replies, [this](std::vector<RespReply>& replies) { OnReplies(replies); });
}

// Replies come in the order of asked_.
void RedisStorage::OnReplies(std::vector<RespReply>& replies) {
  Asked asked = std::move(asked_.front());
  asked_.pop_front();
  if (asked_.empty()) {
    loop_.Expect(rhythm_.Answered(base::NowMicros(), asked.until - options_.patience_us));
  }
  // A server that is loading its data refuses everything for a while; who asked waits for it.
  for (const RespReply& reply : replies) {
    if (!reply.is_error() || !reply.text.starts_with("LOADING")) continue;
    asked_.push_front(std::move(asked));
    return connection_->Close(Unexpected(reply));
  }
  if (asked.sequence != 0) return OnExec(asked, replies);
  if (asked.on_replies) asked.on_replies(replies);
}

void RedisStorage::OnExec(Asked& asked, const std::vector<RespReply>& replies) {
  Status status;
  // The reason stands at the command that was refused; EXEC says only that there was one.
  for (const RespReply& reply : replies) {
    if (reply.is_error() && status.ok()) status = Unexpected(reply);
  }
  const RespReply& executed = replies.back();
  if (executed.type != RespReply::Type::kArray && status.ok()) status = Unexpected(executed);
  for (const RespReply& item : executed.items) {
    if (item.is_error() && status.ok()) status = Unexpected(item);
  }
  if (status.ok()) {
    last_sequence_ = asked.sequence;
    if (!asked.client.empty()) Remember(asked.client, Stamp{asked.client_sequence, asked.sequence});
  }
  if (!asked.on_applied) return;  // given up meanwhile
  if (status.ok()) {
    asked.on_applied(asked.sequence);
  } else {
    asked.on_applied(status);
  }
}

// ---- the connection ----

void RedisStorage::StartConnecting() {
  if (lost_since_ == 0) lost_since_ = base::NowMicros();
  connect_until_ = base::NowMicros() + options_.patience_us;
  connection_ = std::make_unique<RedisConnection>(loop_, [this](const Status& why) { OnLost(why); });
  if (Status status = connection_->Start(address_); !status.ok()) return OnLost(status);
  Greet();
  if (timer_ == 0) SetTimer();
}

void RedisStorage::OnLost(const Status& why) {
  connection_.reset();
  if (std::exchange(ready_, false)) {
    lost_since_ = base::NowMicros();
    pause_us_ = 0;
  }
  trouble_ = why;
  if (!stopped_.ok()) return;
  connecting_ = loop_.After(pause_us_, [this] {
    connecting_ = 0;
    StartConnecting();
  });
  pause_us_ = std::clamp(pause_us_ * 2, kFirstPause, kLongestPause);
}

void RedisStorage::Greet() {
  std::string commands;
  std::size_t replies = 0;
  const auto add = [&](std::initializer_list<std::string_view> words) {
    AppendCommand(&commands, words);
    ++replies;
  };
  if (!options_.password.empty()) add({"AUTH", options_.password});
  add({"CLIENT", "SETNAME", ClientName()});
  add({"CLIENT", "ID"});
  add({"HGET", Key("state"), "e"});
  add({"CLIENT", "LIST"});
  connection_->Send(commands, replies, [this](std::vector<RespReply>& answers) { OnGreeted(answers); });
}

void RedisStorage::OnGreeted(const std::vector<RespReply>& replies) {
  for (const RespReply& reply : replies) {
    if (reply.is_error()) return connection_->Close(Unexpected(reply));
  }
  const std::size_t first = replies.size() - 3;
  const std::uint64_t epoch = ToNumber(replies[first + 1].text);
  if (epoch > epoch_) {
    return Stop(Status(Code::kUnavailable, Cat("another control process has taken Redis at ", options_.address,
                                               " over (epoch ", epoch, ", this one has ", epoch_, ")")));
  }
  std::string commands;
  std::size_t count = 0;
  for (const std::string& id : OthersNamed(replies[first + 2].text, ClientName(), replies[first].number)) {
    AppendCommand(&commands, {"CLIENT", "KILL", "ID", id});
    ++count;
  }
  AppendCommand(&commands, {"HMGET", Key("state"), "e", "s"});
  connection_->Send(commands, count + 1, [this](std::vector<RespReply>& answers) { OnState(answers); });
}

void RedisStorage::OnState(const std::vector<RespReply>& replies) {
  const RespReply& state = replies.back();
  if (state.items.size() != 2) return connection_->Close(Unexpected(state));
  const std::uint64_t epoch = ToNumber(state.items[0].text);
  const std::uint64_t sequence = ToNumber(state.items[1].text);
  if (epoch < epoch_ || sequence < last_sequence_) {
    return Stop(
        Status(Code::kLost,
               Cat("Redis at ", options_.address, " came back without batches ", sequence + 1, " to ", last_sequence_,
                   " that it had acknowledged: set appendonly yes and "
                   "appendfsync always in its configuration, then start the control process again")));
  }
  const std::shared_ptr<bool> alive = alive_;
  ready_ = true;
  pause_us_ = 0;
  trouble_ = {};
  lost_since_ = 0;
  // What took effect before the connection was lost is answered; what did not is sent again, unless it was given up, or
  // an earlier attempt at the same write turns out to have taken effect.
  std::deque<Asked> again = std::exchange(asked_, {});
  std::vector<std::pair<OnApplied, std::uint64_t>> applied;
  for (Asked& asked : again) {
    const bool took_effect = asked.sequence != 0 && asked.sequence <= sequence;
    if (took_effect) {
      last_sequence_ = std::max(last_sequence_, asked.sequence);
      if (!asked.client.empty()) Remember(asked.client, Stamp{asked.client_sequence, asked.sequence});
    }
    const std::uint64_t before = asked.client.empty() ? 0 : Applied(asked.client, asked.client_sequence);
    if (took_effect || before != 0) {
      if (asked.on_applied) applied.emplace_back(std::move(asked.on_applied), took_effect ? asked.sequence : before);
    } else if (asked.on_applied || asked.on_replies) {
      asked_.push_back(std::move(asked));
      SendFirst(asked_.back());
    }
  }
  for (const auto& [on_applied, version] : applied) {
    on_applied(version);
    if (!*alive) return;
  }
}

void RedisStorage::Stop(const Status& why) {
  stopped_ = why;
  connection_->Close(why);
  FailAll(why);
}

void RedisStorage::FailAll(const Status& why) {
  const std::shared_ptr<bool> alive = alive_;
  std::deque<Asked> failed = std::exchange(asked_, {});
  for (Asked& asked : failed) {
    if (asked.on_applied) asked.on_applied(why);
    if (*alive && asked.on_replies) asked.on_failure(why);
    if (!*alive) return;
  }
}

void RedisStorage::SetTimer() {
  if (!stopped_.ok() || (asked_.empty() && ready_)) return;
  std::int64_t until = ready_ ? INT64_MAX : connect_until_;
  for (const Asked& asked : asked_) {
    if (!asked.on_applied && !asked.on_replies) continue;
    until = std::min(until, asked.until);
    break;
  }
  if (until == INT64_MAX) until = base::NowMicros() + options_.patience_us;
  timer_ = loop_.After(std::max<std::int64_t>(until - base::NowMicros(), 1000), [this] {
    timer_ = 0;
    GiveUpOld();
  });
}

void RedisStorage::GiveUpOld() {
  const std::shared_ptr<bool> alive = alive_;
  const std::int64_t now = base::NowMicros();
  // They stay in line: their reply may still come, and says then what became of them.
  std::vector<Asked> given_up;
  for (Asked& asked : asked_) {
    if (asked.until > now) break;
    if (!asked.on_applied && !asked.on_replies) continue;
    Asked one;
    one.on_applied = std::exchange(asked.on_applied, nullptr);
    one.on_replies = std::exchange(asked.on_replies, nullptr);
    one.on_failure = std::exchange(asked.on_failure, nullptr);
    given_up.push_back(std::move(one));
  }
  const Status why =
      ready_ ? Status(Code::kUnavailable,
                      Cat("Redis at ", options_.address, " has not answered for ", options_.patience_us / 1000, " ms"))
             : Status(Code::kUnavailable,
                      Cat("Redis at ", options_.address, " is out of reach for ", (now - lost_since_) / 1000, " ms (",
                          trouble_.ok() ? "it does not answer" : trouble_.message(), ")"));
  // No answer for so long: the connection may be dead without anybody having said so.
  if (connection_ != nullptr && (ready_ ? !given_up.empty() : connect_until_ <= now)) connection_->Close(why);
  for (Asked& asked : given_up) {
    if (asked.on_applied) {
      asked.on_applied(why);
    } else {
      asked.on_failure(why);
    }
    if (!*alive) return;
  }
  if (timer_ == 0) SetTimer();
}

}  // namespace manta::control
