#include "control/tables.h"

#include <algorithm>

#include "base/clock.h"

namespace manta::control {
namespace {

constexpr std::int64_t kForgetEvery = 300LL * 1'000'000;
constexpr std::int64_t kLookAgain = 1'000;  // microseconds: whether a slow reader of a first part got on
constexpr char kShardsKey[] = "shards";

// Which operations wait for each other.
std::string NameFor(Table table, std::string_view key) {
  std::string name;
  name.reserve(key.size() + 1);
  name.push_back(static_cast<char>(table));
  name.append(key);
  return name;
}

// Stable across builds and machines: it decides where data is.
std::uint64_t HashOf(Table table, std::string_view key) {
  std::uint64_t hash = 0xcbf29ce484222325ULL ^ static_cast<std::uint64_t>(table);
  for (const char byte : key) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  return Mix(hash);
}

}  // namespace

struct Tables::Watching {
  WatchId id = 0;
  Table table = Table::kKeyValue;
  std::string prefix;
  Subscriber subscriber;
  // The first part: shard after shard, page after page.
  bool complete = false;
  std::size_t shard = 0;
  std::string after;
  std::unordered_map<std::string, std::uint64_t> told;  // versions
  std::vector<ControlChange> later;                     // came meanwhile
  std::size_t later_bytes = 0;
  base::Loop::TimerId timer = 0;
};

Tables::Tables(base::Loop& loop, std::vector<std::unique_ptr<Storage>> shards)
    : loop_(loop), shards_(std::move(shards)) {
  forgetting_ = loop_.Every(kForgetEvery, [this] { ForgetOld(); });
}

Tables::~Tables() {
  *alive_ = false;
  loop_.Cancel(forgetting_);
  for (const auto& [id, watching] : watches_) {
    if (watching->timer != 0) loop_.Cancel(watching->timer);
  }
  shards_.clear();  // before what their callbacks would use
}

std::size_t Tables::ShardOf(Table table, std::string_view key) const { return HashOf(table, key) % shards_.size(); }

void Tables::Open(OnOpen done) {
  struct Opening {
    std::size_t left = 0;
    OnOpen done;
    Status status;
  };
  auto opening = std::make_shared<Opening>(Opening{shards_.size(), std::move(done), {}});
  const auto one_done = [opening](const Status& status) {
    if (!status.ok() && opening->status.ok()) opening->status = status;
    if (--opening->left == 0) opening->done(opening->status);
  };
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const std::string expected = Cat(i + 1, " of ", shards_.size());
    shards_[i]->Get(Table::kMeta, kShardsKey, [this, i, expected, one_done](Result<std::optional<Entry>> entry) {
      if (!entry.ok()) return one_done(entry.status());
      if (*entry) {
        if ((*entry)->value == expected) return one_done({});
        return one_done(Status(Code::kInvalid, Cat("the storage given as shard ", expected, " was made as shard ",
                                                   (*entry)->value, ": give the same shards in the same order")));
      }
      Batch batch;
      batch.writes.push_back(control::Write{Table::kMeta, kShardsKey, expected});
      shards_[i]->Apply(std::move(batch),
                        [one_done](const Result<std::uint64_t>& result) { one_done(result.status()); });
    });
  }
}

Status Tables::Check(Table table, std::string_view key) const {
  if (static_cast<std::uint8_t>(table) >= wire::kTables || table == Table::kMeta) {
    return Status(Code::kInvalid, Cat("there is no table ", int(table), " in the control store"));
  }
  if (key.size() > wire::kMaxControlKey) {
    return Status(Code::kInvalid, Cat("a key of ", key.size(), " bytes is over the limit of ", wire::kMaxControlKey));
  }
  return {};
}

void Tables::InOrder(const std::string& name, Step step) {
  const auto [it, idle] = busy_.try_emplace(name);
  if (idle) {
    step();
  } else {
    it->second.push_back(std::move(step));
  }
}

void Tables::Next(const std::string& name) {
  // Steps may be through at once and come back here: a long line of them must not become a deep stack.
  ready_.push_back(name);
  if (ready_.size() > 1) return;
  const std::shared_ptr<bool> alive = alive_;
  while (!ready_.empty()) {
    const auto it = busy_.find(ready_.front());
    if (it->second.empty()) {
      busy_.erase(it);
    } else {
      const Step step = std::move(it->second.front());
      it->second.pop_front();
      step();
      if (!*alive) return;
    }
    ready_.pop_front();
  }
}

void Tables::Get(Table table, std::string key, OnValue done) {
  if (Status status = Check(table, key); !status.ok()) return done(status);
  const auto read = [this, table](std::string one, Storage::OnValue then) {
    Storage& shard = *shards_[ShardOf(table, one)];
    shard.Get(table, std::move(one), std::move(then));
  };
  const auto answer = [](const OnValue& to, Result<std::optional<Entry>>& entry) {
    if (!entry.ok()) return to(entry.status());
    if (!*entry) return to(ControlValue{});
    to(ControlValue{(*entry)->version, std::move((*entry)->value)});
  };
  std::string name = NameFor(table, key);
  if (!busy_.contains(name)) {  // nothing to wait for, and nobody needs to wait for a read
    read(std::move(key), [answer, done = std::move(done)](Result<std::optional<Entry>> entry) { answer(done, entry); });
    return;
  }
  InOrder(name, [this, name, read, answer, key = std::move(key), done = std::move(done)] {
    read(key, [this, name, answer, done](Result<std::optional<Entry>> entry) {
      const std::shared_ptr<bool> alive = alive_;
      answer(done, entry);
      if (*alive) Next(name);
    });
  });
}

void Tables::Write(ControlWrite write, OnWritten done) {
  if (Status status = Check(write.table, write.key); !status.ok()) return done(status);
  if (write.value && write.value->size() > wire::kMaxControlValue) {
    return done(Status(Code::kInvalid, Cat("a value of ", Bytes(write.value->size()), " for key ", write.key,
                                           " is over the control store's limit of ", Bytes(wire::kMaxControlValue))));
  }
  if (!write.client.empty()) seen_[write.client] = base::NowMicros();
  const std::string name = NameFor(write.table, write.key);
  auto shared = std::make_shared<ControlWrite>(std::move(write));
  InOrder(name, [this, name, shared, done = std::move(done)] {
    Run(shared, [this, name, done](Result<ControlWritten> result) {
      const std::shared_ptr<bool> alive = alive_;
      done(std::move(result));
      if (*alive) Next(name);
    });
  });
}

std::uint64_t Tables::AppliedBefore(const ControlWrite& write) const {
  if (write.client.empty()) return 0;
  return shards_[ShardOf(write.table, write.key)]->Applied(write.client, write.sequence);
}

void Tables::Run(const std::shared_ptr<ControlWrite>& write, const OnWritten& done) {
  Storage& shard = *shards_[ShardOf(write->table, write->key)];
  const std::uint64_t before = AppliedBefore(*write);
  if (before != 0) return done(ControlWritten{true, write->value ? before : 0});
  if (!write->expect) return Commit(write, done);
  shard.Get(write->table, write->key, [this, write, done](Result<std::optional<Entry>> entry) {
    if (!entry.ok()) return done(entry.status());
    const std::uint64_t version = *entry ? (*entry)->version : 0;
    if (version != *write->expect) {
      // Perhaps it was this very write that made it so: one that was given up and sent again, resolved meanwhile.
      const std::uint64_t applied = AppliedBefore(*write);
      return done(applied != 0 ? ControlWritten{true, write->value ? applied : 0} : ControlWritten{false, version});
    }
    Commit(write, done);
  });
}

void Tables::Commit(const std::shared_ptr<ControlWrite>& write, const OnWritten& done) {
  Storage& shard = *shards_[ShardOf(write->table, write->key)];
  Batch batch;
  batch.client = write->client;
  batch.client_sequence = write->sequence;
  // A copy is kept for those who watch, also for who begins to while this is on its way.
  batch.writes.push_back(control::Write{write->table, write->key, write->value});
  shard.Apply(std::move(batch), [this, write, done](const Result<std::uint64_t>& sequence) {
    if (!sequence.ok()) return done(sequence.status());
    const std::shared_ptr<bool> alive = alive_;
    Publish(*write, sequence.value());
    if (*alive) done(ControlWritten{true, write->value ? sequence.value() : 0});
  });
}

void Tables::Publish(const ControlWrite& write, std::uint64_t version) {
  const std::shared_ptr<bool> alive = alive_;
  // A copy: a subscriber may watch and unwatch.
  const std::list<WatchId> ids = by_table_[static_cast<std::size_t>(write.table)];
  for (const WatchId id : ids) {
    const auto it = watches_.find(id);
    if (it == watches_.end() || !write.key.starts_with(it->second->prefix)) continue;
    const std::shared_ptr<Watching> watching = it->second;
    Tell(*watching, ControlChange{write.key, version, write.value});
    if (!*alive) return;
  }
}

void Tables::Tell(Watching& watching, ControlChange change) {
  if (!watching.complete) {
    watching.later_bytes += change.key.size() + (change.value ? change.value->size() : 0) + 64;
    if (watching.later_bytes > kMaxBacklog) {
      End(watching.id, Status(Code::kUnavailable, Cat("the watch of ", NameOf(watching.table), "/", watching.prefix,
                                                      " was ended: ", Bytes(watching.later_bytes),
                                                      " of changes came before its reader had taken the first part")));
      return;
    }
    watching.later.push_back(std::move(change));
    return;
  }
  if (watching.subscriber.backlog) {
    const std::size_t backlog = watching.subscriber.backlog();
    if (backlog > kMaxBacklog) {
      End(watching.id, Status(Code::kUnavailable, Cat("the watch of ", NameOf(watching.table), "/", watching.prefix,
                                                      " was ended: its reader is too slow, ", Bytes(backlog),
                                                      " wait for it; watch again to start from what is there")));
      return;
    }
  }
  std::vector<ControlChange> changes;
  changes.push_back(std::move(change));
  watching.subscriber.on_changes(std::move(changes), false);
}

Tables::WatchId Tables::Watch(Table table, std::string prefix, Subscriber subscriber) {
  const WatchId id = next_watch_++;
  auto watching = std::make_shared<Watching>();
  watching->id = id;
  watching->table = table;
  watching->prefix = std::move(prefix);
  watching->subscriber = std::move(subscriber);
  watches_[id] = watching;
  const Status status = Check(table, watching->prefix);
  if (status.ok()) by_table_[static_cast<std::size_t>(table)].push_back(id);
  // From the loop: the caller has the watch's number before anything is told.
  watching->timer = loop_.After(0, [this, id, status] {
    watches_[id]->timer = 0;
    if (status.ok()) {
      TellFirst(id);
    } else {
      End(id, status);
    }
  });
  return id;
}

void Tables::TellFirst(WatchId id) {
  const auto it = watches_.find(id);
  if (it == watches_.end()) return;
  const std::shared_ptr<Watching> watching = it->second;
  if (watching->subscriber.backlog && watching->subscriber.backlog() > kEnoughBacklog) {
    watching->timer = loop_.After(kLookAgain, [this, id, watching] {
      watching->timer = 0;
      TellFirst(id);
    });
    return;
  }
  shards_[watching->shard]->Scan(
      watching->table, watching->prefix, watching->after, 0, [this, id, watching](Result<Page> page) {
        if (!watches_.contains(id)) return;
        if (!page.ok()) return End(id, page.status());
        std::vector<ControlChange> changes;
        changes.reserve(page->entries.size());
        for (Entry& entry : page->entries) {
          watching->told[entry.key] = entry.version;
          watching->after = entry.key;
          changes.push_back(ControlChange{std::move(entry.key), entry.version, std::move(entry.value)});
        }
        if (!page->more) {
          ++watching->shard;
          watching->after.clear();
        }
        const bool complete = watching->shard == shards_.size();
        if (complete) {
          for (ControlChange& change : watching->later) {
            const auto told = watching->told.find(change.key);
            if (told == watching->told.end() || told->second < change.version) changes.push_back(std::move(change));
          }
          watching->complete = true;
          watching->told.clear();
          watching->later.clear();
        }
        const std::shared_ptr<bool> alive = alive_;
        if (complete || !changes.empty()) watching->subscriber.on_changes(std::move(changes), complete);
        if (!*alive || complete) return;
        // By the loop, not by calling itself: an embedded storage answers at once.
        watching->timer = loop_.After(0, [this, id, watching] {
          watching->timer = 0;
          TellFirst(id);
        });
      });
}

void Tables::End(WatchId watch, const Status& why) {
  const auto it = watches_.find(watch);
  if (it == watches_.end()) return;
  const std::shared_ptr<Watching> watching = it->second;
  Unwatch(watch);
  if (watching->subscriber.on_end) watching->subscriber.on_end(why);
}

void Tables::Unwatch(WatchId watch) {
  const auto it = watches_.find(watch);
  if (it == watches_.end()) return;
  if (it->second->timer != 0) loop_.Cancel(it->second->timer);
  if (static_cast<std::uint8_t>(it->second->table) < wire::kTables) {
    by_table_[static_cast<std::size_t>(it->second->table)].remove(watch);
  }
  watches_.erase(it);
}

// A page of each shard, merged. A shard that has more hides what comes after its last key.
void Tables::ScanAll(Table table, std::string prefix, OnEntry each, std::function<void(const Status&)> done) {
  ScanRest(table, std::move(prefix), {}, std::move(each), std::move(done));
}

void Tables::ScanRest(Table table, std::string prefix, std::string after, OnEntry each,
                      std::function<void(const Status&)> done) {
  const auto take = [this, table, prefix, each = std::move(each), done = std::move(done)](const Result<Page>& page) {
    if (!page.ok()) return done(page.status());
    for (const Entry& entry : page.value().entries) {
      if (const Status status = each(entry); !status.ok()) return done(status);
    }
    if (!page.value().more || page.value().entries.empty()) return done({});
    ScanRest(table, prefix, page.value().entries.back().key, each, done);
  };
  Scan(table, std::move(prefix), std::move(after), 0, take);
}

void Tables::Scan(Table table, std::string prefix, std::string after, std::size_t limit, OnPage done) {
  if (Status status = Check(table, prefix); !status.ok()) return done(status);
  if (limit == 0 || limit > Storage::kPageEntries) limit = Storage::kPageEntries;
  if (shards_.size() == 1) return shards_[0]->Scan(table, std::move(prefix), std::move(after), limit, std::move(done));
  struct Gathering {
    std::size_t left = 0;
    Status status;
    std::vector<Entry> entries;
    std::optional<std::string> bound;
    OnPage done;
  };
  auto gathering = std::make_shared<Gathering>();
  gathering->left = shards_.size();
  gathering->done = std::move(done);
  for (const auto& shard : shards_) {
    shard->Scan(table, prefix, after, limit, [gathering, limit](Result<Page> page) {
      Gathering& all = *gathering;
      if (!page.ok()) {
        all.status = page.status();
      } else {
        if (page->more && (!all.bound || page->entries.back().key < *all.bound)) all.bound = page->entries.back().key;
        std::move(page->entries.begin(), page->entries.end(), std::back_inserter(all.entries));
      }
      if (--all.left > 0) return;
      if (!all.status.ok()) return all.done(all.status);
      std::sort(all.entries.begin(), all.entries.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
      Page merged;
      merged.more = all.bound.has_value();
      for (Entry& entry : all.entries) {
        if (merged.entries.size() == limit || (all.bound && entry.key > *all.bound)) {
          merged.more = true;
          break;
        }
        merged.entries.push_back(std::move(entry));
      }
      all.done(std::move(merged));
    });
  }
}

void Tables::ForgetOld() {
  const std::int64_t now = base::NowMicros();
  for (const auto& shard : shards_) {
    for (const Id& client : shard->Clients()) {
      const std::int64_t seen = seen_.try_emplace(client, now).first->second;
      if (now - seen > kForgetAfter) shard->Forget(client);
    }
  }
  std::erase_if(seen_, [now](const auto& entry) { return now - entry.second > 2 * kForgetAfter; });
}

}  // namespace manta::control
