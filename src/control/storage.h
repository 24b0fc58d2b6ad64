// Storage keeps the tables of one shard: ordered batches of writes in, single entries and ordered scans out.
//
// A batch is applied whole or not at all, in order of its sequence, and is durable (in the way this storage promises)
// when its callback says so. Reads see exactly the batches whose callback has run with success: never one that could
// still be lost. Versions of entries are the sequence of the batch that wrote them.
//
// Sequences grow strictly; a number is missing only where a batch failed. The storage remembers which batch applied the
// last kControlWindow writes of every client (Applied), durably, as a part of the batch itself, until Forget.
//
// Replication stands above this interface, and needs from it: stamps (epoch, sequence, client, client sequence) in
// every batch, last_sequence, and EntriesAfter to fill a member that fell behind. A copy is made by Scan of all tables,
// then EntriesAfter; followers Apply batches with the sequence they were given.
//
// Threads: one loop's. Callbacks run on it, each exactly once, some before the call that got them returns; none after
// the storage is destroyed. Failures: kIo (disk full, damaged), kUnavailable (server out of reach), kOutOfMemory,
// kLost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "types/id.h"
#include "types/status.h"
#include "wire/control_messages.h"

namespace manta::control {

using wire::Table;

struct Write {
  Table table = Table::kMeta;
  std::string key;
  std::optional<std::string> value;  // none: delete
};

struct Batch {
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;  // 0: the storage's next
  Id client;                   // empty: nobody who could ask again
  std::uint64_t client_sequence = 0;
  std::vector<Write> writes;
};

struct Entry {
  std::string key;
  std::uint64_t version = 0;
  std::string value;
};

struct Page {
  std::vector<Entry> entries;
  bool more = false;  // after the last of these
};

class Storage {
 public:
  using OnApplied = std::function<void(Result<std::uint64_t> sequence)>;
  using OnValue = std::function<void(Result<std::optional<Entry>>)>;
  using OnPage = std::function<void(Result<Page>)>;
  using OnBatches = std::function<void(Result<std::vector<Batch>>)>;

  static constexpr std::size_t kPageEntries = 1000;
  static constexpr std::size_t kPageBytes = 1U << 20;

  virtual ~Storage() = default;

  // A sequence that was given must be above last_sequence.
  virtual void Apply(Batch batch, OnApplied done) = 0;
  virtual void Get(Table table, std::string key, OnValue done) = 0;
  // Up to `limit` entries (or about kPageBytes) whose key starts with `prefix` and is greater than `after`, in order.
  virtual void Scan(Table table, std::string prefix, std::string after, std::size_t limit, OnPage done) = 0;

  // The sequence of the batch that applied this write, 0 if none is remembered. Known as soon as a batch is durable.
  [[nodiscard]] virtual std::uint64_t Applied(const Id& client, std::uint64_t client_sequence) const = 0;
  // All that Applied knows: for copies.
  using OnStamp = std::function<void(const Id& client, std::uint64_t client_sequence, std::uint64_t sequence)>;
  virtual void EachStamp(const OnStamp& take) const = 0;
  // This client will not ask again.
  virtual void Forget(const Id& client) = 0;
  // Those remembered: for whoever decides whom to forget.
  [[nodiscard]] virtual std::vector<Id> Clients() const = 0;

  // One more than at the last opening of the same storage.
  [[nodiscard]] virtual std::uint64_t epoch() const = 0;
  // Of the last durable batch.
  [[nodiscard]] virtual std::uint64_t last_sequence() const = 0;
  // Durable batches with a higher sequence, oldest first, up to `limit` (or about kPageBytes) of them, or fewer; none
  // only if there is none. kNotFound: the log does not reach back that far; copy everything.
  virtual void EntriesAfter(std::uint64_t sequence, std::size_t limit, OnBatches done) = 0;
};

// The first string that is greater than all that start with `prefix`; empty: there is none.
[[nodiscard]] std::string AfterPrefix(std::string_view prefix);

}  // namespace manta::control
