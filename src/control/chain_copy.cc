#include "control/chain_copy.h"

#include <utility>

#include "control/chain_wire.h"

namespace manta::control {

ChainCopy::ChainCopy(base::Loop& loop, Storage& storage, std::uint64_t last_epoch)
    : loop_(loop), storage_(storage), last_epoch_(last_epoch), end_(storage.last_sequence()), next_(places_.begin()) {
  storage_.EachStamp([this](const Id& client, std::uint64_t client_sequence, std::uint64_t position) {
    if (position <= end_) places_.emplace(position, Place{true, Table::kMeta, {}, client, client_sequence});
  });
}

void ChainCopy::Index(std::uint8_t table, std::string after, std::function<void(const Status&)> done) {
  if (table == wire::kTables) {
    indexed_ = true;
    next_ = places_.begin();
    return done({});
  }
  storage_.Scan(static_cast<Table>(table), "", std::move(after), 0,
                [this, table, done = std::move(done), alive = alive_](Result<Page> page) {
                  if (!*alive) return;
                  if (!page.ok()) return done(page.status());
                  for (const Entry& entry : page->entries) {
                    if (entry.version > end_) continue;
                    places_.emplace(entry.version, Place{false, static_cast<Table>(table), entry.key, {}, 0});
                  }
                  if (!page->more) return Index(table + 1, "", done);
                  loop_.After(0, [this, table, last = page->entries.back().key, done, alive] {
                    if (*alive) Index(table, last, done);
                  });
                });
}

void ChainCopy::Read(std::uint64_t after, std::size_t limit, OnRecords done) {
  if (after == 0) {
    next_ = places_.begin();
    told_ = 0;
  }
  if (after != told_ || (after != 0 && after >= end_)) {
    return done(Status(Code::kNotFound, Cat("the copy was not read up to ", after)));
  }
  limit_ = limit;
  done_ = std::move(done);
  records_.clear();
  bytes_ = 0;
  if (indexed_) return Go();
  if (std::exchange(indexing_, true)) return;
  Index(0, "", [this](const Status& status) {
    indexing_ = false;
    if (!status.ok()) return Finish(status);
    Go();
  });
}

// Whether the storage answers at once or later, it goes on here.
void ChainCopy::Go() {
  if (running_) return;
  const std::shared_ptr<bool> alive = alive_;
  running_ = true;
  while (done_ && !waiting_) {
    Step();
    if (!*alive) return;
  }
  running_ = false;
}

void ChainCopy::Begin(std::uint64_t position) {
  if (!records_.empty() && records_.back().position == position) return;
  if (!records_.empty()) records_.back().payload = ToBytes(writes_);
  writes_.clear();
  records_.push_back({rules::kCopiedEpoch, position, {}, 0, {}});
}

void ChainCopy::Step() {
  if (next_ == places_.end()) {
    // The last position, under its own epoch, so that the log can go on from there.
    if (end_ != 0) {
      Begin(end_);
      if (last_epoch_ != 0) records_.back().epoch = last_epoch_;
    }
    return Finish({});
  }
  const auto& [position, place] = *next_;
  const bool fresh = records_.empty() || records_.back().position != position;
  if (fresh && (records_.size() >= limit_ || bytes_ >= Storage::kPageBytes)) return Finish({});
  ++next_;
  Begin(position);
  if (place.stamp) {
    records_.back().client = place.client;
    records_.back().client_sequence = place.client_sequence;
    return;
  }
  waiting_ = true;
  const auto take = [this, at = position, table = place.table, alive = alive_](Result<std::optional<Entry>> entry) {
    if (!*alive) return;
    waiting_ = false;
    if (!entry.ok()) return Finish(entry.status());
    if (*entry && (*entry)->version == at) {
      bytes_ += (*entry)->key.size() + (*entry)->value.size();
      writes_.push_back(Write{table, std::move((*entry)->key), std::move((*entry)->value)});
    }
    Go();
  };
  storage_.Get(place.table, place.key, take);
}

void ChainCopy::Finish(const Status& status) {
  const OnRecords done = std::exchange(done_, nullptr);
  if (!status.ok()) return done(status);
  if (!records_.empty()) {
    records_.back().payload = ToBytes(writes_);
    told_ = records_.back().position;
  }
  writes_.clear();
  done(std::exchange(records_, {}));
}

}  // namespace manta::control
