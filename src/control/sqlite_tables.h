// SqliteTables: one connection to the file of checkpointed tables. A table of the store is a table of that name with
// the columns key, version and value, so that anybody can look into it with `sqlite3` while nobody writes.
//
// Threads: one at a time. Two connections to the same file (one reads, one checkpoints) work side by side: the reader
// sees the last checkpoint until the next is committed.
#pragma once

#include <sqlite3.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "control/memory_table.h"
#include "control/storage.h"
#include "types/status.h"

namespace manta::control {

class SqliteTables {
 public:
  // Makes what is not there yet.
  static Result<std::unique_ptr<SqliteTables>> Open(const std::string& path);

  Result<std::optional<Entry>> Get(Table table, std::string_view key);
  // Keys that are at least `from` and, unless empty, less than `to`, in order, until `take` says false.
  Status Range(Table table, std::string_view from, std::string_view to, const std::function<bool(const Entry&)>& take);

  // All of it in one transaction, on the disk when this returns ok.
  Status Checkpoint(const MemoryTable& memory);
  Result<std::uint64_t> Sequence();
  Status Stamps(const std::function<void(const Id& client, const Stamp& stamp)>& take);

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  using Statement = std::unique_ptr<sqlite3_stmt, Close>;

  SqliteTables() = default;
  Status Run(const char* sql);
  Result<sqlite3_stmt*> Prepared(Statement& place, const std::string& sql);
  [[nodiscard]] Status Failure(const char* what) const;
  Status Fill(const MemoryTable& memory);

  std::string path_;
  std::unique_ptr<sqlite3, Close> db_;
  std::array<Statement, wire::kTables> get_, range_, open_range_, put_, delete_;
  Statement put_stamp_, forget_, put_state_;
};

}  // namespace manta::control
