// Tables are the control store's tables over one or more shards: single-key operations, ordered scans, and watches.
//
// A key lives in the shard that the hash of its table and name gives; how many shards there are is fixed when the store
// is first used, and checked at every Open. Operations on one key take effect one after the other, in the order they
// were asked for; a read waits for the writes before it. Operations on different keys do not wait for each other.
//
// Exactly once: a write that carries (client, client_sequence) and was applied before is answered as it was then.
// Clients that have not written for kForgetAfter are forgotten.
//
// A watch first gets what is there, then each change once it is durable, of one key in order. A subscriber in another
// process says how many bytes it has not got rid of yet: past kMaxBacklog the watch is ended with an error, so that a
// reader who is too slow costs no more memory than that.
//
// Threads: one loop's, which callbacks run on; some run before the call returns, none after the tables are destroyed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/loop.h"
#include "control/storage.h"
#include "types/id.h"
#include "types/status.h"

namespace manta::control {

using wire::ControlChange;
using wire::ControlValue;
using wire::ControlWrite;
using wire::ControlWritten;

struct Subscriber {
  // `complete`: with these, all that was there at the start has been told.
  std::function<void(std::vector<ControlChange> changes, bool complete)> on_changes;
  // The watch is over, not by Unwatch. Nothing follows.
  std::function<void(const Status& why)> on_end;
  // Bytes told and not yet gone; null: it takes everything at once.
  std::function<std::size_t()> backlog;
};

class Tables {
 public:
  using OnOpen = std::function<void(const Status&)>;
  using OnValue = std::function<void(Result<ControlValue>)>;
  using OnWritten = std::function<void(Result<ControlWritten>)>;
  using OnPage = std::function<void(Result<Page>)>;
  using OnEntry = std::function<Status(const Entry&)>;
  using WatchId = std::uint64_t;

  static constexpr std::size_t kMaxBacklog = 8U << 20;              // bytes
  static constexpr std::size_t kEnoughBacklog = 1U << 20;           // then the first part of a watch pauses
  static constexpr std::int64_t kForgetAfter = 3600LL * 1'000'000;  // microseconds

  Tables(base::Loop& loop, std::vector<std::unique_ptr<Storage>> shards);
  ~Tables();
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  // Before anything else. kInvalid: the storages belong to a store of another number of shards, or are in another
  // order.
  void Open(OnOpen done);

  void Get(Table table, std::string key, OnValue done);
  void Write(ControlWrite write, OnWritten done);
  void Scan(Table table, std::string prefix, std::string after, std::size_t limit, OnPage done);
  // All of them, page by page, in the order of their keys. If `each` fails, that is the end, and what `done` is told.
  void ScanAll(Table table, std::string prefix, OnEntry each, std::function<void(const Status&)> done);

  WatchId Watch(Table table, std::string prefix, Subscriber subscriber);
  void Unwatch(WatchId watch);

  [[nodiscard]] std::size_t shards() const { return shards_.size(); }
  [[nodiscard]] std::uint64_t epoch() const { return shards_.front()->epoch(); }
  [[nodiscard]] std::size_t watches() const { return watches_.size(); }
  [[nodiscard]] std::size_t ShardOf(Table table, std::string_view key) const;

 private:
  using Step = std::function<void()>;  // ends by calling Next(key)
  struct Watching;

  Status Check(Table table, std::string_view key) const;
  void ScanRest(Table table, std::string prefix, std::string after, OnEntry each,
                std::function<void(const Status&)> done);
  // Runs the step when all steps of this key before it are through.
  void InOrder(const std::string& name, Step step);
  void Next(const std::string& name);
  // The version this write made, if it was applied under the same number before; else 0.
  [[nodiscard]] std::uint64_t AppliedBefore(const ControlWrite& write) const;
  void Run(const std::shared_ptr<ControlWrite>& write, const OnWritten& done);
  void Commit(const std::shared_ptr<ControlWrite>& write, const OnWritten& done);
  void Publish(const ControlWrite& write, std::uint64_t version);
  void Tell(Watching& watching, ControlChange change);
  void TellFirst(WatchId watch);
  void End(WatchId watch, const Status& why);
  void ForgetOld();

  base::Loop& loop_;
  std::vector<std::unique_ptr<Storage>> shards_;
  std::unordered_map<std::string, std::deque<Step>> busy_;  // by table and key
  std::deque<std::string> ready_;                           // of these, for the next step; the first is being seen to
  std::unordered_map<WatchId, std::shared_ptr<Watching>> watches_;
  std::list<WatchId> by_table_[wire::kTables];
  WatchId next_watch_ = 1;
  std::unordered_map<Id, std::int64_t> seen_;  // when a client last wrote
  base::Loop::TimerId forgetting_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::control
