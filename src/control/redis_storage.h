// RedisStorage keeps a shard in an unmodified Redis 7 server, over a Unix socket or over TCP with a password.
//
// A batch is one MULTI ... EXEC; batches and reads are pipelined over one connection, so Redis applies them in order.
// Each batch also writes its sequence, so that after a lost connection this end knows which of the unanswered ones took
// effect, and sends the others again. What has no answer for `patience` fails with kUnavailable, and resolves itself
// later: Applied tells.
//
// How durable an acknowledged batch is, the server's configuration says (appendonly, appendfsync). A server that comes
// back without batches it had acknowledged is not used further: everything fails with kLost until this process starts
// again.
//
// One process at a time: opening raises the epoch in the server and cuts the connection of whoever had it; that one
// finds the higher epoch and gives up (kUnavailable). A connection of our own that was lost on this end is cut in the
// server, too, before another is used: commands it still held would otherwise come late and undo newer ones.
//
// In the server, under `prefix`: `t:<table>` a hash of key to "<version> <value>"; `i:<table>` a sorted set of the
// keys, for ordered scans; `c:<client>` a hash of the client's last writes; `state` the epoch and sequence; `log` a
// stream of the last batches, if it is asked for.
//
// Threads: one loop's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/loop.h"
#include "control/memory_table.h"
#include "control/redis_connection.h"
#include "control/rhythm.h"
#include "control/storage.h"

namespace manta::control {

struct RedisOptions {
  std::string address;   // "unix:/path" or "host:port"
  std::string password;  // needed over TCP
  std::string prefix = "manta:";
  std::int64_t patience_us = 10'000'000;
  std::uint64_t keep_log_entries = 0;  // about so many of the last batches, for EntriesAfter
};

class RedisStorage : public Storage {
 public:
  // Blocks until the server answers, for `patience` at most.
  static Result<std::unique_ptr<RedisStorage>> Open(base::Loop& loop, RedisOptions options);
  ~RedisStorage() override;
  // Removes everything under the prefix. Blocks; nobody may have it open.
  static Status Erase(const RedisOptions& options);

  void Apply(Batch batch, OnApplied done) override;
  void Get(Table table, std::string key, OnValue done) override;
  void Scan(Table table, std::string prefix, std::string after, std::size_t limit, OnPage done) override;
  [[nodiscard]] std::uint64_t Applied(const Id& client, std::uint64_t client_sequence) const override;
  void EachStamp(const OnStamp& take) const override;
  void Forget(const Id& client) override;
  [[nodiscard]] std::vector<Id> Clients() const override;
  [[nodiscard]] std::uint64_t epoch() const override { return epoch_; }
  [[nodiscard]] std::uint64_t last_sequence() const override { return last_sequence_; }
  void EntriesAfter(std::uint64_t sequence, std::size_t limit, OnBatches done) override;

 private:
  // What was asked of the server and has no answer; in this order.
  struct Asked {
    std::string commands;
    std::size_t replies = 1;
    std::int64_t until = 0;      // by the clock
    std::uint64_t sequence = 0;  // of a batch; 0: a read
    Id client;                   // of a batch
    std::uint64_t client_sequence = 0;
    RedisConnection::OnReplies on_replies;  // null: nobody waits any more
    std::function<void(const Status&)> on_failure;
    OnApplied on_applied;  // of a batch
  };

  RedisStorage(base::Loop& loop, RedisOptions options, RedisAddress address);
  Status Load();

  [[nodiscard]] std::string Key(std::string_view name) const { return options_.prefix + std::string(name); }
  [[nodiscard]] std::string TableKey(Table table) const;
  [[nodiscard]] std::string IndexKey(Table table) const;
  [[nodiscard]] std::string ClientName() const { return "manta-control:" + options_.prefix; }

  void Ask(Asked asked);
  void Read(std::string commands, std::size_t replies, RedisConnection::OnReplies on_replies,
            std::function<void(const Status&)> on_failure);
  void SendFirst(Asked& asked);
  void OnReplies(std::vector<RespReply>& replies);
  void OnExec(Asked& asked, const std::vector<RespReply>& replies);
  void Remember(const Id& client, const Stamp& stamp);

  void StartConnecting();
  void OnLost(const Status& why);
  void Greet();
  void OnGreeted(const std::vector<RespReply>& replies);
  void OnState(const std::vector<RespReply>& replies);
  void Stop(const Status& why);
  void FailAll(const Status& why);
  void SetTimer();
  void GiveUpOld();

  base::Loop& loop_;
  const RedisOptions options_;
  const RedisAddress address_;
  std::unique_ptr<RedisConnection> connection_;
  bool ready_ = false;  // greeted
  Rhythm rhythm_;
  Status trouble_;  // why not
  Status stopped_;  // for good
  std::int64_t pause_us_ = 0;
  std::int64_t lost_since_ = 0;
  std::int64_t connect_until_ = 0;
  base::Loop::TimerId connecting_ = 0;
  base::Loop::TimerId timer_ = 0;

  std::deque<Asked> asked_;
  std::unordered_map<Id, std::vector<Stamp>> clients_;
  std::uint64_t epoch_ = 0;
  std::uint64_t next_sequence_ = 1;
  std::uint64_t last_sequence_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::control
