// EmbeddedStorage keeps a shard in a folder of its own: a log that makes batches durable, SQLite behind it for what is
// too much to keep in memory, and no other server.
//
// A batch goes to the log (LogWriter), and when it is on the disk into the memory table, where reads see it. When the
// memory table has grown to `checkpoint_bytes` it is frozen and written to SQLite by a thread of its own; then the log
// segments that it came from are deleted. Reads look into the memory table, the frozen one, and SQLite, in this order.
// Opening replays the log over SQLite; it survives kill -9 and power loss at any byte.
//
// Full disk: a batch that does not fit fails with kIo, and later ones are tried again; a checkpoint that does not fit
// is tried again, and writes are refused when what waits for it passes `memory_bytes`.
//
// In the folder (mode 0700, files 0600): `lock`, held by the one process that may use it; `tables.sqlite`;
// `log-<number>`. Threads: the loop's, beside the two above.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "control/log_segments.h"
#include "control/log_writer.h"
#include "control/memory_table.h"
#include "control/rhythm.h"
#include "control/sqlite_tables.h"
#include "control/storage.h"

namespace manta::control {

struct EmbeddedOptions {
  std::string folder;
  std::uint64_t segment_bytes = 16U << 20;
  std::uint64_t checkpoint_bytes = 16U << 20;
  std::uint64_t memory_bytes = 128U << 20;  // not checkpointed, or on its way to the log
  std::uint64_t keep_log_bytes = 0;         // of checkpointed log, for EntriesAfter
};

class EmbeddedStorage : public Storage {
 public:
  // Blocks while it reads the log. kInvalid: another process uses the folder, or its modes are too wide. kCorrupt:
  // something that was acknowledged is damaged or missing; the message names the file.
  static Result<std::unique_ptr<EmbeddedStorage>> Open(base::Loop& loop, EmbeddedOptions options);
  ~EmbeddedStorage() override;

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

  // How many segments the log has, and how many checkpoints were made since the start.
  [[nodiscard]] std::size_t segments() const { return segments_.size(); }
  [[nodiscard]] std::uint64_t checkpoints() const { return checkpoints_; }

 private:
  EmbeddedStorage(base::Loop& loop, EmbeddedOptions options);
  Status Lock();
  Status Recover();
  Status Replay(std::uint64_t number, std::uint64_t checkpointed);

  [[nodiscard]] std::string TablesPath() const { return options_.folder + "/tables.sqlite"; }
  void Log(std::unique_ptr<Pending> pending);
  void OnReady();
  void Release();
  void Remember(const Id& client, const Stamp& stamp);
  void MaybeCheckpoint();
  void StartCheckpoint();
  void FinishCheckpoint();
  [[nodiscard]] std::uint64_t HeldBytes() const;

  base::Loop& loop_;
  const EmbeddedOptions options_;
  base::Fd lock_;
  std::unique_ptr<SqliteTables> reader_;        // null before the first checkpoint
  std::unique_ptr<SqliteTables> checkpointer_;  // likewise; the checkpoint thread's while it runs
  std::unique_ptr<SqliteTables> next_reader_;   // likewise, for the first checkpoint

  std::shared_ptr<MemoryTable> active_ = std::make_shared<MemoryTable>();
  std::shared_ptr<const MemoryTable> frozen_;  // null: no checkpoint runs or waits to be tried again
  std::unordered_map<Id, std::vector<Stamp>> clients_;
  LogSegments segments_;
  std::deque<std::unique_ptr<Pending>> waiting_;  // for memory

  std::uint64_t epoch_ = 0;
  std::uint64_t next_sequence_ = 1;
  std::uint64_t last_sequence_ = 0;
  std::uint64_t checkpointed_ = 0;  // sequence
  std::uint64_t checkpoints_ = 0;
  std::uint64_t in_log_bytes_ = 0;  // given to the writer and not yet back
  Rhythm rhythm_;

  std::thread checkpoint_thread_;
  std::mutex checkpoint_mutex_;
  std::optional<Status> checkpoint_result_;  // guarded by checkpoint_mutex_; set by the thread when it is done
  Status checkpoint_trouble_;                // of the last one
  base::Loop::TimerId again_ = 0;

  std::unique_ptr<LogWriter> writer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::control
