#include "control/sqlite_tables.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "control/log_writer.h"

namespace manta::control {
namespace {

// Ends the use of a prepared statement, so that it holds no lock and no pointer to what was bound.
class Using {
 public:
  explicit Using(sqlite3_stmt* statement) : statement_(statement) {}
  ~Using() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }
  Using(const Using&) = delete;
  Using& operator=(const Using&) = delete;

 private:
  sqlite3_stmt* statement_;
};

void Bind(sqlite3_stmt* statement, int at, std::string_view bytes) {
  // SQLite takes a null pointer for NULL, also of an empty string.
  sqlite3_bind_blob64(statement, at, bytes.data() == nullptr ? "" : bytes.data(), bytes.size(), SQLITE_STATIC);
}
void Bind(sqlite3_stmt* statement, int at, std::uint64_t number) {
  sqlite3_bind_int64(statement, at, static_cast<sqlite3_int64>(number));
}
std::string Blob(sqlite3_stmt* statement, int column) {
  const void* bytes = sqlite3_column_blob(statement, column);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement, column));
  return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), size);
}
std::uint64_t Number(sqlite3_stmt* statement, int column) {
  return static_cast<std::uint64_t>(sqlite3_column_int64(statement, column));
}

}  // namespace

Result<std::unique_ptr<SqliteTables>> SqliteTables::Open(const std::string& path) {
  // SQLite would make it as the umask says; its two companions then take this file's mode.
  const base::Fd file(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!file.valid()) return DiskError(Cat("cannot open ", path), errno);
  std::unique_ptr<SqliteTables> tables(new SqliteTables());
  tables->path_ = path;
  sqlite3* db = nullptr;
  const int opened = sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  tables->db_.reset(db);
  if (opened != SQLITE_OK) return tables->Failure("cannot open");
  sqlite3_busy_timeout(db, 10000);
  // FULL: in the write-ahead mode only that syncs at every commit, and the log is cut after a commit.
  std::string sql =
      "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY; PRAGMA journal_size_limit=16777216;";
  sql += "BEGIN IMMEDIATE;";  // one sync, not one for each table
  for (std::uint8_t i = 0; i < wire::kTables; ++i) {
    sql += Cat("CREATE TABLE IF NOT EXISTS ", NameOf(static_cast<Table>(i)),
               "(key BLOB PRIMARY KEY, version INTEGER NOT NULL, value BLOB NOT NULL) WITHOUT ROWID;");
  }
  sql +=
      "CREATE TABLE IF NOT EXISTS clients(client BLOB, slot INTEGER, client_sequence INTEGER, sequence INTEGER,"
      " PRIMARY KEY(client, slot)) WITHOUT ROWID;"
      "CREATE TABLE IF NOT EXISTS state(name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID; COMMIT;";
  if (Status status = tables->Run(sql.c_str()); !status.ok()) return status;
  return tables;
}

Status SqliteTables::Failure(const char* what) const {
  const int code = db_ == nullptr ? SQLITE_NOMEM : sqlite3_errcode(db_.get());
  std::string text =
      Cat(what, " the tables in ", path_, ": ", db_ == nullptr ? "no memory" : sqlite3_errmsg(db_.get()));
  if (code == SQLITE_FULL) {
    text += Cat(RoomAt(path_), "; make room: nothing acknowledged is lost, and writes go on then");
  }
  return Status(code == SQLITE_CORRUPT || code == SQLITE_NOTADB ? Code::kCorrupt : Code::kIo, std::move(text));
}

Status SqliteTables::Run(const char* sql) {
  return sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK ? Status() : Failure("cannot change");
}

Result<sqlite3_stmt*> SqliteTables::Prepared(Statement& place, const std::string& sql) {
  if (place == nullptr) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v3(db_.get(), sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr) != SQLITE_OK) {
      return Failure("cannot use");
    }
    place.reset(statement);
  }
  return place.get();
}

Result<std::optional<Entry>> SqliteTables::Get(Table table, std::string_view key) {
  const Result<sqlite3_stmt*> prepared = Prepared(get_[static_cast<std::size_t>(table)],
                                                  Cat("SELECT version, value FROM ", NameOf(table), " WHERE key=?"));
  if (!prepared.ok()) return prepared.status();
  sqlite3_stmt* statement = prepared.value();
  const Using use(statement);
  Bind(statement, 1, key);
  const int step = sqlite3_step(statement);
  if (step == SQLITE_DONE) return std::optional<Entry>();
  if (step != SQLITE_ROW) return Failure("cannot read");
  return std::optional<Entry>(Entry{std::string(key), Number(statement, 0), Blob(statement, 1)});
}

Status SqliteTables::Range(Table table, std::string_view from, std::string_view to,
                           const std::function<bool(const Entry&)>& take) {
  auto& place = (to.empty() ? open_range_ : range_)[static_cast<std::size_t>(table)];
  const Result<sqlite3_stmt*> prepared =
      Prepared(place, Cat("SELECT key, version, value FROM ", NameOf(table), " WHERE key>=?1",
                          to.empty() ? "" : " AND key<?2", " ORDER BY key"));
  if (!prepared.ok()) return prepared.status();
  sqlite3_stmt* statement = prepared.value();
  const Using use(statement);
  Bind(statement, 1, from);
  if (!to.empty()) Bind(statement, 2, to);
  for (;;) {
    const int step = sqlite3_step(statement);
    if (step == SQLITE_DONE) return {};
    if (step != SQLITE_ROW) return Failure("cannot read");
    if (!take(Entry{Blob(statement, 0), Number(statement, 1), Blob(statement, 2)})) return {};
  }
}

Status SqliteTables::Checkpoint(const MemoryTable& memory) {
  if (Status status = Run("BEGIN IMMEDIATE"); !status.ok()) return status;
  Status status = Fill(memory);
  if (status.ok()) status = Run("COMMIT");
  // Some failures (a full disk) have rolled back by themselves.
  if (!status.ok() && sqlite3_get_autocommit(db_.get()) == 0) static_cast<void>(Run("ROLLBACK"));
  return status;
}

Status SqliteTables::Fill(const MemoryTable& memory) {
  for (const auto& [key, cell] : memory.cells) {
    const auto index = static_cast<std::size_t>(key.first);
    const char* name = NameOf(key.first);
    const Result<sqlite3_stmt*> prepared =
        cell.value ? Prepared(put_[index], Cat("INSERT OR REPLACE INTO ", name, " VALUES(?1, ?2, ?3)"))
                   : Prepared(delete_[index], Cat("DELETE FROM ", name, " WHERE key=?1"));
    if (!prepared.ok()) return prepared.status();
    sqlite3_stmt* statement = prepared.value();
    const Using use(statement);
    Bind(statement, 1, key.second);
    if (cell.value) {
      Bind(statement, 2, cell.version);
      Bind(statement, 3, *cell.value);
    }
    if (sqlite3_step(statement) != SQLITE_DONE) return Failure("cannot change");
  }
  const Result<sqlite3_stmt*> forget = Prepared(forget_, "DELETE FROM clients WHERE client=?1");
  if (!forget.ok()) return forget.status();
  for (const Id& client : memory.forgotten) {
    const Using use(forget.value());
    const std::string name = ToHex(client);
    Bind(forget.value(), 1, name);
    if (sqlite3_step(forget.value()) != SQLITE_DONE) return Failure("cannot change");
  }
  const Result<sqlite3_stmt*> stamp = Prepared(put_stamp_, "INSERT OR REPLACE INTO clients VALUES(?1, ?2, ?3, ?4)");
  if (!stamp.ok()) return stamp.status();
  for (const auto& [place, value] : memory.stamps) {
    const Using use(stamp.value());
    const std::string name = ToHex(place.first);
    Bind(stamp.value(), 1, name);
    Bind(stamp.value(), 2, std::uint64_t{place.second});
    Bind(stamp.value(), 3, value.client_sequence);
    Bind(stamp.value(), 4, value.sequence);
    if (sqlite3_step(stamp.value()) != SQLITE_DONE) return Failure("cannot change");
  }
  const Result<sqlite3_stmt*> state = Prepared(put_state_, "INSERT OR REPLACE INTO state VALUES('sequence', ?1)");
  if (!state.ok()) return state.status();
  const Using use(state.value());
  Bind(state.value(), 1, memory.sequence);
  return sqlite3_step(state.value()) == SQLITE_DONE ? Status() : Failure("cannot change");
}

Result<std::uint64_t> SqliteTables::Sequence() {
  Statement place;
  const Result<sqlite3_stmt*> statement = Prepared(place, "SELECT value FROM state WHERE name='sequence'");
  if (!statement.ok()) return statement.status();
  const int step = sqlite3_step(statement.value());
  if (step == SQLITE_DONE) return std::uint64_t{0};
  if (step != SQLITE_ROW) return Failure("cannot read");
  return Number(statement.value(), 0);
}

Status SqliteTables::Stamps(const std::function<void(const Id&, const Stamp&)>& take) {
  Statement place;
  const Result<sqlite3_stmt*> statement = Prepared(place, "SELECT client, client_sequence, sequence FROM clients");
  if (!statement.ok()) return statement.status();
  for (;;) {
    const int step = sqlite3_step(statement.value());
    if (step == SQLITE_DONE) return {};
    if (step != SQLITE_ROW) return Failure("cannot read");
    Id client;
    if (!FromHex(Blob(statement.value(), 0), &client)) return Status(Code::kCorrupt, Cat("a client in ", path_));
    take(client, Stamp{Number(statement.value(), 1), Number(statement.value(), 2)});
  }
}

}  // namespace manta::control
